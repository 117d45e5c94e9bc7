"""A run on disk, as Python and notebooks see it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config


class Run:
    """A run that has ended, was stopped, or is in progress.

    Args:
        directory: Directory of the run.

    Raises:
        RunDirectoryError: It is not the directory of a run.
    """

    def __init__(self, directory: str | Path) -> None:
        from agent_tunix.tracking.stored_run import StoredRun

        self._stored = StoredRun(Path(directory).expanduser().absolute())

    @property
    def directory(self) -> Path:
        """The directory of the run."""
        return self._stored.root

    @property
    def config(self) -> "Config":
        """The configuration that the run was started with."""
        return self._stored.config

    @property
    def metrics(self) -> Any:
        """The rows of `metrics.jsonl`, one a step: a data frame of pandas if it is installed, else an Arrow table."""
        return _to_frame(self._stored.rows)

    def __repr__(self) -> str:
        return f"Run({str(self.directory)!r})"


def open_run(directory: str | Path) -> Run:
    """Return the run of a directory; raise RunDirectoryError if it is none."""
    return Run(directory)


def _to_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        import pandas
    except ImportError:
        import pyarrow as pa

        return pa.table(columns)
    return pandas.DataFrame(columns)
