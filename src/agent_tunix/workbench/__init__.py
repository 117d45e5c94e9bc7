"""Offline work on rewards: checks, replay, diagnosis, forecasts. This package loads no JAX."""
