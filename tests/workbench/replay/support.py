"""Steps as a run would have stored them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_tunix.rewards import Mixture, Sample
from agent_tunix.workbench.replay import RecordedStep

G = 4


def samples_of(step: int, rows: Sequence[dict[str, Any]]) -> list[Sample]:
    return [
        Sample(f"text {i}", columns=row, group_id=i // G, step=step, max_steps=9, rollout_id=f"{step}_{i // G}_{i % G}")
        for i, row in enumerate(rows)
    ]


def record(
    mixture: Mixture, step: int, rows: Sequence[dict[str, Any]], scaling: str = "group", whole: bool = True
) -> RecordedStep:
    """The record that training with a mixture would have stored of a step."""
    samples = samples_of(step, rows)
    scores = mixture.score(samples)
    advantages = mixture.advantages(scores, G, scaling).astype(np.float32)
    return RecordedStep(step, samples, scores, mixture.totals(scores), advantages, whole)
