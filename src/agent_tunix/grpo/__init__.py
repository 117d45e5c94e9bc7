"""GRPO. `step.py` is one whole step, from top to bottom."""
