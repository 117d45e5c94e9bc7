"""Gates: components that count only if other components passed.

    brevity: {function: conciseness, weight: 0.1, requires: {correct: 1.0}}

The gate of `brevity` is open if the raw value of `correct` is at least 1.0. With several requirements, all must be met.
If the gate is shut, the component is not computed and contributes exactly 0. A required component without a value
leaves the gate undecided, unless another requirement shuts it:

- If the required component failed, the gated one takes over its outcome, even if the failed one has weight 0. Nobody
  knows whether the gated component would have counted, so a 0 would be a guess.
- If the required component does not apply, the gated one does not apply either.
- If the required component's own gate is shut, it has not passed, so this gate is shut too.
"""

import graphlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent_tunix.errors import RewardError
from agent_tunix.rewards.rounding import lowest_reaching
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.rewards.transforms import is_number


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The decision of a gate or a route on one completion. If neither flag is set, `outcome` applies."""

    is_open: bool  # True if the component counts and is computed
    is_shut: bool = False  # True if it contributes 0
    outcome: Outcome = Outcome.NOT_APPLICABLE  # outcome of a component that does not count
    detail: str = ""


OPEN = GateVerdict(is_open=True)

Parts = Mapping[str, Sequence[Score | None]]
Verdicts = Mapping[str, Sequence[GateVerdict]]


def decide(requires: Mapping[str, float], index: int, parts: Parts, verdicts: Verdicts) -> GateVerdict:
    """Decide the gate of a component on one completion. `requires` maps components to their lowest passing raw values.

    Raises:
        RewardError: A required component counts but has no score.
    """
    undecided = None
    for name, least in requires.items():
        verdict, part = verdicts[name][index], parts[name][index]
        if verdict.is_shut:
            return GateVerdict(False, True, detail=f"gate shut, because that of {name} is")
        if verdict.is_open and part is None:
            raise RewardError(
                f"component {name!r} was not computed on completion {index}, but a gate requires it",
                code="invalid_mixture",
            )
        if verdict.is_open and part is not None and part.value is not None:
            if part.value < lowest_reaching(least):
                return GateVerdict(False, True, detail=f"gate shut: {name} {part.value:g} < {least:g}")
        elif undecided is None or undecided.outcome is Outcome.NOT_APPLICABLE:
            reason: Score | GateVerdict = part if verdict.is_open and part is not None else verdict
            undecided = GateVerdict(
                False, outcome=reason.outcome, detail=f"its gate requires {name!r}: {reason.detail}"
            )
    return undecided or OPEN


def order_of(requires: Mapping[str, Mapping[str, float]], costs: Mapping[str, float]) -> list[str]:
    """Return the order in which to compute components: each after those it requires, else cheapest first.

    `requires` maps each component to the components that it requires, each with its minimum raw value. Costs have any
    unit. Equal costs keep the order of `requires`.

    Raises:
        RewardError: A required component does not exist, or a component requires itself, directly or through others.
    """
    position = {name: index for index, name in enumerate(requires)}
    for name, gates in requires.items():
        for other in gates:
            if other not in requires:
                raise RewardError(
                    f"component {name!r} requires {other!r}, which is not a component; the components are: "
                    f"{', '.join(requires)}",
                    code="invalid_mixture",
                )
    sorter = graphlib.TopologicalSorter(requires)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        raise RewardError(
            f"components require each other in a circle: {', '.join(error.args[1])}", code="invalid_mixture"
        ) from None
    candidates: list[str] = []
    order: list[str] = []
    while sorter.is_active():
        candidates += sorter.get_ready()
        order.append(min(candidates, key=lambda name: (costs[name], position[name])))
        candidates.remove(order[-1])
        sorter.done(order[-1])
    return order


def read_requires(component: str, value: object) -> dict[str, float]:
    """Read a component's `requires`: None, or a mapping of components to lowest values; else raise RewardError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not value or not all(map(is_number, value.values())):
        raise RewardError(
            f"`requires` of component {component!r} must map another component to its least value, for example "
            f"{{correct: 1.0}}, not {value!r}",
            code="invalid_mixture",
        )
    return {str(name): float(least) for name, least in value.items()}
