"""The protocol of trackers.

Another package adds a tracker by an entry point, which names a callable that takes a `TrackedRun` and returns a
`Tracker`; `tracking.trackers=[NAME]` opens it:

    [project.entry-points."agent_tunix.trackers"]
    mine = "my_package:MyTracker"
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agent_tunix.tracking.metrics_file import is_histogram, is_number, to_plain
from agent_tunix.tracking.samples import ShownSample


class Tracker(Protocol):
    """A receiver of the metrics of each step: numbers, histograms `{"counts", "edges"}`, and None if unknown.

    Attributes:
        id: The run's id at the service, by which a resumed run continues it; None if there is nothing to continue.
        url: Address of the run's page; None without one.
    """

    id: str | None
    url: str | None

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of a step."""
        ...

    def log_samples(self, step: int, samples: Sequence[ShownSample]) -> None:
        """Record some completions of a step; called before `log` with the same step."""
        ...

    def flush(self) -> None:
        """Make logged data durable; called before each checkpoint, because a resumed run logs only later steps."""
        ...

    def close(self, failed: bool = False) -> None:
        """Flush and release resources.

        Args:
            failed: True if the run ended with an error.
        """
        ...


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers see it."""

    project: str
    name: str  # the last two parts of its directory
    directory: Path
    config: Mapping[str, Any]  # nested, of plain values
    id: str | None = None  # the `Tracker.id` of an earlier attempt, which this one continues; None for a new run

    @property
    def parameters(self) -> dict[str, Any]:
        """Dotted keys of the configuration and their values."""
        return dict(_flatten(self.config))


def split(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Mapping[str, Any]]]:
    """Return the numbers of a row, and its histograms; other values are left out."""
    plain: dict[str, Any] = to_plain(metrics)
    return (
        {name: value for name, value in plain.items() if is_number(value)},
        {name: value for name, value in plain.items() if is_histogram(value)},
    )


def to_table(step: int, samples: Sequence[ShownSample]) -> tuple[list[Any], list[list[Any]]]:
    """Return the columns and rows of a table of completions, with a column for every component."""
    components = list(dict.fromkeys(name for sample in samples for name in sample.components))
    fields = [field.name for field in dataclasses.fields(ShownSample) if field.name != "components"]
    rows = [
        [step, *(getattr(sample, name) for name in fields), *(sample.components.get(name) for name in components)]
        for sample in samples
    ]
    return ["step", *fields, *(f"rewards/{name}" for name in components)], rows


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of nested mappings; an empty mapping is a value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
