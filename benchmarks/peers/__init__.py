"""Three programs that take the same GRPO step in turns, each in a separate process."""
