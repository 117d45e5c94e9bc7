"""Training runs: from a configuration to a trained policy. This package may import all others.

Importing this package does not load JAX; `train.py` and most other modules do. `runs/preflight.py` checks everything
that can be checked without JAX.
"""
