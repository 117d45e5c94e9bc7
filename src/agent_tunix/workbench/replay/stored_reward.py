"""Reward of a stored run with one component replaced, rebuilt from the run's fingerprint without its code.

The stored results of the other components are reused. Gates, transforms and routes come from the fingerprint; the
weights are those with which each step was trained.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.mixture.gates import read_requires
from agent_tunix.rewards.mixture.routes import read_route
from agent_tunix.rewards.mixture.schedules import read_weight
from agent_tunix.rewards.sample import Reward
from agent_tunix.rewards.transforms import read_transforms
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.workbench.replay.replaying import RecordedStep, Unreplayable

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
    components: Mapping[str, Mapping[str, Any]], saved: UploadedSource, wanted: str | None = None
) -> Counterpart:
    """Return the counterpart of a function: `wanted`, or else the first of these that exists.

    1. The component that was trained with this very source.
    2. The component that was trained with an upload of the same name.
    3. The component with the function's name.
    4. The total.

    `components` come from the run's fingerprint; `wanted` is the name of a component, `total` or `saved`.

    Raises:
        Unreplayable: The run has no component of that name.
    """
    if wanted is not None and wanted in components:
        return Counterpart("component", wanted, "as asked")
    if wanted == TOTAL:
        return Counterpart("total", saved.name, "as asked")
    if wanted == SAVED:
        return Counterpart("saved", saved.name, "as asked")
    if wanted is not None:
        names = ", ".join(components) or "none in its fingerprint"
        raise Unreplayable(
            f"the run has no component {wanted!r}; use {names}, `{TOTAL}` or `{SAVED}`", code="invalid_mixture"
        )
    for name, of in components.items():
        if of.get("source") == saved.sha256[:_HASH_LENGTH]:
            return Counterpart("component", name, "the run was trained with this source")
    for name, of in components.items():
        # A function from a user's own file has this name too, but lists the file.
        if of.get("function") == f"{saved.name}.{saved.function}" and not of.get("files"):
            return Counterpart("component", name, "the run was trained with another version of this function")
    if saved.name in components:
        return Counterpart("component", saved.name, "it has the function's name")
    return Counterpart("total", saved.name, "no component of the run is this function, or has its name")


class StoredReward(Mixture):
    """Reward of a run with the component `name` replaced by `reward`.

    Args:
        components: Components from the run's fingerprint.
        on_failure: Treatment of completions that could not be scored.

    Raises:
        Unreplayable: The fingerprint does not describe a valid reward.
    """

    def __init__(self, components: Mapping[str, Mapping[str, Any]], name: str, reward: Reward, on_failure: str) -> None:
        self._weights: dict[str, float] = {}
        self._stored = {key: _StoredScores(key) for key in components if key != name}
        try:
            super().__init__(
                [_component(key, of, self._stored.get(key, reward)) for key, of in components.items()],
                on_failure=on_failure,
            )
        except (RewardError, AttributeError, TypeError) as error:
            raise Unreplayable(
                f"the run's reward is not known, because its environment.json cannot be read: {error}",
                code="unreadable_fingerprint",
            ) from error

    def following(self, steps: Iterable[RecordedStep]) -> Iterator[RecordedStep]:
        """Yield steps; until the next one, the reward has the weights and the stored scores of a step.

        Raises:
            Unreplayable: A step was scored by other components.
        """
        for recorded in steps:
            terms = next((score.terms for score in recorded.scores if score.terms), {})
            if terms.keys() != {component.name for component in self.components}:
                raise Unreplayable(
                    f"the completions of step {recorded.step} must have the components of the run's environment.json, "
                    f"but have {', '.join(terms) or 'nothing known'}; compare with the total",
                    code="unmatched_components",
                )
            self._weights = {name: term.weight for name, term in terms.items()}
            for stored in self._stored.values():
                stored.load(recorded)
            yield recorded

    def weights(self, step: int) -> dict[str, float]:
        """Return the weights of the step that is followed."""
        return dict(self._weights)


def _component(name: str, of: Mapping[str, Any], reward: Reward) -> Component:
    return Component(
        name,
        reward,
        weight=read_weight(name, of.get("weight", 1.0)),
        requires=read_requires(name, of.get("requires") or None),
        transforms=read_transforms(name, of.get("transform") or None),
        route=read_route(name, of.get("when") or None),
    )


class _StoredScores:
    """Component that returns the stored scores of a step's completions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._scores: dict[int, Score | None] = {}

    def load(self, recorded: RecordedStep) -> None:
        """Take the scores of a step, keyed by sample."""
        pairs = zip(recorded.samples, recorded.scores, strict=True)
        self._scores = {id(sample): score.parts.get(self.name) for sample, score in pairs}

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Return the stored scores; an error for completions without one."""
        detail = f"{self.name} was not computed for this completion in the run, but would now count"
        return [self._scores[id(sample)] or Score.failed(Outcome.ERROR, detail) for sample in samples]

    def check_parameters(self, columns: Collection[str]) -> None:
        """Accept any columns."""

    def describe(self) -> str:
        """Return a description."""
        return "as stored"
