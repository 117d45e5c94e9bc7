"""The computation of a batch by a mixture.

A component is computed after those that its gate requires. The cheapest of the components that are ready comes first.
Components in workers run at the same time. A component is computed only on rows to which it applies and where its gate
is open. A reward that scores several completions at once sees only those.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agent_tunix.errors import RewardError
from agent_tunix.rewards.advantages import compute_advantages
from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.mixture.gates import OPEN, GateVerdict, Parts, Verdicts, decide, order_of
from agent_tunix.rewards.mixture.routes import ALL_ROWS, Route
from agent_tunix.rewards.mixture.schedules import Schedule, Weight, may_train, weight_at
from agent_tunix.rewards.mixture.totals import (
    FAILURES,
    describe_terms,
    make_terms,
    total_of,
    totals_that_train,
    weighed,
)
from agent_tunix.rewards.sample import Outcome, Reward, Sample, Score, Term
from agent_tunix.rewards.transforms import Transform
from agent_tunix.rewards.turns import Credit, TurnRewards, check_turns, mean_over_turns, turn_rewards

logger = logging.getLogger("agent_tunix.rewards")

ON_FAILURE = ("exclude", "zero", "raise")


@dataclass(frozen=True, slots=True)
class Component:
    """A reward in a mixture.

    Attributes:
        name: Key in the configuration, and leaf of its metrics.
        weight: Factor in the total, or its schedule. Negative for a penalty, 0 to log the component without training.
        requires: The gate: other components and the lowest raw values with which they pass.
        transforms: Applied in order to the raw value before it is weighted.
        route: Rows to which the component applies.
        cost: Cost of computing it, in any unit. The cheapest of the components that are ready is computed first.
        kind: Kind of measurement, which decides the checks; None for the kind that its reward declares.
        reason: The user's reason for including it; "" if none is given.
    """

    name: str
    reward: Reward
    weight: Weight = 1.0
    requires: Mapping[str, float] = field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()
    route: Route = ALL_ROWS
    cost: float = 0.0
    kind: Kind | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.weight, Schedule) and not math.isfinite(self.weight):
            raise RewardError(
                f"the weight of component {self.name!r} must be finite, not {self.weight}", code="invalid_mixture"
            )

    def describe(self) -> str:
        """Describe the component in one line: `brevity: 0.1 × module.function (file.py:12), where correct ≥ 1`."""
        weight = self.weight.describe() if isinstance(self.weight, Schedule) else f"{self.weight:g}"
        text = f"{self.name}: {weight} × {self.reward.describe()}"
        if self.transforms:
            text += f", transformed by {', '.join(str(transform.to_data()) for transform in self.transforms)}"
        if self.requires:
            text += f", where {' and '.join(f'{name} ≥ {least:g}' for name, least in self.requires.items())}"
        if self.route.wanted:
            text += f", on rows with {self.route.to_data()}"
        if self.reason:
            text += f" — {self.reason}"
        return text


@runtime_checkable
class _Beginning(Protocol):
    """A reward that can score in the background."""

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start to score, and return a future of what `score` would return."""


class Mixture:
    """The reward of a run: components that are combined into one total. A mixture is itself a `Reward`.

    Args:
        components: Components with distinct names, at least one with a weight other than 0.
        on_failure: Treatment of a completion on which a weighted component failed. `exclude` removes it from its group;
            `zero` counts its total as 0.0 in `totals` and keeps its outcome; `raise` raises RewardError.
        name: Name for printing; None for the names of the components.
    """

    def __init__(
        self, components: Iterable[Component], *, on_failure: str = "exclude", name: str | None = None
    ) -> None:
        self.components = tuple(components)
        self.on_failure = on_failure
        names = [component.name for component in self.components]
        self.name = name or "+".join(names)
        if len(set(names)) < len(names):
            raise RewardError(f"components must have distinct names, not {', '.join(names)}", code="invalid_mixture")
        if not any(may_train(component.weight) for component in self.components):
            raise RewardError(
                f"{self.name!r} must have a component with a weight other than 0, but has none; set a weight",
                code="invalid_mixture",
            )
        if on_failure not in ON_FAILURE:
            raise RewardError(
                f"rewards.on_failure must be one of {', '.join(ON_FAILURE)}, not {on_failure!r}", code="invalid_config"
            )
        self._order = order_of(
            {component.name: component.requires for component in self.components},
            {component.name: component.cost for component in self.components},
        )

    # --- scoring -----------------------------------------------------------------------------------------------------

    def score(self, samples: Sequence[Sample], known: Parts | None = None) -> list[Score]:
        """Score each sample, in order.

        `known` holds the scores that components already have, and None where they were not computed. A component is not
        computed again if it has a score of every sample on which it counts.

        Returns:
            For each sample the total as `value`, the components' raw, unweighted values in `components`, their full
            scores in `parts`, and their contributions to the total in `terms`.

        Raises:
            RewardError: A weighted component failed, under `on_failure="raise"`.
        """
        if not samples:
            return []
        parts: dict[str, list[Score | None]] = {}
        verdicts: dict[str, list[GateVerdict]] = {}
        components_left = self._in_order()
        while components_left:
            independent = [component for component in components_left if parts.keys() >= component.requires.keys()]
            for component in independent:
                verdicts[component.name] = _decide_all(component, samples, parts, verdicts)
            earlier = {c.name: _known_scores(known or {}, c.name, verdicts[c.name]) for c in independent}
            parts |= {name: scores for name, scores in earlier.items() if scores is not None}
            rewards = {c.name: c.reward for c in independent if c.name not in parts}
            places, futures = _start(rewards, samples, verdicts)
            # What runs in the background has started, so the others are computed here meanwhile.
            own = {
                name: reward.score([samples[place] for place in places[name]]) if places[name] else []
                for name, reward in rewards.items()
                if name not in futures
            }
            own |= {name: future.result() for name, future in futures.items()}
            parts |= {name: _spread(name, places[name], own[name], samples, verdicts[name]) for name in rewards}
            components_left = [component for component in components_left if component.name not in parts]
        totals = self._combine(parts, verdicts, samples, self.weights(samples[0].step))
        if self.on_failure == "raise":
            for index, total in enumerate(totals):
                if total.outcome in FAILURES:
                    raise RewardError(
                        f"completion {samples[index].rollout_id or index} is unscored: {total.detail} (set "
                        "rewards.on_failure=exclude to continue without it)",
                        code="unscored_completion",
                    )
        return totals

    def reweigh(self, scores: Sequence[Score], samples: Sequence[Sample], step: int) -> list[Score]:
        """Return scores of this mixture with the weights of another step; components keep their scores."""
        parts = {c.name: [score.parts.get(c.name) for score in scores] for c in self.components}
        return self.score([replace(one, step=step) for one in samples], parts)

    def _in_order(self) -> list[Component]:
        """Return the components in the order of computation."""
        # Components are looked up each time, because rewards may have been replaced.
        by_name = {component.name: component for component in self.components}
        return [by_name[name] for name in self._order]

    def _combine(
        self, parts: Parts, verdicts: Verdicts, samples: Sequence[Sample], weights: Mapping[str, float]
    ) -> list[Score]:
        groups = [sample.group_id for sample in samples]
        terms = {
            c.name: make_terms(weights[c.name], parts[c.name], verdicts[c.name], c.transforms, groups)
            for c in self.components
        }
        names = tuple(terms)
        # Completions with the same Term objects have the same total, and share the mapping of terms.
        totals_of_terms: dict[tuple[int, ...], tuple[Mapping[str, Term], float | None, Outcome, str]] = {}
        totals = []
        columns = zip(*(parts[name] for name in names), strict=True), zip(*terms.values(), strict=True)
        for scores, put_in in zip(*columns, strict=True):
            key = tuple(map(id, put_in))
            if key not in totals_of_terms:
                by_name = dict(zip(names, put_in, strict=True))
                totals_of_terms[key] = (by_name, *total_of(by_name))
            totals.append(_total(names, scores, *totals_of_terms[key]))
        return totals

    # --- what trains -------------------------------------------------------------------------------------------------

    def totals(self, scores: Sequence[Score]) -> NDArray[np.float64]:
        """Return the totals that train: NaN for an unscored completion, or 0 if it failed under `on_failure="zero"`."""
        return totals_that_train(scores, self.on_failure)

    def advantages(self, scores: Sequence[Score], num_generations: int, scaling: str = "group") -> NDArray[np.float64]:
        """Return the advantage of each completion from this mixture's scores. Completions of a group are adjacent.

        `scaling` is `grpo.advantage_scaling`.
        """
        values_CB, weights_C = weighed(scores, self.on_failure)
        return compute_advantages(
            self.totals(scores), num_generations, scaling, values_CB=values_CB, weights_C=weights_C
        )

    def credited(
        self, samples: Sequence[Sample], scores: Sequence[Score], num_generations: int, scaling: str, credit: Credit
    ) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Return the advantages that train: [N] of the completions, and [N, K] of their turns or None.

        With credit by turn, the first are the means over the turns. The others are NaN after the last turn of each.
        """
        if not credit.is_by_turn:
            return self.advantages(scores, num_generations, scaling).astype(np.float32), None
        of_turns = self.turn_rewards(samples, scores, num_generations, credit).advantages(scaling)
        return mean_over_turns(of_turns).astype(np.float32), of_turns.astype(np.float32)

    def turn_rewards(
        self, samples: Sequence[Sample], scores: Sequence[Score], num_generations: int, credit: Credit
    ) -> TurnRewards:
        """Return what each turn earned, from this mixture's scores of episodes, for a credit by turn."""
        values_CB, weights_C = weighed(scores, self.on_failure)
        transformed = [component.name for component in self.components if component.transforms]
        return turn_rewards(
            samples, scores, self.totals(scores), values_CB, weights_C, num_generations, credit, transformed
        )

    # --- weights -----------------------------------------------------------------------------------------------------

    def weights(self, step: int) -> dict[str, float]:
        """Return the effective weight of each component at a training step."""
        return {c.name: weight_at(c.weight, step) for c in self.components}

    # --- before a run ------------------------------------------------------------------------------------------------

    def check_parameters(self, columns: Collection[str], fixed: Mapping[str, Any] | None = None) -> None:
        """Check that the dataset has what the components require.

        `fixed` holds the columns with one value in all rows. A component is not checked if its route excludes them.

        Raises:
            RewardSignatureError: A component requires a parameter that nothing provides.
            RewardError: A component is routed by a column that the dataset lacks.
        """
        for component in self.components:
            if component.route.excludes(fixed or {}):
                continue
            component.reward.check_parameters(columns)
            for column in component.route.wanted:
                if column not in columns:
                    raise RewardError(
                        f"`when` of component {component.name!r} requires the column {column!r}, which the dataset "
                        f"lacks; it has: {', '.join(sorted(columns))}",
                        code="invalid_mixture",
                    )

    def describe(self) -> str:
        """Return one line per component: name, weight, resolved reward, and when it counts."""
        return "\n".join(component.describe() for component in self.components)


def _decide_all(component: Component, samples: Sequence[Sample], parts: Parts, verdicts: Verdicts) -> list[GateVerdict]:
    """Decide on each sample whether a component counts: first by its route, then by its gate."""
    if not component.route.wanted and not component.requires:
        return [OPEN] * len(samples)
    decided = []
    for index, sample in enumerate(samples):
        obstacle = component.route.obstacle(sample.columns)
        if obstacle is not None:
            decided.append(GateVerdict(False, detail=obstacle))
        else:
            decided.append(decide(component.requires, index, parts, verdicts))
    return decided


def _known_scores(known: Parts, name: str, verdicts: Sequence[GateVerdict]) -> list[Score | None] | None:
    """Return the known scores of a component, or None if one is missing where it counts."""
    scores = known.get(name)
    if scores is None or any(verdict.is_open and part is None for part, verdict in zip(scores, verdicts, strict=True)):
        return None
    return [part if verdict.is_open else None for part, verdict in zip(scores, verdicts, strict=True)]


def _start(
    rewards: Mapping[str, Reward], samples: Sequence[Sample], verdicts: Verdicts
) -> tuple[dict[str, list[int]], dict[str, "Future[list[Score]]"]]:
    """Choose the samples for each of several independent components, and start those that run in the background.

    A component is computed where it counts, but not for an episode whose environment failed.

    Returns:
        The positions of each component's samples, and the futures of the components that were started.
    """
    places = {
        name: [place for place, verdict in enumerate(verdicts[name]) if verdict.is_open and not samples[place].fault]
        for name in rewards
    }
    futures = {
        name: reward.begin([samples[place] for place in places[name]])
        for name, reward in rewards.items()
        if places[name] and isinstance(reward, _Beginning)
    }
    return places, futures


def _spread(
    name: str,
    places: Sequence[int],
    own_scores: Sequence[Score],
    samples: Sequence[Sample],
    verdicts: Sequence[GateVerdict],
) -> list[Score | None]:
    """Return a component's scores at the positions of all samples. A failed environment gives an error."""
    if len(own_scores) != len(places):
        raise RewardError(
            f"component {name!r} must give one score for each of {len(places)} completions, but gave {len(own_scores)}",
            code="invalid_score",
        )
    scores = [
        Score.failed(Outcome.ERROR, sample.fault) if sample.fault and verdict.is_open else None
        for sample, verdict in zip(samples, verdicts, strict=True)
    ]
    for place, score in zip(places, own_scores, strict=True):
        scores[place] = check_turns(score, samples[place]) if score.turns else score
    return scores


def _total(
    names: Sequence[str],
    parts: Sequence[Score | None],
    terms: Mapping[str, Term],
    value: float | None,
    outcome: Outcome,
    detail: str,
) -> Score:
    """Return the score of one completion from its total. This runs for every completion."""
    present: dict[str, Score] = {}
    values: dict[str, float | None] = {}
    extras: dict[str, Any] = {}
    seconds = 0.0
    for name, part in zip(names, parts, strict=True):
        if part is None:
            values[name] = None
            continue
        present[name] = part
        values[name] = part.value
        seconds += part.seconds
        if part.extras:
            extras[name] = part.extras
    if value is not None:
        detail = describe_terms(present, terms)
    return Score(value, values, outcome, detail, extras, seconds, present, terms)
