"""Configuration: composition, types and checks."""
