"""Reward of a stored run with one component replaced, rebuilt from the run's fingerprint without its code.

The stored results of the other components are reused. Gates, transforms and routes come from the fingerprint; the
weights are those with which each step was trained.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.mixture.gates import read_requires
from agent_tunix.rewards.mixture.routes import read_route
from agent_tunix.rewards.mixture.schedules import read_weight
from agent_tunix.rewards.sample import Reward
from agent_tunix.rewards.transforms import read_transforms
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.workbench.replay import RecordedStep, Unreplayable

# Choices besides the names of components.
TOTAL = "total"
SAVED = "saved"

_HASH_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Counterpart:
    """Opposite side of a comparison with a changed function."""

    # `component`: the function replaces one component of the run's reward; `total`: it replaces the whole reward;
    # `saved`: it is compared with the saved source, scored again, each as the whole reward.
    kind: Literal["component", "total", "saved"]
    name: str  # name of the component, else of the function
    reason: str

    @property
    def is_component(self) -> bool:
        """True if it is one component of the run's reward."""
        return self.kind == "component"


def choose_counterpart(
    components: Mapping[str, Mapping[str, Any]], saved: UploadedSource, asked: str | None = None
) -> Counterpart:
    """Return the counterpart of a function: `asked`, or else the first of these that exists.

    1. The component that was trained with this very source.
    2. The component that was trained with an upload of the same name.
    3. The component with the function's name.
    4. The total.

    `components` come from the run's fingerprint; `asked` is the name of a component, `total` or `saved`.

    Raises:
        Unreplayable: The run has no component of that name.
    """
    if asked is not None and asked in components:
        return Counterpart("component", asked, "as asked")
    if asked == TOTAL:
        return Counterpart("total", saved.name, "as asked")
    if asked == SAVED:
        return Counterpart("saved", saved.name, "as asked")
    if asked is not None:
        names = ", ".join(components) or "none in its fingerprint"
        raise Unreplayable(
            f"the run has no component {asked!r}; use {names}, `{TOTAL}` or `{SAVED}`",
            code="unknown_component",
        )
    for name, of in components.items():
        if of.get("source") == saved.sha256[:_HASH_LENGTH]:
            return Counterpart("component", name, "the run was trained with this source")
    for name, of in components.items():
        # A function from a user's own file has this name too, but lists the file.
        if of.get("function") == f"{saved.name}.reward" and not of.get("files"):
            return Counterpart("component", name, "the run was trained with another version of this function")
    if saved.name in components:
        return Counterpart("component", saved.name, "it has the function's name")
    return Counterpart("total", saved.name, "no component of the run is this function, or has its name")


class StoredReward:
    """Reward of a run with the component `name` replaced by `reward`.

    Args:
        components: Components from the run's fingerprint.
        on_failure: Treatment of completions that could not be scored.

    Raises:
        Unreplayable: The fingerprint does not describe a valid reward.
    """

    def __init__(self, components: Mapping[str, Mapping[str, Any]], name: str, reward: Reward, on_failure: str) -> None:
        self._name = name
        try:
            self._components = [_component(key, of, reward) for key, of in components.items()]
        except (RewardError, AttributeError, TypeError) as error:
            raise Unreplayable(
                f"the run's reward is not known, because its environment.json cannot be read: {error}",
                code="unreadable_fingerprint",
            ) from error
        self._on_failure = on_failure

    def at(self, recorded: RecordedStep) -> Mixture:
        """Return the reward at a step, with the weights of that step and the stored results of the other components.

        Raises:
            Unreplayable: The step was scored by other components.
        """
        terms = next((score.terms for score in recorded.scores if score.terms), {})
        if terms.keys() != {component.name for component in self._components}:
            raise Unreplayable(
                f"the completions of step {recorded.step} must have the components of the run's environment.json, "
                f"but have {', '.join(terms) or 'nothing known'}; compare with the total",
                code="unmatched_components",
            )
        weights = {name: term.weight for name, term in terms.items()}
        components = [
            one if one.name == self._name else replace(one, reward=_Remembered(one.name, recorded))
            for one in self._components
        ]
        try:
            return _Weighed(components, weights, self._on_failure)
        except RewardError as error:
            raise Unreplayable(
                f"the run's reward is not known, because its environment.json cannot be read: {error}",
                code="unreadable_fingerprint",
            ) from error


def _component(name: str, of: Mapping[str, Any], reward: Reward) -> Component:
    return Component(
        name,
        reward,
        weight=read_weight(name, of.get("weight", 1.0)),
        requires=read_requires(name, of.get("requires") or None),
        transforms=read_transforms(name, of.get("transform") or None),
        route=read_route(name, of.get("when") or None),
    )


class _Weighed(Mixture):
    """Mixture with the weights of one step."""

    def __init__(self, components: Sequence[Component], weights: Mapping[str, float], on_failure: str) -> None:
        super().__init__(components, on_failure=on_failure)
        self._weights = weights

    def weights(self, step: int) -> dict[str, float]:
        """Return the weights of the step."""
        return dict(self._weights)


class _Remembered:
    """Component that returns the stored scores of a step's completions."""

    def __init__(self, name: str, recorded: RecordedStep) -> None:
        self.name = name
        # Keyed by object: rollout ids of damaged files need not be unique.
        self._said = {
            id(sample): score.parts.get(name) for sample, score in zip(recorded.samples, recorded.scores, strict=True)
        }

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Return the stored scores; an error for completions without one."""
        detail = f"{self.name} was not computed for this completion in the run, but would now count"
        return [self._said[id(sample)] or Score.failed(Outcome.ERROR, detail) for sample in samples]

    def check_parameters(self, columns: Collection[str]) -> None:
        """Accept any columns."""

    def describe(self) -> str:
        """Return a description."""
        return "as stored"
