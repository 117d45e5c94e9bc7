"""`metrics.jsonl`: one JSON object per step, written immediately and atomically.

`write` returns after the operating system has the row, so a killed run loses none. At worst its last line is
incomplete; reading skips that line and `cut_after` removes it. A resumed run first removes the rows after its
checkpoint. A step's row is written before its checkpoint, so that this loses nothing.
"""

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

from agent_tunix.atomic_files import replacing
from agent_tunix.closing import Closing
from agent_tunix.errors import RunDirectoryError

_LOGGER = logging.getLogger("agent_tunix.run")
WRITING_REMEDY = "free some space or correct the permissions, then resume with training.resume=true"
READING_REMEDY = "give the directory of a run, and check that its files are readable"


class MetricsFile(Closing):
    """A writer that appends rows to a `metrics.jsonl`.

    Args:
        path: The file; created if it does not exist.

    Raises:
        RunDirectoryError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with _explained(path, "opened"):
            self._directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._file = self._open()

    def _open(self) -> FileIO:
        file = open(self._path, "ab", buffering=0)  # noqa: SIM115  (closed by close)
        os.fsync(self._directory)
        return file

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append the row of a step: `step` first, then the metrics by name; non-finite values become null.

        Raises:
            RunDirectoryError: The disk is full, the directory has been removed or moved, or the file cannot be written
                for another reason.
        """
        self._find_again()
        row = {"step": step} | dict(sorted(to_plain(metrics).items()))
        line = json.dumps(row, allow_nan=False).encode() + b"\n"
        with _explained(self._path, "written"):
            size = os.fstat(self._file.fileno()).st_size
            try:
                while line:  # a disk that fills up accepts part of a line before it refuses the rest
                    line = line[self._file.write(line) :]
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)
                raise

    def sync(self) -> None:
        """Flush all rows to the device, so that a power cut loses none of them.

        Raises:
            RunDirectoryError: The disk is full or fails, or the directory has been removed or moved.
        """
        self._find_again()
        with _explained(self._path, "written"):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; another call does nothing."""
        if not self._file.closed:
            self._file.close()
            os.close(self._directory)

    def _find_again(self) -> None:
        """Begin a new file if somebody has removed this one; refuse to go on without its directory."""
        if not _is_at(self._path.parent, self._directory):
            raise RunDirectoryError(
                f"{self._path.parent} was removed or moved while the run was writing to it; start the run again, or "
                "move the directory back and resume with training.resume=true",
                code="unwritable_directory",
            )
        if not _is_at(self._path, self._file.fileno()):
            _LOGGER.warning("%s was removed or replaced; its earlier rows are lost, and a new file begins", self._path)
            self._file.close()
            with _explained(self._path, "opened"):
                self._file = self._open()


def _is_at(path: Path, descriptor: int) -> bool:
    """Return True if a path still leads to an open file or directory."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a `metrics.jsonl`; an incomplete last line is left out.

    Raises:
        RunDirectoryError: The file cannot be read, or a line before the last is not a row.
    """
    return list(iterate_rows(path))


def iterate_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `metrics.jsonl`, one in memory at a time; an incomplete last line is left out.

    Raises:
        RunDirectoryError: The file cannot be read, or a line before the last is not a row.
    """
    with _explained(path, "read", READING_REMEDY), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            row = parse_row(line)
            if isinstance(row, Exception):
                if not file.readline(1):  # the last line may be incomplete
                    return
                raise RunDirectoryError(
                    f"each line of {path} must be a JSON object with a step, but line {number} is not ({row}); "
                    "remove that line, or start a new run in another directory",
                    code="damaged_run",
                ) from row
            yield row


def cut_after(path: Path, step: int) -> None:
    """Remove the rows of later steps, and lines that are no rows, as a kill or a power cut may leave.

    The file is replaced atomically: after a kill at any moment, it is either the old or the new one.

    Args:
        path: The file; it need not exist.
        step: Last step to keep; -1 removes every row.

    Raises:
        RunDirectoryError: The file cannot be read or replaced.
    """
    if not path.exists():
        return
    with _explained(path, "read", READING_REMEDY), path.open("rb") as file:
        lines = [(line, parse_row(line)) for line in file]
    kept = [line for line, row in lines if not isinstance(row, Exception) and row["step"] <= step]
    with _explained(path, "replaced"), replacing(path) as file:
        file.writelines(line.rstrip(b"\n") + b"\n" for line in kept)


def remove_metrics(path: Path, step: int, prefixes: tuple[str, ...]) -> None:
    """Remove the metrics whose names begin with one of the prefixes from the row of a step; the file is replaced.

    Raises:
        RunDirectoryError: The file cannot be read or replaced, or a line before the last is not a row.
    """
    rows = [
        {name: value for name, value in row.items() if row["step"] != step or not name.startswith(prefixes)}
        for row in read_rows(path)
    ]
    with _explained(path, "replaced"), replacing(path) as file:
        file.writelines(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)


def missing_steps(path: Path, last: int) -> list[int]:
    """Return the steps from 0 to `last` without a row in a `metrics.jsonl`, which need not exist.

    Raises:
        RunDirectoryError: The file cannot be read, or a line before the last is not a row.
    """
    found = {row["step"] for row in read_rows(path)} if path.exists() else set()
    return [step for step in range(last + 1) if step not in found]


def parse_row(line: bytes) -> dict[str, Any] | Exception:
    """Return the row of a line, or the reason why it is none."""
    try:
        row = json.loads(line)
    except ValueError as error:
        return error
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        return ValueError("it is not an object with a step")
    return row


@contextlib.contextmanager
def _explained(path: Path, verb: str, remedy: str = WRITING_REMEDY) -> Iterator[None]:
    try:
        yield
    except RunDirectoryError:  # also an OSError, and already explained
        raise
    except OSError as error:
        code = "damaged_run" if verb == "read" else "unwritable_directory"
        raise RunDirectoryError(f"{path} could not be {verb}: {error.strerror}; {remedy}", code=code) from error


def to_plain(value: Any) -> Any:
    """Convert a metric to a value that JSON can hold.

    Arrays and scalars of NumPy, JAX and similar libraries become lists and numbers. Non-finite floats become None.
    Mappings, lists and tuples are converted recursively.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def is_histogram(value: Any) -> bool:
    """Return True if a plain value is a histogram: `{"counts": [n], "edges": [n + 1]}`, all of them numbers."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"counts", "edges"}
        and len(value["edges"]) == len(value["counts"]) + 1 > 1
        and None not in value["edges"]
    )


def is_number(value: Any) -> bool:
    """Return True if a plain value is a number, or a bool, which counts as 0 or 1."""
    return isinstance(value, int | float)
