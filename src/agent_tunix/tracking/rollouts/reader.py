"""Rollouts from the disk, one step at a time: of a run that ended, was killed, or is still going.

A file is found by its name and each step in it by the footer; nothing else is read until it is asked for. A run that is
still going adds files, and one that is resumed replaces some: every call looks at what lies there now.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.rollouts.files import explained, list_files, opened, read_row_group, step_of
from agent_tunix.tracking.rollouts.rows import from_table
from agent_tunix.tracking.rollouts.schema import ScoringSettings, StoredStep, read_settings

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a step lies."""

    path: Path
    row_group: int
    num_rows: int
    settings: ScoringSettings


class RolloutReader:
    """Reads the rollouts of a run.

    Args:
        directory: `rollouts/` of the run's directory; it need not exist, and then holds no steps.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._footers: dict[tuple[Path, int, int], dict[int, _Place]] = {}

    def steps(self) -> list[int]:
        """The steps that can be read, in order.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        return sorted(self._index())

    def num_completions(self) -> int:
        """Completions of all steps.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        return sum(place.num_rows for place in self._index().values())

    def read_step(self, step: int) -> StoredStep:
        """The completions of a step.

        Raises:
            RunDirectoryError: The step is not there, or its file is damaged or of a later version.
        """
        index = self._index()
        if step not in index:
            steps = sorted(index)
            there = f"steps {steps[0]} to {steps[-1]} are, as far as they were stored" if steps else "no step is"
            raise RunDirectoryError(
                f"the rollouts of step {step} are not in {self.directory}; {there}. A run that is going writes them"
                f" with each checkpoint, and rollouts.share=0 stores none",
                code="missing_step",
            )
        (stored,) = _read_steps([index[step]])
        return stored

    def iterate(
        self,
        steps: Collection[int] | None = None,
        groups: Collection[int] | None = None,
        rollout_ids: Collection[str] | None = None,
    ) -> Iterator[StoredStep]:
        """Steps in order, one in memory at a time.

        Args:
            steps: Only these; None for all.
            groups: Of each step only these groups.
            rollout_ids: Only these completions; a step of which none is left is passed over.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        if rollout_ids is not None:
            # "<step>_<prompt>_<generation>": other steps need not be read.
            named = {int(first) for first in (name.partition("_")[0] for name in rollout_ids) if first.isdecimal()}
            steps = named if steps is None else named & set(steps)
        wanted = [place for step, place in sorted(self._index().items()) if steps is None or step in steps]
        for stored in _read_steps(wanted):
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
        """The table of each step, in order; only some columns, which is much faster than whole rollouts.

        Args:
            columns: Names of `schema.COLUMNS`, or `components.list.element.value` and the like; None for all.

        Raises:
            RunDirectoryError: A file is damaged, or of a later version.
        """
        for _, table in _read_tables([place for _, place in sorted(self._index().items())], columns):
            yield table

    def _index(self) -> dict[int, _Place]:
        """Step → where it lies."""
        index: dict[int, _Place] = {}
        footers: dict[tuple[Path, int, int], dict[int, _Place]] = {}
        for found in list_files(self.directory):
            with explained(found.path, "read"):
                try:
                    status = found.path.stat()
                    key = (found.path, status.st_ino, status.st_mtime_ns)
                    footers[key] = self._footers[key] if key in self._footers else _read_footer(found.path)
                except FileNotFoundError:  # a run that resumes has just cut it
                    continue
            # A step that two files have is the same in both: cutting one in two was interrupted.
            index = footers[key] | index
        self._footers = footers
        return index


def _read_steps(places: Iterable[_Place]) -> Iterator[StoredStep]:
    for place, table in _read_tables(places, None):
        with explained(place.path, "read"):
            stored = from_table(table, place.settings)
        yield stored


def _read_tables(places: Iterable[_Place], columns: Sequence[str] | None) -> "Iterator[tuple[_Place, pa.Table]]":
    """The tables of some steps, each file opened once as long as its steps follow each other."""
    for path, of_file in itertools.groupby(places, key=lambda place: place.path):
        with explained(path, "read"), opened(path) as file:
            for place in of_file:
                yield place, read_row_group(file, place.row_group, columns)


def _read_footer(path: Path) -> dict[int, _Place]:
    with opened(path) as file:
        settings = read_settings(file.schema_arrow.metadata)
        return {
            step_of(file, number): _Place(path, number, file.metadata.row_group(number).num_rows, settings)
            for number in range(file.num_row_groups)
        }
