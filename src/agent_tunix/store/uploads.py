"""Whether an uploaded file is a reward function, found out without running it.

    trl     def reward(completions, answer=None, **kwargs) -> list[float]
    miles   async def reward(args, sample, **kwargs) -> float

The function stands at the file's top level, and its first line begins with `def reward(` or `async def reward(`.
"""

import hashlib
import inspect
import io
import json
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardError, UploadError
from agent_tunix.store.records import FORMATS, Format

MAX_BYTES = 256 * 1024
TIMEOUT_S = 10.0

_PROGRAM = Path(__file__).with_name("syntax_program.py")
_OPENING = {"trl": "def reward(", "miles": "async def reward("}
_EXAMPLE = {
    "trl": "def reward(completions, answer=None, **kwargs)",
    "miles": "async def reward(args, sample, **kwargs)",
}
# What needs a network, which an uploaded reward does not have.
_NETWORK = ("aiohttp", "httpx", "openai", "requests", "socket", "urllib3", "websockets")


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """A file that is a reward function.

    Attributes:
        source: Its bytes.
        format: How its `reward` is called.
        sha256: Of the bytes, in hexadecimal.
        warnings: What would make it a better reward; each a sentence.
    """

    source: bytes
    format: Format
    sha256: str
    warnings: tuple[str, ...]


def check_upload(source: bytes, format: Format) -> CheckedUpload:
    """Check a file; its code is compiled in a process of its own, and never run.

    Args:
        source: The file: UTF-8, with or without a byte order mark, of at most 256 KB.
        format: How its `reward` is to be called.

    Raises:
        UploadError: It is not such a file. `code` is one of `invalid_format`, `file_too_large`, `empty_file`,
            `invalid_encoding`, `syntax_error`, `no_reward_function`, `wrong_kind` and `invalid_signature`.
    """
    if format not in FORMATS:
        raise UploadError("invalid_format", f"format must be {' or '.join(FORMATS)}, not {format!r}", "format")
    _check_bytes(source)
    facts = _inspect(source)
    function = _find_function(facts["functions"], format)
    _check_signature(function, format)
    return CheckedUpload(source, format, hashlib.sha256(source).hexdigest(), tuple(_advice(function, facts, format)))


def detect_format(source: bytes) -> Format:
    """The format that a file's `reward` has: `miles` if it is async, else `trl`.

    Raises:
        UploadError: As `check_upload`, where the file has no `reward` to tell by.
    """
    _check_bytes(source)
    functions = _inspect(source)["functions"]
    main = [function for function in functions if not function["is_nested"]]
    return "miles" if main and main[-1]["is_async"] else "trl"


def _check_bytes(source: bytes) -> None:
    if len(source) > MAX_BYTES:
        raise UploadError(
            "file_too_large", f"the file has {len(source):,} bytes; at most {MAX_BYTES:,} are kept", "file"
        )
    if not source.strip():
        raise UploadError("empty_file", f"the file is empty; it must have `{_EXAMPLE['trl']}`, for instance", "file")
    try:
        source.decode("utf-8")
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except (UnicodeDecodeError, SyntaxError) as error:
        raise UploadError("invalid_encoding", f"the file is not UTF-8 ({error}); save it as UTF-8", "file") from error
    if encoding not in ("utf-8", "utf-8-sig"):
        raise UploadError("invalid_encoding", f"the file declares that it is {encoding}; save it as UTF-8", "file")
    if b"\0" in source:
        raise UploadError("invalid_encoding", "the file has NUL bytes, so that it is no Python; upload text", "file")


def _inspect(source: bytes) -> Any:
    """What `syntax_program` says of it."""
    command = [sys.executable, "-I", "-S", "-B", "-W", "ignore", str(_PROGRAM)]
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=TIMEOUT_S, check=False, env={})
    except subprocess.TimeoutExpired:
        raise _syntax_error("it takes too long to compile", None) from None
    try:
        facts = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        facts = None
    if facts is None:  # out of stack, memory or time
        raise _syntax_error("it cannot be compiled within the limits of time and memory", None)
    if facts["error"] is not None:
        raise _syntax_error(facts["error"]["message"], facts["error"]["line"])
    return facts


def _syntax_error(message: str, line: int | None) -> UploadError:
    where = "" if line is None else f", line {line}"
    return UploadError("syntax_error", f"the file is not Python that can be compiled{where}: {message}", "file")


def _find_function(functions: Sequence[dict[str, Any]], format: Format) -> dict[str, Any]:
    """The function that the name means once the file has run: the last one at its top level."""
    main = [function for function in functions if not function["is_nested"]]
    if not main:
        inside = [function["line"] for function in functions]
        hint = f"; the one in line {inside[0]} is inside of something else" if inside else ""
        raise UploadError("no_reward_function", f"the file has no `{_OPENING[format]}` at its top level{hint}", "file")
    found = main[-1]
    line = found["line"]
    if found["is_async"] != (format == "miles"):
        kind, other = ("async", "miles") if found["is_async"] else ("not async", "trl")
        raise UploadError(
            "wrong_kind",
            f"line {line}: `reward` is {kind}, which a {format} function is not; write `{_EXAMPLE[format]}`, or"
            f" upload it as {other}",
            "format",
        )
    if not found["is_literal"]:
        raise UploadError(
            "no_reward_function", f"line {line} must begin with `{_OPENING[format]}` to the letter", "file"
        )
    if found["is_generator"]:
        raise UploadError(
            "wrong_kind", f"line {line}: `reward` is a generator; return the value or values rather than yield", "file"
        )
    return found


def _check_signature(function: dict[str, Any], format: Format) -> None:
    """Whether the convention can call it; what it means is known to the rewards' own conventions."""
    from agent_tunix.rewards.conventions import Settings, adapt, detect

    stand_in = _stand_in(function)
    line = function["line"]
    try:
        detected = detect(stand_in, "reward", format)
        if detected == format:
            adapt(stand_in, "reward", settings=Settings(convention=format))
    except RewardError as error:
        raise UploadError("invalid_signature", f"line {line}: {error}", "file") from error
    if detected != format:
        shown = inspect.signature(stand_in)
        raise UploadError(
            "invalid_signature",
            f"line {line}: `reward{shown}` cannot be called as {format} functions are; write `{_EXAMPLE[format]}`",
            "file",
        )


def _stand_in(function: dict[str, Any]) -> Any:
    """A function of the same kind and parameters, which does nothing."""

    def plain() -> None: ...

    async def awaited() -> None: ...

    parameters = [
        inspect.Parameter(
            name, getattr(inspect.Parameter, kind), default=None if has_default else inspect.Parameter.empty
        )
        for name, kind, has_default in function["parameters"]
    ]
    chosen: Any = awaited if function["is_async"] else plain
    chosen.__signature__ = inspect.Signature(parameters)
    return chosen


def _advice(function: dict[str, Any], facts: dict[str, Any], format: Format) -> Iterator[str]:
    """What is known to make rewards teach better, where the file can be seen not to do it."""
    if not any(kind == "VAR_KEYWORD" for _, kind, _ in function["parameters"]):
        yield f"line {function['line']}: `reward` takes no **kwargs, so that trainers which pass more cannot call it"
    values = facts["values"]
    constants = {value["number"] for value in values if value["kind"] == "constant"}
    if values and all(value["kind"] in ("constant", "truth") for value in values) and constants <= {0.0, 1.0}:
        yield (
            "every score is 0 or 1: give partial credit for what is partly right, or the groups in which all"
            " completions fail teach nothing"
        )
    for value in values:
        if value["kind"] == "constant" and abs(value["number"]) > 1:
            yield f"line {value['line']}: a score of {value['number']:g} is beyond -1 to 1; keep scores bounded"
        elif value["kind"] == "length":
            yield f"line {value['line']}: a score that is a length has no bound; divide it by a limit and cut it off"
    for module in facts["imports"]:
        if module in _NETWORK:
            yield f"it imports {module}; uploaded rewards run without a network"
