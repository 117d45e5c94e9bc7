"""Rewards that others uploaded. They are inspected and adapted without running their code in this process."""

from agent_tunix.rewards.recipe import FUNCTION_PREFIX, UploadedSource, is_function_id
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
    "FUNCTION_PREFIX",
    "Fetch",
    "FileFacts",
    "FunctionFacts",
    "UploadedSource",
    "adapt_uploaded",
    "build_uploaded",
    "inspect_file",
    "is_function_id",
    "lines_forgotten",
    "uploaded_imports_of",
    "uploaded_source_of",
]
