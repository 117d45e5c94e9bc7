"""Facts that a diagnosis needs besides a run's metrics: the reward and some settings, as plain data.

A run stores them beside its metrics, so it can be diagnosed when the files of its reward are no longer available.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from agent_tunix.errors import RewardError
from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import Range, component_kind, declared_range, range_in_run
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.mixture.schedules import Schedule, may_train

SETTINGS = (
    "environment.max_episode_tokens",
    "environment.max_turn_tokens",
    "environment.max_turns",
    "evaluation.correct",
    "generation.max_generation_steps",
    "generation.temperature",
    "grpo.advantage_scaling",
    "grpo.beta",
    "grpo.num_generations",
    "optimizer.learning_rate",
    "rewards.on_failure",
    "rewards.timeout_s",
    "training.batch_size",
)
"""Configuration keys that detectors read or advise to change."""


@dataclass(frozen=True, slots=True)
class ComponentContext:
    """A component of the reward."""

    name: str  # its key, and its leaf among the metrics
    kind: str | None = None  # kind that it declares; None without one
    range: Range | None = None  # range that it declares; None without one
    weight: float = 1.0  # factor in the total; with a schedule, the final one
    trains: bool = True  # True if its weight is not 0 at some step
    schedule: tuple[float, float] | None = None  # first and last step of its schedule; None if the weight is constant
    start_weight: float | None = None
    requires: Mapping[str, float] = field(default_factory=dict)  # its gate
    transforms: bool = False  # True if its raw values are transformed before weighting
    # The component as a mapping of the configuration: `function`, `weight` and so on.
    written: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_correctness(self) -> bool:
        """True if it measures only whether an answer is right."""
        return self.kind == Kind.CORRECTNESS


@dataclass(frozen=True)
class RunContext:
    """Facts about a run for its diagnosis."""

    components: tuple[ComponentContext, ...]
    range: Range | None = None  # range of the total over all steps; None if it is not declared
    num_steps: int = 0
    warmup_steps: int = 0  # steps over which the learning rate rises
    settings: Mapping[str, Any] = field(default_factory=dict)  # known values of `SETTINGS`, by configuration key
    # Key that holds the components: `reward.components` or `training.reward_function`.
    reward_key: str = "training.reward_function"

    @classmethod
    def of(
        cls,
        mixture: Mixture,
        *,
        written: Mapping[str, Mapping[str, Any]],
        reward_key: str = "training.reward_function",
        num_steps: int = 0,
        warmup_steps: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Return the context of a run of a mixture.

        `written` has each component as a mapping of the configuration (`resolve.read_components`). Of `settings`, only
        the keys of `SETTINGS` are kept.
        """
        return cls(
            tuple(_component(component, written.get(component.name, {})) for component in mixture.components),
            _finite(_known(range_in_run, mixture)),
            num_steps,
            warmup_steps,
            {key: value for key, value in (settings or {}).items() if key in SETTINGS},
            reward_key,
        )

    def component(self, name: str) -> ComponentContext:
        """Return the component with a name."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> Mapping[str, ComponentContext]:
        return {component.name: component for component in self.components}

    @property
    def training(self) -> tuple[ComponentContext, ...]:
        """Components whose weight is not 0 at some step."""
        return tuple(component for component in self.components if component.trains)

    @property
    def oracles(self) -> tuple[ComponentContext, ...]:
        """Components of weight 0, except those of form or length. They may show whether the policy gets better."""
        return tuple(c for c in self.components if not c.trains and c.kind not in (Kind.FORM, Kind.LENGTH))

    def number(self, key: str, default: float) -> float:
        """Return a numeric setting, or the default if it is not a number."""
        value = self.settings.get(key)
        return float(value) if isinstance(value, int | float) else default

    @property
    def num_generations(self) -> int:
        """G, the completions of a group."""
        return int(self.number("grpo.num_generations", 1))

    @property
    def num_prompts(self) -> int:
        """Prompts per step."""
        return int(self.number("training.batch_size", 1))

    def to_data(self) -> dict[str, Any]:
        """Return the context as JSON data."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the context that `to_data` stored; raise ValueError for any other data."""
        try:
            components = tuple(
                ComponentContext(**{**c, "range": _pair(c["range"]), "schedule": _pair(c["schedule"])})
                for c in data["components"]
            )
            names = {component.name for component in components}
            if not all(names.issuperset(component.requires) for component in components):
                raise ValueError("a component requires one that does not exist")
            return cls(**{**data, "components": components, "range": _pair(data["range"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is not the context of a run: {error!r}") from error


def _component(component: Any, written: Mapping[str, Any]) -> ComponentContext:
    weight = component.weight
    scheduled = isinstance(weight, Schedule)
    kind = _known(component_kind, component)
    return ComponentContext(
        name=component.name,
        kind=None if kind is None else str(kind),
        range=_finite(_known(declared_range, component.reward)),
        weight=weight.end if scheduled else float(weight),
        trains=may_train(weight),
        schedule=weight.bounds if scheduled else None,
        start_weight=weight.start if scheduled else None,
        requires=dict(component.requires),
        transforms=bool(component.transforms),
        written=dict(written),
    )


def _known(ask: Any, declaring: Any) -> Any:
    """Return a declaration of a reward; None if it is invalid. An invalid declaration does not stop a run."""
    try:
        return ask(declaring)
    except RewardError:
        return None


def _finite(span: Range | None) -> Range | None:
    """Return a range with finite bounds; None for any other."""
    return span if span is not None and all(map(math.isfinite, span)) else None


def _pair(values: Sequence[float] | None) -> tuple[float, float] | None:
    return None if values is None else (float(values[0]), float(values[1]))
