"""Checkpoints of a run: their content, writing and reading."""
