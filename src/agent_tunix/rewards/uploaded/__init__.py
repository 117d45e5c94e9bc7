"""Rewards that others uploaded. They are inspected and adapted without running their code in this process."""

from agent_tunix.rewards.recipe import UploadedSource
from agent_tunix.rewards.uploaded.inspection import FileFacts, FunctionFacts, inspect_file
from agent_tunix.rewards.uploaded.source import (
    Fetch,
    adapt_uploaded,
    build_uploaded,
    lines_forgotten,
    uploaded_imports_of,
    uploaded_source_of,
)

__all__ = [
    "Fetch",
    "FileFacts",
    "FunctionFacts",
    "UploadedSource",
    "adapt_uploaded",
    "build_uploaded",
    "inspect_file",
    "lines_forgotten",
    "uploaded_imports_of",
    "uploaded_source_of",
]
