"""Base classes of the rewards that a model gives (judges and reward models), and of their arguments."""
