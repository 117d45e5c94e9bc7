"""Estimates of memory, work and time of a run, made before it starts."""
