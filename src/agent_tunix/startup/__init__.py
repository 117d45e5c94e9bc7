"""Preparation of a process: JAX settings, compilation cache, garbage collection, timings."""
