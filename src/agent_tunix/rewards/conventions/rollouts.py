"""Types of newer benchmax environments, served by `shims` where benchmax is not installed.

They pass a finished rollout as one object: `compute_reward(rollout)` and `compute_group_rewards(rollouts)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

Payload = TypeVar("Payload")

DatasetSplit = Literal["train", "eval"]
RewardMap = Mapping[str, float]
JsonRow = dict[str, Any]
Message = dict[str, Any]
Messages = list[Message]
Tool = dict[str, Any]  # in OpenAI's form

# Reasons of this package → benchmax's.
_REASONS = {
    "environment_done": "finished",
    "max_turns": "max_turns_exceeded",
    "max_turn_tokens": "output_exceeded",
    "max_episode_tokens": "context_exceeded",
}


class RolloutFailure(RuntimeError):
    """Error of an environment that could not finish or score a rollout."""

    def __init__(self, termination_reason: str, message: str) -> None:
        super().__init__(message)
        self.termination_reason = termination_reason


@dataclass(frozen=True, slots=True)
class RolloutExample(Generic[Payload]):
    """A row: its `prompt_messages`, and all other columns."""

    id: str
    payload: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutAttempt:
    """A finished rollout. `rewards` are those of `compute_reward`, which a group method may read."""

    rollout_id: str
    termination_reason: str
    rewards: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRollout(RolloutAttempt):
    """A finished conversation, with the columns of its row."""

    messages: Messages
    example_args: Mapping[str, Any]
    split: DatasetSplit = "train"


def termination_reason_in_benchmax(reason: str) -> str:
    """Return benchmax's name for the reason why a rollout ended."""
    return _REASONS.get(reason, reason)
