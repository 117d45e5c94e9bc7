"""Completions: found, read, beside each other."""

from fastapi import FastAPI


def add_routes(app: FastAPI) -> None:
    """Add the pages to an app."""
