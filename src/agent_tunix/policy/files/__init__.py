"""Files of a model: where they are, what they hold, export."""
