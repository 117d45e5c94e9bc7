"""Settings of preference tuning with the defaults of the chosen loss, and the checks of the group `prefer`."""

from collections.abc import Iterator
from dataclasses import dataclass

from agent_tunix.config.schema import PreferConfig

_BETAS = {"dpo": 0.1, "simpo": 2.0, "ipo": 0.1}
_SIMPO_GAMMA = 1.0


@dataclass(frozen=True)
class PreferenceSettings:
    """The loss of preference tuning and its parameters."""

    loss: str  # dpo, simpo or ipo
    beta: float
    gamma: float  # margin of the rewards; 0 except in simpo
    label_smoothing: float
    has_reference: bool  # True to compare with the policy before training


def preference_settings(prefer: PreferConfig) -> PreferenceSettings:
    """Return the settings, with defaults in place of nulls."""
    gamma = 0.0
    if prefer.loss == "simpo":
        gamma = _SIMPO_GAMMA if prefer.gamma is None else prefer.gamma
    return PreferenceSettings(
        prefer.loss,
        _BETAS[prefer.loss] if prefer.beta is None else prefer.beta,
        gamma,
        prefer.label_smoothing,
        prefer.loss != "simpo" if prefer.reference is None else prefer.reference,
    )


def preference_problems(prefer: PreferConfig) -> Iterator[str]:
    """Yield a line for each key that the chosen loss does not read."""
    if prefer.loss != "simpo" and prefer.gamma is not None:
        yield f"prefer.gamma must be null with prefer.loss={prefer.loss}, which has no margin; remove it"
    if prefer.loss == "simpo" and prefer.reference:
        yield (
            "prefer.reference must be null or false with prefer.loss=simpo, which has no reference policy; remove it, "
            "or use prefer.loss=dpo"
        )
    if prefer.loss == "ipo" and prefer.label_smoothing > 0:
        yield "prefer.label_smoothing must be 0 with prefer.loss=ipo, which has no label noise; set it to 0"
