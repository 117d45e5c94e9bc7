"""Version of the package. Importing this module imports nothing else."""

__version__ = "0.2.0"
