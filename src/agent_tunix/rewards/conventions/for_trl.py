"""A reward of this package as a reward function of TRL's `GRPOTrainer`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.sample import Sample

TrlFunction = Callable[..., list[float | None]]


def to_trl(reward: Mixture, *, format: str = "") -> TrlFunction:
    """Return a function for `GRPOTrainer(reward_funcs=[…])` that gives the total of a reward.

    A completion without a score gets None, which TRL leaves out. The mean raw value of each component is logged through
    TRL's `log_metric`. Consecutive completions of one prompt are a group.

    Args:
        reward: The reward, from `resolve_reward`. It runs in workers if `make_runner` placed it there.
        format: The template that a response should follow, for rewards of form.

    Example:
        >>> reward = to_trl(resolve_reward({"correct": "math", "tags": {"function": "tag_count", "weight": 0.1}}))
        >>> reward(prompts=["2 + 2?"], completions=["<answer>4</answer>"], answer=["4"])
        [1.05]
    """

    def score(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        of_rows = {name: values for name, values in columns.items() if _is_of_rows(values, len(completions))}
        samples = _samples(prompts, completions, completion_ids, trainer_state, of_rows, format)
        scores = reward.score(samples)
        if log_metric is not None:
            for component in reward.components:
                values = [one.components.get(component.name) for one in scores]
                if numbers := [value for value in values if value is not None]:
                    log_metric(f"{component.name}/mean", statistics.fmean(numbers))
        return [one.value for one in scores]

    score.__name__ = reward.name
    return score


def _samples(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    completion_ids: Sequence[Sequence[int]] | None,
    trainer_state: Any,
    columns: Mapping[str, Sequence[Any]],
    format: str,
) -> list[Sample]:
    samples: list[Sample] = []
    group = 0
    for row, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
        group += row > 0 and prompt != prompts[row - 1]
        tokens = tuple(completion_ids[row]) if completion_ids is not None else ()
        step = getattr(trainer_state, "global_step", -1) + 1
        samples.append(
            Sample(
                response=_text(completion),
                prompt=_text(prompt),
                messages=(*_messages(prompt, "user"), *_messages(completion, "assistant")),
                columns={name: values[row] for name, values in columns.items() if values[row] is not None},
                format=format,
                step=step,
                max_steps=getattr(trainer_state, "max_steps", 0),
                group_id=group,
                rollout_id=f"{step}_{group}_{row}",
                num_tokens=len(tokens),
                tokens=tokens,
                index=row,
            )
        )
    return samples


def _is_of_rows(values: Any, count: int) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and len(values) == count


def _text(value: Any) -> str:
    """Return a text unchanged; of messages, return the content of the last."""
    return value if isinstance(value, str) else str(value[-1]["content"])


def _messages(value: Any, role: str) -> tuple[Mapping[str, Any], ...]:
    return ({"role": role, "content": value},) if isinstance(value, str) else tuple(map(dict, value))
