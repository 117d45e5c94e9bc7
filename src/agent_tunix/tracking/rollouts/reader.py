"""Reading of rollouts, one step at a time, from a run that has ended, was killed or is in progress.

Files are found by name. Opening one reads its footer and its column of steps; other data is read on request. A run in
progress adds files, and a resumed run replaces some, so every call lists the directory again.
"""

import contextlib
import itertools
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.rollouts.files import explained, list_files, opened, read_row_group, step_of
from agent_tunix.tracking.rollouts.rows import from_table
from agent_tunix.tracking.rollouts.schema import COLUMNS, ScoringSettings, StoredStep, read_settings

if TYPE_CHECKING:
    import pyarrow as pa

_LOGGER = logging.getLogger("agent_tunix.rollouts")

# Columns that files of older versions lack.
_LATER_COLUMNS = ("episode", "turn_advantages", "sampled_step")

Footers = dict[tuple[Path, int, int], "list[StepPlace]"]


@dataclass(frozen=True, slots=True)
class StepPlace:
    """Position of a step on disk."""

    step: int
    path: Path
    row_group: int
    num_rows: int
    settings: ScoringSettings

    def read(self, columns: Sequence[str]) -> "pa.Table":
        """Return columns of the step, of an older run without those of `_LATER_COLUMNS` that it lacks.

        Raises:
            RunDirectoryError: The file is damaged, or lacks another column.
        """
        with explained(self.path, "read"), opened(self.path) as file:
            table = read_row_group(file, self.row_group, columns)
            there = table.column_names
            return table.select([name for name in columns if name in there or name not in _LATER_COLUMNS])

    def read_step(self, num_rows: int | None = None) -> StoredStep:
        """Return the completions of the step, or only the first ones; raise RunDirectoryError if they are damaged."""
        table = self.read([column.name for column in COLUMNS])
        with explained(self.path, "read"):
            return from_table(table.slice(0, num_rows), self.settings)


class RolloutReader:
    """A reader of the rollouts of a run.

    Args:
        directory: `rollouts/` of the run's directory; if it does not exist, there are no steps.
        skips_damaged: True to leave out files that cannot be read, with a warning, instead of raising an error.
        footers: Footers that were read before, which several readers may share.

    Attributes:
        damaged: Files that were left out so far.
    """

    def __init__(self, directory: Path, *, skips_damaged: bool = False, footers: Footers | None = None) -> None:
        self.directory = directory
        self.damaged: list[Path] = []
        self._skips_damaged = skips_damaged
        self._footers: Footers = {} if footers is None else footers

    def steps(self) -> list[int]:
        """Return the steps that can be read, in order.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        return sorted(self._index())

    def num_completions(self) -> int:
        """Return the number of completions of all steps.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        return sum(place.num_rows for place in self._index().values())

    def read_step(self, step: int) -> StoredStep:
        """Return the completions of a step.

        Raises:
            RunDirectoryError: The step is not stored, or its file is damaged or of a later version.
        """
        index = self._index()
        if step not in index:
            steps = sorted(index)
            there = (
                (f"steps {steps[0]} to {steps[-1]} are available, as far as they were stored")
                if steps
                else "no steps are"
            )
            raise RunDirectoryError(
                f"the rollouts of step {step} are not in {self.directory}; {there}. A running run writes them"
                f" with each checkpoint, and rollouts.share=0 stores none",
                code="invalid_request",
            )
        return index[step].read_step()

    def iterate(
        self,
        steps: Collection[int] | None = None,
        groups: Collection[int] | None = None,
        rollout_ids: Collection[str] | None = None,
    ) -> Iterator[StoredStep]:
        """Yield steps in order, one in memory at a time.

        Args:
            steps: Steps to read; None for all.
            groups: Groups to keep of each step; None for all.
            rollout_ids: Completions to keep; None for all. A step without any is skipped.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        if rollout_ids is not None:
            # Ids are "<step>_<prompt>_<generation>", so other steps need not be read.
            named = {int(first) for first in (name.partition("_")[0] for name in rollout_ids) if first.isdecimal()}
            steps = named if steps is None else named & set(steps)
        wanted = [place for place in self.places() if steps is None or place.step in steps]
        for stored in self._read(wanted):
            if groups is not None or rollout_ids is not None:
                rows = [
                    row
                    for row, sample in enumerate(stored.samples)
                    if (groups is None or sample.group_id in groups)
                    and (rollout_ids is None or sample.rollout_id in rollout_ids)
                ]
                if not rows:
                    continue
                stored = stored.select(rows)
            yield stored

    def tables(self, columns: Sequence[str] | None = None) -> "Iterator[pa.Table]":
        """Yield the table of each step in order; reading only some columns is much faster.

        Args:
            columns: Names of `schema.COLUMNS`, or `components.list.element.value` and the like; None for all.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        for _, table in _read_tables(list(self.places()), columns):
            yield table

    def _read(self, places: Iterable[StepPlace]) -> Iterator[StoredStep]:
        for path, of_file in itertools.groupby(places, key=lambda place: place.path):
            with self.skipping(path):
                yield from _read_steps(of_file)

    @contextlib.contextmanager
    def skipping(self, path: Path) -> Iterator[None]:
        """Leave out a file that turns out to be damaged, if the reader does so."""
        try:
            yield
        except RunDirectoryError as error:
            if not self._skips_damaged:
                raise
            if path not in self.damaged:
                self.damaged.append(path)
                _LOGGER.warning("%s; its completions are left out", error)

    def places(self, first: int = 0, last: int | None = None) -> Iterator[StepPlace]:
        """Yield the positions of the steps of a range in order; only the files of the range are opened.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        files = list_files(self.directory)
        paths = {file.path for file in files}
        for key in [key for key in self._footers if key[0] not in paths]:
            self._footers.pop(key, None)
        for file in files:
            if file.last < first or (last is not None and file.first > last):
                continue
            places: list[StepPlace] = []
            with self.skipping(file.path), explained(file.path, "read"), contextlib.suppress(FileNotFoundError):
                places = self._footer(file.path)  # a resuming run may just have removed it
            for place in places:
                # If two files have the same step, its rows are equal in both: a cut was interrupted.
                if first <= place.step and (last is None or place.step <= last):
                    first = place.step + 1
                    yield place

    def _footer(self, path: Path) -> list[StepPlace]:
        status = path.stat()
        key = (path, status.st_ino, status.st_mtime_ns)
        if key not in self._footers:
            self._footers[key] = _read_footer(path)
        return self._footers[key]

    def _index(self) -> dict[int, StepPlace]:
        """Return the position of each step."""
        return {place.step: place for place in self.places()}


def _read_steps(places: Iterable[StepPlace]) -> Iterator[StoredStep]:
    for place, table in _read_tables(places, None):
        with explained(place.path, "read"):
            stored = from_table(table, place.settings)
        yield stored


def _read_tables(places: Iterable[StepPlace], columns: Sequence[str] | None) -> "Iterator[tuple[StepPlace, pa.Table]]":
    """Yield the tables of some steps; a file is opened once for consecutive steps."""
    for path, of_file in itertools.groupby(places, key=lambda place: place.path):
        with explained(path, "read"), opened(path) as file:
            for place in of_file:
                yield place, read_row_group(file, place.row_group, columns)


def _read_footer(path: Path) -> list[StepPlace]:
    with opened(path) as file:
        settings = read_settings(file.schema_arrow.metadata)
        places = [
            StepPlace(step_of(file, number), path, number, file.metadata.row_group(number).num_rows, settings)
            for number in range(file.num_row_groups)
        ]
    return sorted(places, key=lambda place: place.step)
