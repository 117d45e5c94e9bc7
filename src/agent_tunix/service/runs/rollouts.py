"""Pages of a run's rollouts. There may be millions of them, but a page reads little more than it shows.

File names tell the steps of a file, and footers tell the size of each step. The columns that decide which rows of a
step match are read first, and the shown columns only if rows match. The reading for a page is limited: if few rows
match, a page may be short or empty and still have a next page.
"""

import contextlib
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_tunix.service.runs.files import open_plain, plain_status
from agent_tunix.service.runs.queries import Position, RolloutQuery, read_cursor, write_cursor
from agent_tunix.service.runs.selection import EPISODE_COLUMNS, SHOWN_IN_FULL, Reading, choose, read, show
from agent_tunix.tracking.rollouts.files import RolloutFile, list_files, step_of
from agent_tunix.tracking.rollouts.rows import from_table
from agent_tunix.tracking.rollouts.schema import COLUMNS, StoredStep, arrow_type, read_settings

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BUDGET_BYTES = 128 * 2**20
_BUDGET_STEPS = 500
# Largest page of a list, and of the completions of one prompt, before they are written as JSON or HTML.
_PAGE_BYTES = 16 * 2**20
_GROUP_BYTES = 64 * 2**20
_FOOTERS = 256
_MOST_SHARED = 100
# Errors of reading columns and converting their values if a file is damaged.
_DAMAGE = (OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class RolloutPage:
    """Page of completions."""

    rows: list[dict[str, Any]]  # rows with the columns of `SHOWN` or `SHOWN_IN_FULL`; `components` is a list of objects
    next: str | None  # cursor of the next page; None if there is none
    problems: list[str]  # files and completions that were left out, and why


@dataclass(frozen=True)
class SharedPrompt:
    """Prompt that two steps share, with its group in each."""

    prompt: str
    group: int
    other_group: int


class StoredRollouts:
    """Stored completions in a run's `rollouts/`, which need not exist; thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._footers: OrderedDict[tuple[int, int, int], dict[int, int]] = OrderedDict()

    def span(self) -> tuple[int, int] | None:
        """Return the first and the last stored step; None if there are none."""
        files = self._files()
        return (files[0].first, max(file.last for file in files)) if files else None

    def page(
        self,
        query: RolloutQuery,
        limit: int = 20,
        after: str | None = None,
        reading: Reading | None = None,
        in_full: bool = False,
        most_bytes: int = _PAGE_BYTES,
    ) -> RolloutPage:
        """Return a page of at most `limit` completions and `most_bytes` bytes that match a query.

        `after` is the `next` of the previous page, `reading` counts the data read, and `in_full` selects
        `SHOWN_IN_FULL`. A completion that is larger than a page is left out and described in `problems`.

        Raises:
            Problem: The cursor is not from a page of this query.
        """
        start = None if after is None else read_cursor(query, after)
        reading = reading or Reading()
        rows: list[dict[str, Any]] = []
        steps = self._steps(query.step, start.step if start else None, reading)
        for looked_at, (file, source, step, place) in enumerate(steps):
            if looked_at and (looked_at >= _BUDGET_STEPS or reading.num_bytes >= _BUDGET_BYTES):
                return RolloutPage(rows, write_cursor(query, Position(step, None, -1)), reading.problems)
            with _told(file, reading):
                here = start if start and start.step == step and start.row >= 0 else None
                wanted, keys = choose(source, place, query, here, reading)
                shown, done = show(source, place, wanted[: limit - len(rows)], in_full, reading, most_bytes)
                rows += shown
                if len(rows) >= limit or done < len(wanted):
                    if done == len(wanted) and not self._has_after(step, query):
                        break
                    last = int(wanted[done - 1]) if done else -1
                    key = float(keys[last]) if done else np.nan
                    position = Position(step, None if np.isnan(key) else key, last)
                    return RolloutPage(rows, write_cursor(query, position), reading.problems)
        return RolloutPage(rows, None, reading.problems)

    def group(self, step: int, group: int, reading: Reading | None = None, in_full: bool = False) -> RolloutPage:
        """Return the completions of one prompt of a step, in the order in which they were scored."""
        page = self.page(RolloutQuery(step=step, group=group), 10_000, None, reading, in_full, _GROUP_BYTES)
        if page.next is not None:
            page.problems.append(
                f"further completions of group {group} of step {step} are left out: they are too large"
            )
        return page

    def groups(self, step: int) -> list[int]:
        """Return the stored groups of a step, in order."""
        reading = Reading()
        for file, source, _, place in self._steps(step, None, reading):
            with _told(file, reading):
                return [int(group) for group in np.unique(read(source, place, ["group"], reading)["group"].to_numpy())]
        return []

    def scored_step(self, first: int, most: int, reading: Reading) -> tuple[StoredStep, int] | None:
        """Return the first stored step from `first` on, with its stored scores and its number of completions.

        At most `most` completions are taken: the first whole groups, at least one. `reading` collects problems. Return
        None if there is no such step.
        """
        for file, source, _, place in self._steps(None, first, reading):
            with _told(file, reading):
                table = read(source, place, [column.name for column in COLUMNS], reading)
                settings = read_settings(source.schema_arrow.metadata)
                group_size = max(settings.num_generations, 1)
                taken = table.slice(0, max(most // group_size, 1) * group_size)
                return from_table(taken, settings), table.num_rows
        return None

    def shared_prompts(self, step: int, other: int) -> tuple[list[SharedPrompt], list[str]]:
        """Return the prompts that two steps share, and descriptions of what could not be read."""
        reading = Reading()
        first, second = (self._prompts(one, reading) for one in (step, other))
        shared = [SharedPrompt(prompt, group, second[prompt]) for prompt, group in first.items() if prompt in second]
        return shared[:_MOST_SHARED], reading.problems

    def _prompts(self, step: int, reading: Reading) -> dict[str, int]:
        for file, source, _, place in self._steps(step, None, reading):
            with _told(file, reading):
                table = read(source, place, ["group", "prompt"], reading)
                groups: dict[str, int] = {}
                for prompt, group in zip(table["prompt"].to_pylist(), table["group"].to_pylist(), strict=True):
                    groups.setdefault(prompt, group)
                return groups
        return {}

    # --- files -------------------------------------------------------------------------------------------------------

    def _files(self) -> list[RolloutFile]:
        if plain_status(self._directory, stat.S_IFDIR) is None:
            return []
        try:
            return [file for file in list_files(self._directory) if plain_status(file.path)]
        except (OSError, ValueError):
            return []

    def _steps(
        self, only: int | None, first: int | None, reading: Reading
    ) -> "Iterator[tuple[RolloutFile, pq.ParquetFile, int, int]]":
        """Yield the wanted steps in order: the file, its open reader, the step, and the step's row group."""
        import pyarrow.parquet as pq

        done = -1 if first is None else first - 1
        for file in self._files():
            if file.last <= done or (only is not None and not file.first <= only <= file.last):
                continue
            with contextlib.ExitStack() as stack:
                places: dict[int, int] = {}
                with _told(file, reading):
                    stream = stack.enter_context(open_plain(file.path))
                    source = pq.ParquetFile(stream)
                    reading.files += 1
                    places = self._row_groups(os.fstat(stream.fileno()), source)
                for step, place in sorted(places.items()):
                    # Two files can hold the same step with equal content if splitting a file was interrupted.
                    if step > done and (only is None or step == only):
                        done = step
                        yield file, source, step, place

    def _has_after(self, step: int, query: RolloutQuery) -> bool:
        return query.step is None and any(file.last > step for file in self._files())

    def _row_groups(self, status: os.stat_result, source: "pq.ParquetFile") -> dict[int, int]:
        """Return step → row group of a file, cached by its status; raise ValueError if it does not hold rollouts."""
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:
            if key not in self._footers:
                schema = source.schema_arrow
                read_settings(schema.metadata)
                types = {column.name: arrow_type(column.type) for column in COLUMNS}
                expected = [*SHOWN_IN_FULL, *(name for name in EPISODE_COLUMNS if name in schema.names)]
                if schema.names[:1] != ["step"] or any(schema.field(name).type != types[name] for name in expected):
                    raise ValueError("it does not have the columns of rollouts")
                self._footers[key] = {step_of(source, number): number for number in range(source.num_row_groups)}
                while len(self._footers) > _FOOTERS:
                    self._footers.popitem(last=False)
            return self._footers[key]


@contextlib.contextmanager
def _told(file: RolloutFile, reading: Reading) -> Iterator[None]:
    """End the block if it reads damaged data, and add that to the problems."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:  # a resuming run has just cut it
        pass
    except (*_DAMAGE, pa.ArrowException) as error:
        said = f"parts of {file.path.name} cannot be read and are skipped ({type(error).__name__})"
        if said not in reading.problems:
            reading.problems.append(said)
