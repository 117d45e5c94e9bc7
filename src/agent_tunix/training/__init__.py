"""Training runs: from a configuration to a trained policy.

Importing this package does not load JAX. `runs/preflight.py` makes all checks that need no JAX; `train.py` runs the
training.
"""
