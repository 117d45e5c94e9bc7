"""Forecasts from a pilot: how many groups would teach nothing, and how large groups should be.

A pilot is K scored completions of each of P problems. A group is dead if fewer than two of its members are scored, or
if all scored members have the same score. K completions of a problem could form C(K, G) groups, and the dead ones can
be counted. With c_v completions of value v and u unscored ones,

    dead = C(u, G) + Σ_v [C(c_v + u, G) − C(u, G)]

The share dead / C(K, G) is an unbiased estimate (a U-statistic; W. Hoeffding, 1948) of the probability that a group of
G is dead, for any G up to K. Its mean over problems, drawn as training draws them, forecasts `rewards/dead_groups`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.rounding import are_equal, join_equal

Floats = NDArray[np.float64]

# Groups with an advantage per step; enough that the gradient does not depend on a single problem.
ALIVE_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast for one group size at one temperature."""

    temperature: float
    num_generations: int
    dead_share: float  # expected `rewards/dead_groups`, 0 to 1
    standard_error: float  # standard error of `dead_share`, from the spread over problems
    # Fewest prompts per step for which `ALIVE_GROUPS` groups are expected to teach; None if none is enough.
    batch_size: int | None

    @property
    def completions(self) -> float:
        """Completions per step with `batch_size` prompts; infinite without one."""
        return math.inf if self.batch_size is None else self.batch_size * self.num_generations


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Difficulty of a pilot's problems at one temperature."""

    temperature: float
    mean: float | None  # mean total of all scored completions; None if none was scored
    too_easy: tuple[int, ...]  # indices of the problems whose completions all earned the highest total of the pilot
    too_hard: tuple[int, ...]  # problems whose completions all earned the lowest total
    tied: tuple[int, ...]  # problems whose completions all earned one total in between
    unscored: tuple[int, ...]  # problems with fewer than two scored completions
    telling: tuple[int, ...]  # all other problems
    # Numbers of problems by mean total, in ten equal intervals from the lowest to the highest total.
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Forecasts and recommendation of a pilot."""

    num_samples: int
    forecasts: tuple[Forecast, ...]
    difficulties: tuple[Difficulty, ...]
    # Recommended forecast: the fewest completions per step among those within the target, or if there is none, the
    # fewest dead groups.
    choice: Forecast
    target: float  # largest acceptable share of dead groups

    @property
    def within_target(self) -> bool:
        """True if the choice is within the target."""
        return self.choice.dead_share <= self.target

    @property
    def overrides(self) -> tuple[str, ...]:
        """The choice as configuration overrides."""
        batch = () if self.choice.batch_size is None else (f"training.batch_size={self.choice.batch_size}",)
        return (
            f"grpo.num_generations={self.choice.num_generations}",
            f"generation.temperature={self.choice.temperature:g}",
            *batch,
        )

    def to_data(self) -> dict[str, Any]:
        """Return the plan as JSON data."""
        return {
            "samples": self.num_samples,
            "target": self.target,
            "within_target": self.within_target,
            "overrides": list(self.overrides),
            "forecasts": [{name: getattr(each, name) for name in each.__slots__} for each in self.forecasts],
            "difficulties": [{name: getattr(each, name) for name in each.__slots__} for each in self.difficulties],
        }

    def lines(self) -> Iterator[str]:
        """Yield lines of text for a terminal."""
        for difficulty in self.difficulties:
            yield from _difficulty_lines(difficulty)
        yield ""
        yield "temperature  group  dead groups      prompts  completions"
        for forecast in self.forecasts:
            batch = "-" if forecast.batch_size is None else f"{forecast.batch_size}"
            count = "-" if forecast.batch_size is None else f"{forecast.completions:g}"
            yield (
                f"{forecast.temperature:>11g}  {forecast.num_generations:>5}  {forecast.dead_share:>6.1%} ±"
                f" {1.96 * forecast.standard_error:<6.1%}  {batch:>7}  {count:>11}"
            )
        yield ""
        if not self.within_target:
            yield (
                f"no group size keeps the dead groups within {self.target:.0%}; change the problems first (remove "
                "those that are too easy or too hard), or add partial credit to the reward"
            )
        yield f"{'recommended' if self.within_target else 'fewest dead groups'}: {' '.join(self.overrides)}"
        yield f"(prompts: the fewest per step for {ALIVE_GROUPS} expected groups that are not dead)"


def _difficulty_lines(difficulty: Difficulty) -> Iterator[str]:
    of = {name: getattr(difficulty, name) for name in ("too_easy", "too_hard", "tied", "unscored", "telling")}
    total = sum(len(problems) for problems in of.values())
    mean = "none" if difficulty.mean is None else f"{difficulty.mean:.3f}"
    yield f"temperature {difficulty.temperature:g}: mean total {mean} over {total} problems"
    for name, problems in of.items():
        if problems or name == "telling":
            yield f"  {name.replace('_', ' '):<9} {len(problems):>5}  {len(problems) / max(total, 1):.0%}"
    yield f"  by mean total, lowest to highest: {' '.join(map(str, difficulty.buckets))}"


def make_plan(pilots: Mapping[float, Floats], group_sizes: Sequence[int], target: float = 0.25) -> Plan:
    """Forecast dead groups and recommend a group size, temperature and batch size.

    Args:
        pilots: Temperature → [P, K] totals, NaN if unscored; the same P and K for all.
        group_sizes: Each from 2 to K.
        target: Largest acceptable share of dead groups, 0 to 1.

    Raises:
        ValueError: There is no pilot, or a group size is out of range.
    """
    shapes = {totals.shape for totals in pilots.values()}
    if len(shapes) != 1 or 0 in (shape := shapes.pop()):
        raise ValueError("pilots must all have the same shape and at least one completion")
    num_samples = shape[1]
    for size in group_sizes:
        if not 2 <= size <= num_samples:
            raise ValueError(f"a group size must be from 2 to the {num_samples} samples of the pilot, not {size}")
    forecasts = tuple(
        _forecast(temperature, totals_PK, size)
        for temperature, totals_PK in pilots.items()
        for size in sorted(set(group_sizes))
    )
    within = [forecast for forecast in forecasts if forecast.dead_share <= target]
    choice = (
        min(within, key=lambda forecast: (forecast.completions, forecast.temperature))
        if within
        else min(forecasts, key=lambda forecast: (forecast.dead_share, forecast.num_generations))
    )
    difficulties = tuple(describe_difficulty(temperature, totals) for temperature, totals in pilots.items())
    return Plan(num_samples, forecasts, difficulties, choice, target)


def _forecast(temperature: float, totals_PK: Floats, num_generations: int) -> Forecast:
    shares_P = dead_shares(totals_PK, num_generations)
    dead = float(shares_P.mean())
    error = float(shares_P.std(ddof=1)) / math.sqrt(shares_P.size) if shares_P.size > 1 else 0.0
    batch_size = math.ceil(ALIVE_GROUPS / (1 - dead) - 1e-9) if dead < 1 else None
    return Forecast(temperature, num_generations, dead, error, batch_size)


def dead_shares(totals_PK: Floats, num_generations: int) -> Floats:
    """Return [P] unbiased estimates of the probability that a group of 2 to K completions of a problem is dead."""
    return np.array([_dead_share(totals_K, num_generations) for totals_K in totals_PK], dtype=np.float64)


def _dead_share(totals_K: Floats, size: int) -> float:
    distinct_totals = join_equal(totals_K[~np.isnan(totals_K)])
    unscored = totals_K.size - distinct_totals.size
    _, counts = np.unique(distinct_totals, return_counts=True)
    none_scored = math.comb(unscored, size)
    dead = none_scored + sum(math.comb(int(count) + unscored, size) - none_scored for count in counts)
    return dead / math.comb(totals_K.size, size)


def describe_difficulty(temperature: float, totals_PK: Floats) -> Difficulty:
    """Sort the problems of a pilot by what they can teach."""
    all_totals = totals_PK[~np.isnan(totals_PK)]
    low, high = (float(all_totals.min()), float(all_totals.max())) if all_totals.size else (0.0, 0.0)
    sorts: dict[str, list[int]] = {name: [] for name in ("too_easy", "too_hard", "tied", "unscored", "telling")}
    means = []
    for problem, totals_K in enumerate(totals_PK):
        scored = totals_K[~np.isnan(totals_K)]
        sorts[_sort(scored, low, high)].append(problem)
        if scored.size:
            means.append(float(scored.mean()))
    width = 0.0 if are_equal(low, high) else high - low
    places = [min(int(10 * (mean - low) / width), 9) if width > 0 else 0 for mean in means]
    buckets = tuple(np.bincount(places, minlength=10).tolist()) if places else (0,) * 10
    mean = float(all_totals.mean()) if all_totals.size else None
    return Difficulty(temperature, mean, **{name: tuple(problems) for name, problems in sorts.items()}, buckets=buckets)


def _sort(scored: Floats, low: float, high: float) -> str:
    if scored.size < 2:
        return "unscored"
    if not are_equal(scored.min(), scored.max()):
        return "telling"
    if are_equal(low, high):
        return "tied"
    first = float(scored[0])
    return "too_easy" if are_equal(first, high) else "too_hard" if are_equal(first, low) else "tied"
