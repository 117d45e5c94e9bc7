"""Files of a run's rollouts: their names, and how they are written atomically.

    rollouts/
      step_000001-000020.parquet     one row group for each step
      step_000021-000040.parquet
      .step_000041.partial           in progress; not readable until renamed

A file gets its final name when it is complete and on disk, so any file with such a name can be read in full.
"""

import contextlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.atomic_files import make_directory, sync
from agent_tunix.errors import RunDirectoryError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_LOGGER = logging.getLogger("agent_tunix.rollouts")
_NAME = re.compile(r"step_(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, order=True, slots=True)
class RolloutFile:
    """A complete file, with its first and last step."""

    first: int
    last: int
    path: Path


def list_files(directory: Path) -> list[RolloutFile]:
    """Return the complete files of a directory, which need not exist, sorted by step."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if match := _NAME.fullmatch(entry.name):
                found.append(RolloutFile(int(match[1]), int(match[2]), Path(entry.path)))
    return sorted(found)


class FileInProgress:
    """A file that is being written.

    Args:
        directory: Directory of the file; created if it does not exist.
        schema: Schema of the tables that `add` will get.
        first: Number of the first step.

    Raises:
        OSError: The disk is full, or the directory cannot be written.
    """

    def __init__(self, directory: Path, schema: "pa.Schema", first: int) -> None:
        import pyarrow.parquet as pq

        make_directory(directory)
        self._directory = directory
        self._first = self._last = first
        self._partial = directory / f".step_{first:06d}.partial"
        self.num_rows = 0
        self._file = open(self._partial, "wb")  # noqa: SIM115  (closed by finish or discard)
        try:
            self._writer: pq.ParquetWriter = pq.ParquetWriter(self._file, schema, compression="zstd")
        except BaseException:
            self.discard()
            raise

    @property
    def num_bytes(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def add(self, step: int, table: "pa.Table") -> None:
        """Write the rows of a step as one row group."""
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._last = step
        self.num_rows += table.num_rows

    def finish(self) -> Path:
        """Flush the file to disk and give it its final name.

        Raises:
            OSError: The disk is full; the file has been removed.
        """
        final = self._directory / f"step_{self._first:06d}-{self._last:06d}.parquet"
        try:
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._partial, final)
        except BaseException:
            self.discard()
            raise
        sync(self._directory)
        return final

    def discard(self) -> None:
        """Remove the unfinished file; never fails."""
        with contextlib.suppress(Exception):
            self._writer.close()
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


def cut_after(directory: Path, step: int) -> None:
    """Remove the rollouts of later steps, and the unfinished files of a killed run.

    A file that also has earlier steps is replaced by one with only these. If the process is killed in between, both
    files exist, with the same rows for the same steps. A reader takes each step once, and the next cut leaves one.
    A damaged file is removed with a warning: a run does not need its rollouts to resume.

    Args:
        directory: Directory of the rollouts; it need not exist.
        step: Last step to keep; -1 removes everything.

    Raises:
        RunDirectoryError: A file cannot be read, written or removed.
    """
    if not directory.is_dir():
        return
    with explained(directory, "cut"):
        for partial in directory.glob(".step_*.partial"):
            partial.unlink()
        for file in list_files(directory):
            if file.last <= step:
                continue
            if file.first <= step:
                _keep_until_or_warn(file, step)
            file.path.unlink()
        sync(directory)


def _keep_until_or_warn(file: RolloutFile, step: int) -> None:
    try:
        with explained(file.path, "read"), opened(file.path) as source:
            for number in range(source.num_row_groups):
                if step_of(source, number) <= step:
                    read_row_group(source, number)
    except RunDirectoryError as error:
        _LOGGER.warning("%s; the completions of steps %d to %d are lost", error, file.first, step)
        return
    _keep_until(file, step)


def _keep_until(file: RolloutFile, step: int) -> None:
    with opened(file.path) as source:
        kept = [number for number in range(source.num_row_groups) if step_of(source, number) <= step]
        if not kept:
            return
        target = FileInProgress(file.path.parent, source.schema_arrow, step_of(source, kept[0]))
        try:
            for number in kept:
                target.add(step_of(source, number), read_row_group(source, number))
        except BaseException:
            target.discard()
            raise
        target.finish()


def read_row_group(file: "pq.ParquetFile", row_group: int, columns: Sequence[str] | None = None) -> "pa.Table":
    """Read columns of a row group; None reads all of them.

    In this thread: a thread of PyArrow's own may end the process with SIGABRT, if it starts at exit.
    """
    return file.read_row_group(row_group, None if columns is None else list(columns), use_threads=False)


def step_of(file: "pq.ParquetFile", row_group: int) -> int:
    """Return the step of a row group, read from its rows.

    The footer's statistics also have it, but if they are damaged, PyArrow ends the process.

    Raises:
        ValueError: The row group does not hold exactly one step.
    """
    found = read_row_group(file, row_group, ["step"])["step"].unique().to_pylist()
    if len(found) != 1 or not isinstance(found[0], int) or found[0] < 0:
        raise ValueError(f"row group {row_group} contains several steps")
    return found[0]


@contextlib.contextmanager
def opened(path: Path) -> "Iterator[pq.ParquetFile]":
    """Open a file for reading."""
    import pyarrow.parquet as pq

    # PyArrow itself opens no path that is not valid Unicode.
    with path.open("rb") as stream, pq.ParquetFile(stream) as file:
        yield file


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn an error about a file into one that names the file and the remedy.

    Raises:
        RunDirectoryError: The block raised an error that a damaged, full or forbidden file causes.
    """
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RunDirectoryError(
            f"the rollouts {path} could not be {verb}: {said}; restore or remove damaged files, and check the "
            "permissions and the free disk space",
            code="damaged_run",
        ) from error
