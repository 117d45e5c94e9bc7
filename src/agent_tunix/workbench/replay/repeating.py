"""Agreement of a reward with itself: the same completions scored several times."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.turns import EPISODE, Credit
from agent_tunix.workbench.replay.replaying import RecordedStep, replay, show_figure

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ComponentSpread:
    """Spread of one component, or of the total, over repeated scorings."""

    own_std: float | None  # root mean variance of a completion's values between repeats (divisor n - 1)
    # Root mean variance of the completions' mean values within their groups (divisor G - 1), minus the contribution of
    # noise.
    group_std: float | None
    unsteady: float | None  # share of completions whose values differ between repeats
    failed: float  # share of scorings without a value: a failure, not applicable, or a shut gate

    @property
    def noise_share(self) -> float | None:
        """Share of noise in the variance of a single scoring within groups.

        own² / (own² + between²), where between² is the variance of the means minus the noise in them.
        """
        if self.own_std is None or self.group_std is None:
            return None
        whole = self.own_std**2 + self.group_std**2
        return self.own_std**2 / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Repeats:
    """Result of repeated scoring."""

    repeats: int  # number of times that each completion was scored
    completions: int
    total: ComponentSpread
    components: Mapping[str, ComponentSpread]
    flips: float | None  # share of pairs of repeats, over all completions, in which the advantage changed its sign

    def to_data(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "repeats": self.repeats,
            "completions": self.completions,
            "flips": self.flips,
            "total": _to_data(self.total),
            "components": {name: _to_data(spread) for name, spread in self.components.items()},
        }

    def lines(self) -> Iterator[str]:
        """Yield lines of text for a terminal."""
        yield f"{self.completions:,} completions scored {self.repeats} times each"
        for name, spread in {"total": self.total, **self.components}.items():
            yield (
                f"{name}: own std {show_figure(spread.own_std)}, std within groups {show_figure(spread.group_std)},"
                f" noise {_percent(spread.noise_share)}, not the same each time {_percent(spread.unsteady)},"
                f" without a value {_percent(spread.failed)}"
            )
        yield f"the advantage changes its sign between two scorings in {_percent(self.flips)} of cases"


def _to_data(spread: ComponentSpread) -> dict[str, Any]:
    fields = {name: getattr(spread, name) for name in spread.__slots__}
    return {**fields, "noise_share": spread.noise_share}


def _percent(value: float | None) -> str:
    return "none" if value is None else f"{value:.1%}"


def repeat(
    mixtures: Sequence[Mixture],
    steps: Iterable[RecordedStep],
    rows: Sequence[Mapping[str, Any]],
    *,
    num_generations: int,
    scaling: str = "group",
    credit: Credit = EPISODE,
) -> Repeats:
    """Score each stored completion once with each mixture.

    Pass at least two separate mixtures of the same components, because each advances its own schedules. `rows` are the
    run's rows of metrics, `scaling` is `grpo.advantage_scaling`, `credit` is `grpo.credit` and its settings.
    """
    if len(mixtures) < 2:
        raise ValueError(f"repeats must be at least 2, not {len(mixtures)}")
    names = [component.name for component in mixtures[0].components]
    spreads = {name: _Spread(num_generations, len(mixtures)) for name in ("", *names)}
    pairs = flips = completions = 0
    replays = [
        replay(mixture, copy, rows, num_generations=num_generations, scaling=scaling, credit=credit)
        for mixture, copy in zip(mixtures, itertools.tee(steps, len(mixtures)), strict=True)
    ]
    for scorings in zip(*replays, strict=True):
        completions += len(scorings[0].scores)
        spreads[""].add(np.stack([each.totals for each in scorings]))
        for name in names:
            values_RN = [[_value(score.components.get(name)) for score in each.scores] for each in scorings]
            spreads[name].add(np.array(values_RN, dtype=np.float64))
        signs_RN = np.sign(np.stack([each.advantages for each in scorings]))
        for first in range(len(scorings)):
            for second in range(first + 1, len(scorings)):
                pairs += signs_RN.shape[1]
                flips += int((signs_RN[first] * signs_RN[second] < 0).sum())
    return Repeats(
        repeats=len(mixtures),
        completions=completions,
        total=spreads[""].result(),
        components={name: spreads[name].result() for name in names},
        flips=flips / pairs if pairs else None,
    )


def _value(value: float | None) -> float:
    return math.nan if value is None else value


@dataclass(slots=True)
class _Spread:
    """Variances of [R, N] values, R scorings of N completions."""

    num_generations: int
    num_scorings: int
    own: list[Floats] = field(default_factory=list)
    means: list[Floats] = field(default_factory=list)
    unsteady: int = 0
    known: int = 0
    missing: int = 0
    scorings: int = 0

    def add(self, values_RN: Floats) -> None:
        """Add the values of one step."""
        self.scorings += values_RN.size
        self.missing += int(np.isnan(values_RN).sum())
        counts_N = (~np.isnan(values_RN)).sum(axis=0)
        enough_N = counts_N >= 2
        kept_RN = values_RN[:, enough_N]
        self.known += int(enough_N.sum())
        if kept_RN.size:
            differ_N = np.nanmax(kept_RN, axis=0) > np.nanmin(kept_RN, axis=0)
            self.unsteady += int(differ_N.sum())
            # Rounding of the mean must not give equal values a variance.
            self.own.append(np.where(differ_N, np.nanvar(kept_RN, axis=0, ddof=1), 0.0))
        sums_N = np.nansum(values_RN, axis=0)
        means_PG = np.where(counts_N > 0, sums_N / np.maximum(counts_N, 1), np.nan).reshape(-1, self.num_generations)
        full = means_PG[(~np.isnan(means_PG)).sum(axis=1) >= 2]
        if full.size:
            self.means.append(np.nanvar(full, axis=1, ddof=1))

    def result(self) -> ComponentSpread:
        """Return the spread of all added steps."""
        own, means = _mean(self.own), _mean(self.means)
        # Over all groups: within a single one, noise may appear to exceed the whole.
        between = None if means is None else max(0.0, means - (own or 0.0) / self.num_scorings)
        return ComponentSpread(
            own_std=None if own is None else math.sqrt(own),
            group_std=None if between is None else math.sqrt(between),
            unsteady=self.unsteady / self.known if self.known else None,
            failed=self.missing / self.scorings if self.scorings else 0.0,
        )


def _mean(variances: Sequence[Floats]) -> float | None:
    return float(np.concatenate(variances).mean()) if variances else None
