"""Sampling of completions from a policy."""
