"""Tests of inference engines."""
