"""Transforms of a component's raw values, applied before they are weighed.

    transform: {clip: [0, 1]}
    transform: [{normalize: {mean: 0.5, std: 0.2}}, rank]

`clip: [lo, hi]` limits values, `normalize` standardises them (`normalize_reward`), `rank` replaces a value by its rank
within its group, and `map` looks a value up in a table. A list is applied in order. Metrics under the component's name
log the raw value.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agent_tunix.errors import RewardError
from agent_tunix.rewards.rounding import join_equal

Values = NDArray[np.float64]


def normalize_reward(value: float, mean: float = 0.5, std: float = 0.2) -> float:
    """Clip a reward to `mean ± 3 std` and standardise it.

    Returns:
        `(clip(value) - mean) / std`, in [-3, 3].

    Raises:
        ValueError: `std` is not above 0.

    >>> normalize_reward(0.5), normalize_reward(100.0)
    (0.0, 3.0)
    """
    if not std > 0:
        raise ValueError(f"std must be above 0, not {std}")
    return min(max((value - mean) / std, -3.0), 3.0)


class Transform(Protocol):
    """Protocol of a function that maps a component's raw values, one per completion, to new values."""

    def __call__(self, values_B: Values, groups_B: NDArray[np.int64]) -> Values:
        """Transform [B] values of the groups `groups_B`.

        NaN means that the component has no value, and stays NaN. Any other NaN in the result means that the transform
        is not defined for a value.
        """

    def to_data(self) -> object:
        """Return the transform as it is written in the configuration."""


@dataclass(frozen=True, slots=True)
class Clip:
    """Transform to the nearest value in [low, high]."""

    low: float
    high: float

    def __call__(self, values_B: Values, groups_B: NDArray[np.int64]) -> Values:
        """Limit each value."""
        return np.clip(values_B, self.low, self.high)

    def to_data(self) -> object:
        """Return the transform as it is written in the configuration."""
        return {"clip": [self.low, self.high]}


@dataclass(frozen=True, slots=True)
class Normalize:
    """Transform of each value by `normalize_reward`."""

    mean: float = 0.5
    std: float = 0.2

    def __call__(self, values_B: Values, groups_B: NDArray[np.int64]) -> Values:
        """Standardise each value."""
        return np.clip((values_B - self.mean) / self.std, -3.0, 3.0)

    def to_data(self) -> object:
        """Return the transform as it is written in the configuration."""
        return {"normalize": {"mean": self.mean, "std": self.std}}


@dataclass(frozen=True, slots=True)
class Rank:
    """Transform to the rank within the group, from 0 (lowest) to 1 (highest).

    In a group of n values, a value that is above a of them and equal to b others gets (a + b/2) / (n − 1), so ties
    share their mean rank; values that differ only by rounding are ties. A value that is alone, or equal to all others,
    gets 0.5.
    """

    def __call__(self, values_B: Values, groups_B: NDArray[np.int64]) -> Values:
        """Rank the values of each group."""
        ranks_B = np.full_like(values_B, np.nan)
        known_K = np.flatnonzero(~np.isnan(values_B))
        sorted_K = known_K[np.argsort(groups_B[known_K], kind="stable")]
        _, starts = np.unique(groups_B[sorted_K], return_index=True)
        for members_N in np.split(sorted_K, starts[1:]):
            ranks_B[members_N] = _places(values_B[members_N])
        return ranks_B

    def to_data(self) -> object:
        """Return the transform as it is written in the configuration."""
        return "rank"


def _places(values_N: Values) -> Values:
    if values_N.size < 2:
        return np.full_like(values_N, 0.5)
    values_N = join_equal(values_N)
    sorted_N = np.sort(values_N)
    below_N = np.searchsorted(sorted_N, values_N, side="left")
    equal_N = np.searchsorted(sorted_N, values_N, side="right") - below_N - 1
    return np.asarray((below_N + equal_N / 2) / (values_N.size - 1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Map:
    """Transform by a table. A value that is not in the table (to nine digits) is an error."""

    table: Mapping[float, float] = field(default_factory=dict)

    def __call__(self, values_B: Values, groups_B: NDArray[np.int64]) -> Values:
        """Look up each value."""
        return np.array([self._image(value) for value in values_B.tolist()], dtype=np.float64)

    def to_data(self) -> object:
        """Return the transform as it is written in the configuration."""
        return {"map": {_shortest(value): image for value, image in self.table.items()}}

    def _image(self, value: float) -> float:
        if value in self.table:
            return self.table[value]
        return next((image for key, image in self.table.items() if math.isclose(key, value)), math.nan)


def _shortest(value: float) -> str:
    """Return a number as text that reads back as the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def apply_transforms(transforms: Sequence[Transform], values_B: Values, groups_B: NDArray[np.int64]) -> Values:
    """Apply transforms in order; see `Transform.__call__`."""
    for transform in transforms:
        values_B = transform(values_B, groups_B)
    return values_B


def read_transforms(component: str, value: object) -> tuple[Transform, ...]:
    """Read a component's `transform`: None, one transform or a list.

    Raises:
        RewardError: A transform is malformed.
    """
    if value is None:
        return ()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_read_transform(component, item) for item in value)
    return (_read_transform(component, value),)


def _read_transform(component: str, entry: object) -> Transform:
    if isinstance(entry, Mapping) and len(entry) > 1:
        raise RewardError(
            f"the transform of component {component!r} must have one key, but has {', '.join(map(str, entry))}; "
            "write a list, which fixes their order",
            code="invalid_mixture",
        )
    name: Any
    name, value = next(iter(entry.items()), (None, None)) if isinstance(entry, Mapping) else (entry, None)
    if name not in _READERS:
        raise RewardError(
            f"the transform of component {component!r} must be one of {', '.join(_READERS)}, or a list of them, "
            f"not {entry!r}",
            code="invalid_mixture",
        )
    transform = _READERS[name](value)
    if transform is None:
        raise RewardError(
            f"the transform {name} of component {component!r} must be written {_FORMS[name]}, not {entry!r}",
            code="invalid_mixture",
        )
    return transform


def is_number(value: object) -> bool:
    """Return True if a configured value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_clip(value: Any) -> Clip | None:
    if not isinstance(value, Sequence) or len(value) != 2 or not all(map(is_number, value)) or value[0] >= value[1]:
        return None
    return Clip(float(value[0]), float(value[1]))


def _read_normalize(value: Any) -> Normalize | None:
    if value is None:
        return Normalize()
    if not isinstance(value, Mapping) or not set(value) <= {"mean", "std"} or not all(map(is_number, value.values())):
        return None
    normalize = Normalize(**{name: float(number) for name, number in value.items()})
    return normalize if normalize.std > 0 else None


def _read_rank(value: Any) -> Rank | None:
    return Rank() if value is None else None


def _read_map(value: Any) -> Map | None:
    if not isinstance(value, Mapping) or not value or not all(map(is_number, value.values())):
        return None
    try:
        return Map({float(key): float(image) for key, image in value.items()})
    except (TypeError, ValueError):
        return None


_READERS: dict[Any, Callable[[Any], Transform | None]] = {
    "clip": _read_clip,
    "normalize": _read_normalize,
    "rank": _read_rank,
    "map": _read_map,
}
_FORMS = {
    "clip": "{clip: [LOW, HIGH]} with LOW below HIGH",
    "normalize": "{normalize: {mean: 0.5, std: 0.2}} with std above 0",
    "rank": "as the word alone",
    "map": "{map: {VALUE: IMAGE, …}} with numbers",
}
