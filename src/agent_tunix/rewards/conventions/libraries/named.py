"""Base class of conventions that are recognised by the names of a function's parameters.

Singular names receive the values of one completion. Plural names receive lists of those of a group.
"""

import abc
import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.base import groups_of
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.values import own_copy, to_scores
from agent_tunix.rewards.sample import Sample, Score

Values = dict[str, Callable[[], Any]]


class NamedConvention(FormedConvention):
    """A function whose parameters have the names of its library."""

    plurals: ClassVar[Mapping[str, str]] = {}  # name of a value → name of the list of a group's values
    # True if a function with `**kwargs` gets all columns of the dataset, not only those that it names.
    passes_columns: ClassVar[bool] = False
    expected: ClassVar[str] = "expected one number"  # end of an error about a returned value

    @abc.abstractmethod
    def _values(self, sample: Sample) -> Values:
        """Return the values that the library names, each computed only if the function takes it."""

    @abc.abstractmethod
    def _read_one(self, returned: Any) -> Score:
        """Return the score of a value that the function returned for one completion."""

    def _make_calls(self) -> Sequence[Call]:
        call = Call(self.target)
        self.needs_group = any(plural in call.names for plural in self.plurals.values())
        return [call]

    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        return groups_of(samples) if self.needs_group else ([place] for place in range(len(samples)))

    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        return self._read(self._call(samples), len(samples))

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        async with slots:
            return self._read(await running.awaited(self._call(samples)), len(samples))

    def _read(self, returned: Any, count: int) -> list[Score]:
        if self.needs_group:
            return to_scores(returned, count, self._read_one, self.expected)
        return [self._read_one(returned)]

    def _call(self, samples: Sequence[Sample]) -> Any:
        call = self.calls[0]
        return call(self.target.call_args, {**self._columns(samples), **self._named_values(samples)})

    def _columns(self, samples: Sequence[Sample]) -> Values:
        """Return the columns that the function gets, in the group form as lists."""
        call = self.calls[0]
        names = dict.fromkeys(name for sample in samples for name in sample.columns)
        own_names = [
            name
            for name in names
            if name not in self.target.call_args and (self.passes_columns or not call.takes_any or name in call.names)
        ]
        if self.needs_group:
            return {name: lambda name=name: [own_copy(s.columns.get(name)) for s in samples] for name in own_names}  # type: ignore[misc]
        return {name: lambda name=name: own_copy(samples[0].columns[name]) for name in own_names}  # type: ignore[misc]

    def _named_values(self, samples: Sequence[Sample]) -> Values:
        """Return the values that the library names; in the group form, those of the plural names."""
        rows = [self._values(sample) for sample in samples]
        if not self.needs_group:
            return rows[0]
        return {
            plural: lambda name=name: [values[name]() for values in rows]  # type: ignore[misc]
            for name, plural in self.plurals.items()
        }
