"""Facts about a file that must not run here. A separate process (`program`) reads them from the source."""

import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 10.0
MAX_BYTES = 256 * 1024

_PROGRAM = Path(__file__).with_name("program.py")


@dataclass(frozen=True, slots=True)
class FunctionFacts:
    """Facts about a function of the inspected name."""

    is_async: bool
    line: int  # line of its `def`, from 1
    is_literal: bool  # True if this line begins with exactly `def NAME(` or `async def NAME(`
    is_generator: bool
    is_nested: bool  # True if it is inside another block, so it is not the module's own
    signature: inspect.Signature  # Its parameters. Defaults are replaced by None.
    doc: str | None


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """Facts about a value that the function returns, or adds to its result."""

    kind: str  # `constant`, `truth` (a comparison), `length` or `other`
    number: float  # the value of a constant
    line: int


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """Facts about an expression that reads a file."""

    code: str
    line: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about a Python file."""

    error: str | None  # reason why it cannot be compiled; None if it can
    functions: Sequence[FunctionFacts] = ()  # the functions of the inspected name
    needs_batch: bool = False  # True if it sets `NAME.needs_batch = True`
    imports: Sequence[str] = ()  # top-level names of the modules that it imports
    values: Sequence[ValueFacts] = ()  # values that `function` returns, as far as its source shows them
    reads: Sequence[ReadFacts] = ()  # expressions that read files, as far as the source shows them

    @property
    def function(self) -> FunctionFacts | None:
        """The function that has the name after the file has run: the last one at the top level."""
        return next((function for function in reversed(self.functions) if not function.is_nested), None)


def inspect_file(source: bytes, function: str = "reward") -> FileFacts:
    """Inspect a function of a file in UTF-8, with or without a byte order mark, without running the file.

    The call returns within `TIMEOUT_S`, whatever the file holds: a process with limits of its own compiles it.
    """
    command = [sys.executable, "-I", "-S", "-B", "-W", "ignore", str(_PROGRAM), function]
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=TIMEOUT_S, check=False, env={})
    except subprocess.TimeoutExpired:
        return FileFacts("it takes too long to compile")
    try:
        facts = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        facts = None
    if facts is None:  # the stack, the memory or the time was exhausted
        return FileFacts("it cannot be compiled within the limits of time and memory")
    if (error := facts["error"]) is not None:
        return FileFacts(error["message"] if error["line"] is None else f"line {error['line']}: {error['message']}")
    return FileFacts(
        None,
        tuple(_function(function) for function in facts["functions"]),
        facts["needs_batch"],
        tuple(facts["imports"]),
        tuple(ValueFacts(**value) for value in facts["values"]),
        tuple(ReadFacts(**read) for read in facts["reads"]),
    )


def _function(facts: dict[str, Any]) -> FunctionFacts:
    parameters = [
        inspect.Parameter(
            name, getattr(inspect.Parameter, kind), default=None if has_default else inspect.Parameter.empty
        )
        for name, kind, has_default in facts.pop("parameters")
    ]
    return FunctionFacts(**facts, signature=inspect.Signature(parameters))
