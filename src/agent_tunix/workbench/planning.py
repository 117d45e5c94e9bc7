"""What a pilot tells of a run to come: how many groups would teach nothing, and how large groups should be.

A pilot is K scored completions of each of P problems. A group is dead if fewer than two of its members are scored, or
all that are score alike. Of the C(K, G) groups that K completions of a problem could have formed, those that are dead
can be counted: with c_v completions of value v and u unscored ones,

    dead = C(u, G) + Σ_v [C(c_v + u, G) − C(u, G)]

The share dead / C(K, G) is an unbiased estimate (a U-statistic; W. Hoeffding, 1948) of the chance that a group of G is
dead, for any G up to K, and its mean over problems drawn as training draws them forecasts `rewards/dead_groups`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Enough groups that teach something for a step's gradient not to hang on one problem.
ALIVE_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Forecast:
    """Groups of one size at one temperature.

    Attributes:
        temperature: Of the pilot's sampling.
        num_generations: G.
        dead_share: Expected `rewards/dead_groups`, 0 to 1.
        standard_error: Of it, from how much the problems differ.
        batch_size: The fewest prompts a step with which `ALIVE_GROUPS` groups are expected to teach; None: no number.
    """

    temperature: float
    num_generations: int
    dead_share: float
    standard_error: float
    batch_size: int | None

    @property
    def completions(self) -> float:
        """Completions a step, with that many prompts."""
        return math.inf if self.batch_size is None else self.batch_size * self.num_generations


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The problems of a pilot at one temperature.

    Attributes:
        temperature: Of the pilot's sampling.
        mean: Mean total of all scored completions; None where there is none.
        too_easy: Problems of which every completion earned the highest total of the pilot.
        too_hard: Problems of which every completion earned the lowest.
        tied: Problems of which all completions earned one total in between.
        unscored: Problems of which fewer than two completions were scored.
        telling: All others.
        buckets: Problems by their mean total, in ten equal steps from the lowest to the highest total of the pilot.
    """

    temperature: float
    mean: float | None
    too_easy: tuple[int, ...]
    too_hard: tuple[int, ...]
    tied: tuple[int, ...]
    unscored: tuple[int, ...]
    telling: tuple[int, ...]
    buckets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pilot comes to.

    Attributes:
        num_samples: K.
        forecasts: By temperature and group size.
        difficulties: By temperature.
        choice: The recommended forecast: fewest completions a step among those within the target; where none is, the
            one with the fewest dead groups.
        target: The share of dead groups that was asked for.
    """

    num_samples: int
    forecasts: tuple[Forecast, ...]
    difficulties: tuple[Difficulty, ...]
    choice: Forecast
    target: float

    @property
    def within_target(self) -> bool:
        """Whether the choice is."""
        return self.choice.dead_share <= self.target

    @property
    def overrides(self) -> tuple[str, ...]:
        """The choice as configuration."""
        batch = () if self.choice.batch_size is None else (f"training.batch_size={self.choice.batch_size}",)
        return (
            f"grpo.num_generations={self.choice.num_generations}",
            f"generation.temperature={self.choice.temperature:g}",
            *batch,
        )

    def to_data(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "samples": self.num_samples,
            "target": self.target,
            "within_target": self.within_target,
            "overrides": list(self.overrides),
            "forecasts": [{name: getattr(each, name) for name in each.__slots__} for each in self.forecasts],
            "difficulties": [{name: getattr(each, name) for name in each.__slots__} for each in self.difficulties],
        }

    def lines(self) -> Iterator[str]:
        """For a person."""
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
                f"no group size keeps the dead groups within {self.target:.0%}; change the problems first (leave out"
                " those that are too easy or too hard), or give the reward partial credit"
            )
        yield f"recommended: {' '.join(self.overrides)}"
        yield f"(prompts: the fewest a step with which {ALIVE_GROUPS} groups are expected to teach something)"


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
    """Forecast and recommend.

    Args:
        pilots: Temperature → [P, K] totals, NaN where unscored; the same P and K for all.
        group_sizes: Each from 2 to K.
        target: The largest share of dead groups that is wanted, 0 to 1.

    Raises:
        ValueError: There is no pilot, or a group size is out of range.
    """
    shapes = {totals.shape for totals in pilots.values()}
    if len(shapes) != 1 or 0 in (shape := shapes.pop()):
        raise ValueError("pilots must be given, all of one shape, with at least one completion")
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
    """[P] unbiased estimates of the chance that a group of each problem is dead.

    Args:
        totals_PK: K totals of each problem; NaN where unscored.
        num_generations: G, from 2 to K.
    """
    return np.array([_dead_share(totals_K, num_generations) for totals_K in totals_PK], dtype=np.float64)


def _dead_share(totals_K: Floats, size: int) -> float:
    scored = totals_K[~np.isnan(totals_K)]
    unscored = totals_K.size - scored.size
    _, counts = np.unique(scored, return_counts=True)
    none_scored = math.comb(unscored, size)
    dead = none_scored + sum(math.comb(int(count) + unscored, size) - none_scored for count in counts)
    return dead / math.comb(totals_K.size, size)


def describe_difficulty(temperature: float, totals_PK: Floats) -> Difficulty:
    """Sort the problems of a pilot by what they can teach."""
    known = totals_PK[~np.isnan(totals_PK)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    sorts: dict[str, list[int]] = {name: [] for name in ("too_easy", "too_hard", "tied", "unscored", "telling")}
    means = []
    for problem, totals_K in enumerate(totals_PK):
        scored = totals_K[~np.isnan(totals_K)]
        sorts[_sort(scored, low, high)].append(problem)
        if scored.size:
            means.append(float(scored.mean()))
    width = high - low
    places = [min(int(10 * (mean - low) / width), 9) if width > 0 else 0 for mean in means]
    buckets = tuple(np.bincount(places, minlength=10).tolist()) if places else (0,) * 10
    mean = float(known.mean()) if known.size else None
    return Difficulty(temperature, mean, **{name: tuple(found) for name, found in sorts.items()}, buckets=buckets)


def _sort(scored: Floats, low: float, high: float) -> str:
    if scored.size < 2:
        return "unscored"
    first = float(scored[0])
    if (scored != first).any():
        return "telling"
    if low == high:
        return "tied"
    return "too_easy" if first == high else "too_hard" if first == low else "tied"
