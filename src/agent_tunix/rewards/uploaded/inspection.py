"""What stands in a file that may not be run here, found out by `program` in a process of its own."""

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
    """A function called `reward`.

    Attributes:
        is_async: Whether it is written `async def`.
        line: Where its `def` stands, from 1.
        is_literal: Whether that begins with `def reward(` or `async def reward(` to the letter.
        is_generator: Whether it yields.
        is_nested: Whether it is inside of something else, so that the file's name `reward` is not it.
        signature: Its parameters; those with a default have None.
        doc: Its docstring.
    """

    is_async: bool
    line: int
    is_literal: bool
    is_generator: bool
    is_nested: bool
    signature: inspect.Signature
    doc: str | None


@dataclass(frozen=True, slots=True)
class ValueFacts:
    """Something that `reward` returns, or makes part of what it returns.

    Attributes:
        kind: `constant`, `truth` (a comparison), `length` or `other`.
        number: Of a constant.
        line: Where it stands.
    """

    kind: str
    number: float
    line: int


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file of Python.

    Attributes:
        error: Why it cannot be compiled; None if it can.
        functions: Those called `reward`.
        needs_batch: Whether it says `reward.needs_batch = True`.
        imports: Top-level names of the modules that it imports.
        values: Of the one that the name means, as far as they can be read off.
    """

    error: str | None
    functions: Sequence[FunctionFacts] = ()
    needs_batch: bool = False
    imports: Sequence[str] = ()
    values: Sequence[ValueFacts] = ()

    @property
    def function(self) -> FunctionFacts | None:
        """The one that the name means once the file has run: the last at its top level."""
        return next((function for function in reversed(self.functions) if not function.is_nested), None)


def inspect_file(source: bytes) -> FileFacts:
    """Look into a file without running it.

    Whatever the file is, this returns within `TIMEOUT_S`: the compiler works in a process with limits of its own.

    Args:
        source: UTF-8, with or without a byte order mark.
    """
    command = [sys.executable, "-I", "-S", "-B", "-W", "ignore", str(_PROGRAM)]
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=TIMEOUT_S, check=False, env={})
    except subprocess.TimeoutExpired:
        return FileFacts("it takes too long to compile")
    try:
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        said = None
    if said is None:  # out of stack, memory or time
        return FileFacts("it cannot be compiled within the limits of time and memory")
    if (error := said["error"]) is not None:
        return FileFacts(error["message"] if error["line"] is None else f"line {error['line']}: {error['message']}")
    return FileFacts(
        None,
        tuple(_function(function) for function in said["functions"]),
        said["needs_batch"],
        tuple(said["imports"]),
        tuple(ValueFacts(**value) for value in said["values"]),
    )


def _function(said: dict[str, Any]) -> FunctionFacts:
    parameters = [
        inspect.Parameter(
            name, getattr(inspect.Parameter, kind), default=None if has_default else inspect.Parameter.empty
        )
        for name, kind, has_default in said.pop("parameters")
    ]
    return FunctionFacts(**said, signature=inspect.Signature(parameters))
