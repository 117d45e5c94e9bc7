"""The same GRPO step by three programs, each in a process of its own, that take turns."""
