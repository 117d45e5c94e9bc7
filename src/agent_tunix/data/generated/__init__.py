"""Generated problems, each set made from a seed alone."""
