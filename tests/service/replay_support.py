"""Runs that were trained with an uploaded function, made by scoring and storing as training does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config, RolloutsConfig
from agent_tunix.rewards import Mixture, Sample, fingerprint, resolve_reward
from agent_tunix.rewards.execution import ExecutionSettings, Runner
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.tracking.live_run import LiveRun
from agent_tunix.tracking.rollouts import RolloutWriter, ScoringSettings, StoredStep

G = 4
ID = f"rf_{'a' * 24}"
PROMPT = "Say something polite about {}."

POLITENESS = b"""\
def reward(completions, **kwargs):
    return [completion.count("please") / 4 for completion in completions]
"""
# Twice as much for the same words: other values and totals, the same order.
DOUBLED = POLITENESS.replace(b"/ 4", b"/ 2")
# The most polite come last.
REVERSED = POLITENESS.replace(b'completion.count("please") / 4', b'1 - completion.count("please") / 4')

MIXED: Mapping[str, Any] = {
    "polite": {"function": ID, "weight": {"from": 0.5, "to": 1.0, "steps": [1, 5]}, "transform": {"clip": [0.0, 0.5]}},
    "correct": "math",
    "brevity": {"function": "conciseness", "weight": 0.1, "requires": {"correct": 1.0}},
}


def saved(source: bytes = POLITENESS, name: str = "politeness", id: str = ID) -> UploadedSource:
    return UploadedSource(id, name, "trl", 1, source, "a test")


def resolve(spec: Any, source: UploadedSource) -> Mixture:
    return resolve_reward(spec, fetch=lambda named: source if named == source.id else None, completions="text")


def samples_of(step: int, groups: int, columns: Mapping[str, Any]) -> list[Sample]:
    samples = []
    for place in range(groups * G):
        group, number = divmod(place, G)
        prompt = PROMPT.format(group)
        response = f"{'please ' * number}<answer>{group + number % 2}</answer>"
        samples.append(
            Sample(
                response,
                prompt=prompt,
                messages=({"role": "user", "content": prompt}, {"role": "assistant", "content": response}),
                columns={"answer": str(group), "level": number, **columns},
                format="<answer>{answer}</answer>",
                step=step,
                max_steps=10,
                group_id=group,
                rollout_id=f"{step}_{group}_{number}",
                num_tokens=3,
                tokens=(1, 2, 3),
            )
        )
    return samples


def write_run(
    root: Path,
    spec: Any = None,
    *,
    num_steps: int = 5,
    groups: int = 3,
    source: UploadedSource | None = None,
    scaling: str = "group",
    on_failure: str = "exclude",
    columns: Mapping[str, Any] | None = None,
) -> LiveRun:
    """Write a run whose completions are scored by a reward, in workers if it is uploaded.

    Args:
        root: Its directory.
        spec: `training.reward_function`; None: the uploaded function alone.
        num_steps: Steps.
        groups: Groups of each step.
        source: The function `rf_…`; None: `saved()`.
        scaling: `grpo.advantage_scaling`.
        on_failure: `rewards.on_failure`.
        columns: Columns of the dataset, besides `answer` and `level`.
    """
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(to_yaml(Config()), encoding="utf-8")
    (root / "metrics.jsonl").touch()
    mixture = resolve(ID if spec is None else spec, source or saved())
    environment = {"reward_fingerprint": fingerprint(mixture).to_data()}
    (root / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    with (
        Runner(mixture, ExecutionSettings("auto", num_workers=1)) as runner,
        RolloutWriter(root / "rollouts", RolloutsConfig(), seed=0) as writer,
    ):
        for step in range(1, num_steps + 1):
            samples = samples_of(step, groups, columns or {})
            scores = runner.reward.score(samples)
            writer.write(
                StoredStep(
                    step=step,
                    samples=samples,
                    scores=scores,
                    advantages=runner.reward.advantages(scores, G, scaling).astype(np.float32),
                    logprobs=np.zeros(len(samples), np.float32),
                    settings=ScoringSettings(G, scaling, on_failure, "0123456789abcdef"),
                    groups_in_step=groups,
                )
            )
    return LiveRun(root)
