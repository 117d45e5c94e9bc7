"""Offline work on rewards: checks, replay, diagnosis, forecasts. It loads no JAX."""
