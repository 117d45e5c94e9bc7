"""Validation of an uploaded reward function, without running it.

    trl     def reward(completions, answer=None, **kwargs) -> list[float]
    miles   async def reward(args, sample, **kwargs) -> float

The function must be at the top level. In these two formats, the first line of `reward` must start with `def reward(` or
`async def reward(`. Functions of other names and of the other conventions of `rewards.conventions` are stored as well.
"""

import hashlib
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError, UploadError
from agent_tunix.rewards.conventions import CallSettings, adapt
from agent_tunix.rewards.conventions.detection import fitting
from agent_tunix.rewards.uploaded import FileFacts, FunctionFacts, inspect_file
from agent_tunix.store.records import FORMATS, Format

MAX_BYTES = 256 * 1024
REWARD = "reward"

_OPENING = {"trl": "def reward(", "miles": "async def reward("}
_EXAMPLE = {
    "trl": "def reward(completions, answer=None, **kwargs)",
    "miles": "async def reward(args, sample, **kwargs)",
}
# Modules that need a network, which an uploaded reward does not have.
_NETWORK = ("aiohttp", "httpx", "openai", "requests", "socket", "urllib3", "websockets")
_MOST_READS = 3
HIDDEN_FILES = (
    "an uploaded reward sees no files but Python's libraries and those that it writes; put the content into this file,"
    " or into columns of the data"
)


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A file that is a valid reward function."""

    source: bytes
    format: Format  # calling convention of the function
    sha256: str  # hash of the bytes, in hexadecimal
    warnings: tuple[str, ...]


def check_upload(source: bytes, format: Format, function: str = REWARD) -> CheckedUpload:
    """Check a file; its code is compiled in a separate process, and never run.

    Args:
        source: The file: UTF-8, with or without a byte order mark, at most 256 KB.
        format: Calling convention of the function.
        function: Name of the function.

    Raises:
        UploadError: The file is not valid. `code` is one of `invalid_format`, `file_too_large`, `empty_file`,
            `invalid_encoding`, `syntax_error`, `no_reward_function`, `wrong_kind` and `invalid_signature`.
    """
    if format not in FORMATS:
        raise UploadError("invalid_format", f"format must be {' or '.join(FORMATS)}, not {format!r}", "format")
    _check_bytes(source)
    facts = _inspect(source, function)
    found = _find_function(facts, format, function)
    _check_signature(found, format, function)
    digest = hashlib.sha256(source).hexdigest()
    return CheckedUpload(source, format, digest, tuple(_advice(found, facts, format, function)))


def detect_format(source: bytes, function: str = REWARD) -> Format:
    """Return the format that the parameters of a function fit; if none or several do, `miles` if it is async, or `trl`.

    Raises:
        UploadError: The file is too large, empty, not UTF-8, or not valid Python.
    """
    _check_bytes(source)
    facts = _inspect(source, function).function
    if facts is None:
        return "trl"
    fits = [name for name in _fitting(facts) if name in FORMATS]
    if len(fits) == 1:
        return fits[0]
    return "miles" if facts.is_async else "trl"


def _fitting(facts: FunctionFacts) -> list[str]:
    parameters = facts.signature.parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    return fitting(names, _takes_any(facts))


def _takes_any(facts: FunctionFacts) -> bool:
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in facts.signature.parameters.values())


def _check_bytes(source: bytes) -> None:
    if len(source) > MAX_BYTES:
        raise UploadError(
            "file_too_large", f"the file must have at most {MAX_BYTES:,} bytes, not {len(source):,}", "file"
        )
    if not source.strip():
        raise UploadError(
            "empty_file", f"the file must define `reward`, but is empty; add, for example, `{_EXAMPLE['trl']}`", "file"
        )
    try:
        source.decode("utf-8")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except (UnicodeDecodeError, SyntaxError) as error:
        raise UploadError(
            "invalid_encoding", f"the file must be UTF-8, but is not ({error}); save it as UTF-8", "file"
        ) from error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise UploadError(
            "invalid_encoding", f"the file must be UTF-8, but declares {encoding}; save it as UTF-8", "file"
        )
    if b"\0" in source:
        raise UploadError("invalid_encoding", "the file must be Python source, but has NUL bytes; upload text", "file")


def _inspect(source: bytes, function: str) -> FileFacts:
    facts = inspect_file(source, function)
    if facts.error is not None:
        raise UploadError(
            "syntax_error", f"the file must be Python source, but cannot be compiled: {facts.error}", "file"
        )
    return facts


def _find_function(facts: FileFacts, format: Format, name: str) -> FunctionFacts:
    """Return the function that has the name once the file has run."""
    found = facts.function
    opening = _OPENING.get(format, f"def {name}(") if name == REWARD else f"def {name}("
    if found is None:
        hint = f"; the one in line {facts.functions[0].line} is nested" if facts.functions else ""
        raise UploadError(
            "no_reward_function", f"the file must have `{opening}` at its top level, but does not{hint}", "file"
        )
    if name == REWARD and format in _OPENING:
        if found.is_async != (format == "miles"):
            kind, needed, other = ("async", "not async", "miles") if found.is_async else ("not async", "async", "trl")
            raise UploadError(
                "wrong_kind",
                f"line {found.line}: a {format} function must be {needed}, but `reward` is {kind}; write "
                f"`{_EXAMPLE[format]}`, or upload it as {other}",
                "format",
            )
        if not found.is_literal:
            raise UploadError("no_reward_function", f"line {found.line} must begin exactly with `{opening}`", "file")
    if found.is_generator:
        raise UploadError(
            "wrong_kind",
            f"line {found.line}: `{name}` is a generator; return the values instead of yielding them",
            "file",
        )
    return found


def _check_signature(function: FunctionFacts, format: Format, name: str) -> None:
    """Check with the rewards' own adapters that the convention can call the function."""
    line, example = function.line, _EXAMPLE.get(format, _EXAMPLE["trl"])
    try:
        convention = adapt(_stand_in(function), name, settings=CallSettings(convention=format)).convention
    except RewardError as error:
        raise UploadError("invalid_signature", f"line {line}: {error}", "file") from error
    if convention != format or not (_takes_any(function) or format in _fitting(function)):
        raise UploadError(
            "invalid_signature",
            f"line {line}: `{name}{function.signature}` cannot be called with the arguments of {format} functions; "
            f"write `{example}`",
            "file",
        )


def _stand_in(function: FunctionFacts) -> Any:
    """Return a function of the same kind and signature that does nothing."""

    def plain() -> None: ...

    async def awaited() -> None: ...

    chosen: Any = awaited if function.is_async else plain
    chosen.__signature__ = function.signature
    return chosen


def _advice(function: FunctionFacts, facts: FileFacts, format: Format, name: str) -> Iterator[str]:
    """Yield advice that improves training and that the file visibly does not follow."""
    if format in _OPENING and not any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in function.signature.parameters.values()
    ):
        yield f"line {function.line}: `{name}` takes no **kwargs, so trainers that pass more arguments cannot call it"
    constants = {value.number for value in facts.values if value.kind == "constant"}
    if facts.values and all(value.kind in ("constant", "truth") for value in facts.values) and constants <= {0.0, 1.0}:
        yield (
            "every score is 0 or 1; give partial credit for partly right answers, because a group in which all "
            "completions fail teaches nothing"
        )
    if constants and max(constants) <= 0.0 > min(constants) and all(v.kind == "constant" for v in facts.values):
        yield (
            "every score is 0 or below, as that of a penalty; measure the fault from 0 to 1 and give the component a"
            " negative weight and a `reason`, so that reports show what it costs and why"
        )
    for value in facts.values:
        if value.kind == "constant" and abs(value.number) > 1:
            yield f"line {value.line}: a score of {value.number:g} is outside -1 to 1; keep scores bounded"
        elif value.kind == "length":
            yield f"line {value.line}: a score that is a length has no bound; divide it by a limit and clip it"
    for module in facts.imports:
        if module in _NETWORK:
            yield f"it imports {module}; uploaded rewards run without a network"
    for read in facts.reads[:_MOST_READS]:
        yield f"line {read.line}: `{read.code}` reads a file, but {HIDDEN_FILES}"
