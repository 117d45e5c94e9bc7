"""Logits → tokens → completions."""
