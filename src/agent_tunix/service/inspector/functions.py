"""Reward functions: their list, and one with its source, to be tried, replayed and saved."""

from fastapi import FastAPI


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
