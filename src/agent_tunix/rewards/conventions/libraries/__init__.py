"""Conventions of reinforcement-learning libraries whose functions name their parameters, one module each."""
