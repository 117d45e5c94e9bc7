"""Rows of reasoning_gym's tasks, as `data.tasks` names them.

A row is the library's entry (`question`, `answer` and `metadata`) with three more columns: `task`, `level` and
`parameters` (those that differ from the task's defaults). Training rows start at the task's seed and held-out rows at
the seed after the last training row, so that no two rows start from the same seed. A training row whose question is
also held out is dropped.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.config.data_sets import TASK_KEYS
from agent_tunix.config.schema import Config, DataConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.errors import ConfigError, RewardError
from agent_tunix.rewards.builtin.tasks import make_task

_DEFAULT_SIZE = 500


@dataclass(frozen=True, slots=True)
class _Part:
    """Entries of one task at one level."""

    name: str
    level: int | None  # level of the library's curriculum; None for the task's defaults
    parameters: Mapping[str, Any]  # parameters that differ from the task's defaults
    entries: Any
    size: int
    seed: int

    def columns(self, index: int) -> dict[str, Any]:
        """Return the columns of a row; equal for equal seeds and versions of the library."""
        state = random.getstate()
        random.seed(f"{self.seed}/{index}")  # a few tasks draw from the global generator
        try:
            entry = self.entries[index]
        finally:
            random.setstate(state)
        return {**entry, "task": self.name, "level": self.level or 0, "parameters": dict(self.parameters)}


def read_reasoning_gym(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of all tasks, which take turns in proportion to their sizes.

    Raises:
        ConfigError: The library is not installed, or it refuses a task or a parameter.
    """
    dropped.origin, dropped.unit = "reasoning_gym", "row"
    if not config.data.tasks:
        raise ConfigError(
            "data.source=reasoning_gym requires data.tasks, but it names no task; for example"
            " data.tasks={chain_sum: {size: 500}}",
            code="invalid_tasks",
        )
    held_out = {columns["question"] for columns in _read(config.data, "test")} if split == "train" else frozenset()
    for number, columns in enumerate(_read(config.data, split), start=1):
        if columns["question"] in held_out:
            dropped.add("the question is also held out", number)
        else:
            yield Row(number, columns)


def _read(data: DataConfig, split: Split) -> Iterator[dict[str, Any]]:
    parts = [part for name, settings in data.tasks.items() for part in _parts(data, name, settings or {}, split)]
    turns = sorted(
        ((index + 0.5) / part.size, number, index) for number, part in enumerate(parts) for index in range(part.size)
    )
    for _, number, index in turns:
        yield parts[number].columns(index)


def _parts(data: DataConfig, name: str, settings: Mapping[str, Any], split: Split) -> Iterator[_Part]:
    """Yield the parts of a task in a split, one for each of its levels that has a row."""
    size, seed = settings.get("size", _DEFAULT_SIZE), settings.get("seed", data.seed)
    levels = settings.get("levels") or [None]
    parameters = {key: value for key, value in settings.items() if key not in TASK_KEYS}
    count = size if split == "train" else -(-data.num_test // len(data.tasks))
    first = seed if split == "train" else seed + size
    for number, level in enumerate(levels):
        start, end = count * number // len(levels), count * (number + 1) // len(levels)
        if start == end:
            continue
        try:
            entries = make_task(name, parameters, size=end - start, seed=first + start, level=level)
        except RewardError as error:
            raise ConfigError(f"data.tasks: {error}", code=error.code) from error
        yield _Part(name, level, _changed(entries.config), entries, end - start, first + start)


def _changed(config: Any) -> dict[str, Any]:
    default = vars(type(config)())
    return {
        key: value for key, value in vars(config).items() if key not in ("size", "seed") and value != default.get(key)
    }
