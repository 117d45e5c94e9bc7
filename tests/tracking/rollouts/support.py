"""Steps to store, and whether what was read is what was written, to the bit."""

import dataclasses
import functools
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.config.schema import RolloutsConfig
from agent_tunix.rewards import Mixture, Sample, Score, resolve_reward
from agent_tunix.tracking.rollouts import RolloutWriter, ScoringSettings, StoredStep

GENERATIONS = 2


@functools.cache
def mixture() -> Mixture:
    """Three components, one of them gated."""
    brevity = {"function": "conciseness", "weight": 0.1, "requires": {"correct": 1.0}}
    return resolve_reward({"correct": "math", "tags": "format", "brevity": brevity}, working_directory=Path.cwd())


def make_samples(step: int, groups: int = 2, generations: int = GENERATIONS) -> list[Sample]:
    """Half of them right."""
    samples = []
    for group in range(groups):
        question = {"role": "user", "content": f"What is {step} + {group}?"}
        columns = {"answer": str(step + group), "question": question["content"]}
        for number in range(generations):
            response = f"<answer>{step + group + number % 2}</answer>"
            samples.append(
                Sample(
                    response=response,
                    prompt=question["content"],
                    messages=(question, {"role": "assistant", "content": response}),
                    columns=columns,
                    format="<answer>{answer}</answer>",
                    step=step,
                    max_steps=100,
                    group_id=group,
                    rollout_id=f"{step}_{group}_{number}",
                    num_tokens=3 + number,
                    ended=number == 0,
                    tokens=tuple(range(3 + number)),
                )
            )
    return samples


def make_step(
    step: int, groups: int = 2, *, samples: Sequence[Sample] | None = None, scores: Sequence[Score] | None = None
) -> StoredStep:
    """A step scored by `mixture`, unless told otherwise."""
    mix = mixture()
    samples = make_samples(step, groups) if samples is None else samples
    scores = [in_no_time(score) for score in mix.score(samples)] if scores is None else scores
    num_groups = len({sample.group_id for sample in samples})
    return StoredStep(
        step=step,
        samples=samples,
        scores=scores,
        advantages=np.linspace(-1, 1, len(samples), dtype=np.float32),
        logprobs=-np.arange(1, len(samples) + 1, dtype=np.float32) / 3,
        settings=ScoringSettings(GENERATIONS, "group", "exclude", "0123456789abcdef"),
        groups_in_step=num_groups,
    )


def in_no_time(score: Score) -> Score:
    """What scoring again gives, timings included."""
    parts = {name: in_no_time(part) for name, part in score.parts.items()}
    return dataclasses.replace(score, seconds=0.25, parts=parts)


def write(directory: Path, *steps: StoredStep, flush_after: Sequence[int] = (), **settings: Any) -> RolloutWriter:
    """Write steps, with a flush after some, and close."""
    with RolloutWriter(directory, RolloutsConfig(**settings), seed=0) as writer:
        for stored in steps:
            writer.write(stored)
            if stored.step in flush_after:
                writer.flush()
    return writer


def names(directory: Path) -> list[str]:
    """Everything that lies there, hidden files included."""
    return sorted(path.name for path in directory.iterdir())


def assert_same_step(found: StoredStep, expected: StoredStep) -> None:
    """To the bit, and every type alike."""
    for field in dataclasses.fields(StoredStep):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        assert same(one if field.name == "settings" else _listed(one), _listed(other)), field.name


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) else value


def same(one: Any, other: Any) -> bool:
    """Equal, of the same type, and for floating point of the same bits (any NaN equals any other)."""
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and same(one.tolist(), other.tolist())
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and _same_items(dict(one), dict(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, float | np.floating):
        return (math.isnan(one) and math.isnan(other)) or struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _same_items(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
