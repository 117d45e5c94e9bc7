"""Runs made by hand for the tests of reports: real files of every kind, without training."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config, RolloutsConfig
from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score, summarise
from agent_tunix.rewards.sample import Term
from agent_tunix.tracking.metrics_file import MetricsFile
from agent_tunix.tracking.rollouts import RolloutWriter, ScoringSettings, StoredStep
from agent_tunix.tracking.stored_run import StoredRun
from tests.rewards.agents import AGENT

G = 4

Respond = Callable[[int, int], str]


@functools.cache
def default_config() -> str:
    """Return the configuration of a run without overrides."""
    return to_yaml(Config())


def plain_response(step: int, place: int) -> str:
    return f"<reasoning>3*{place}={3 * place}</reasoning><answer>{3 * place}</answer>"


def as_episode(sample: Sample, text: str) -> Sample:
    """Return the sample as the last turn of an episode, in which a text is tool, argument, result, reply and fault.

    The calls are a good one and a malformed one, in one turn. The episodes of odd steps end by a fault. The first
    episode of a group is an agent's, which forks.
    """
    function = {"name": text, "arguments": json.dumps({"expression": text})}
    messages = (
        {"role": "user", "content": sample.prompt},
        {"role": "assistant", "content": "First.", "tool_calls": [{"id": "0", "function": function}]},
        {"role": "tool", "tool_call_id": "0", "name": text, "content": f"the result {text}"},
        {"role": "tool", "tool_call_id": "1", "name": "", "content": "Error: malformed"},
        {"role": "user", "content": f"reply {text}"},
        {"role": "assistant", "content": sample.response},
    )
    calls = (
        {"turn": 0, "name": text, "outcome": "ok", "seconds": 0.25},
        {"turn": 0, "name": "", "outcome": "malformed", "seconds": 0.0},
    )
    stop, error = ("error", f"fault {text}") if sample.step % 2 else ("finished", "")
    episode = EpisodeSummary(stop, 2, 1, calls, None, error)
    if sample.rollout_id.endswith("_0"):
        calls_of_agent = [{**call, "reply": text, "first_difference": text} for call in AGENT["calls"]]
        episode = dataclasses.replace(episode, agent={**AGENT, "calls": calls_of_agent})
    return dataclasses.replace(sample, messages=messages, episode=episode)


def write_run(
    root: Path,
    num_steps: int = 6,
    components: Sequence[str] = ("correct", "brevity"),
    *,
    num_prompts: int = 2,
    respond: Respond = plain_response,
    unscored_share: float = 0.0,
    findings: Sequence[Mapping[str, Any]] = (),
    max_steps: int | None = None,
    episodes_of: str = "",
) -> StoredRun:
    """A run whose first component is learned and may time out, and whose others hover; without steps, no rows.

    With `episodes_of`, its completions are episodes of `as_episode`.
    """
    root.mkdir(parents=True)
    (root / "config.yaml").write_text(default_config(), encoding="utf-8")
    environment = {
        "started": "2026-01-02T03:04:05+00:00",
        "devices": ["TFRT_CPU_0"],
        "versions": {"agent_tunix": "0.1.0"},
        "reward": " + ".join(components),
        "reward_fingerprint": {"hash": "0123456789ab"},
    }
    (root / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    if findings:
        (root / "findings.jsonl").write_text("".join(json.dumps(finding) + "\n" for finding in findings))
    if not num_steps:
        return StoredRun(root)
    random = np.random.default_rng(0)
    with (
        MetricsFile(root / "metrics.jsonl") as metrics,
        RolloutWriter(root / "rollouts", RolloutsConfig(), seed=0) as writer,
    ):
        metrics.write(0, {"eval/accuracy": 0.2, "eval/format_accuracy": 0.9})
        for step in range(1, num_steps + 1):
            stored = _make_step(
                step, components, num_prompts, respond, unscored_share, random, max_steps or num_steps, step / num_steps
            )
            if episodes_of:
                samples = [as_episode(sample, episodes_of) for sample in stored.samples]
                stored = dataclasses.replace(stored, samples=samples)
            row = _make_row(stored, components)
            if step == num_steps:
                row |= {"eval/accuracy": 0.95, "eval/format_accuracy": 1.0}
            metrics.write(step, row)
            writer.write(stored)
    return StoredRun(root)


def weights_of(components: Sequence[str]) -> dict[str, float]:
    weights = dict.fromkeys(components, 1.0)
    if len(components) > 1:
        weights[components[-1]] = -0.5
    return weights


def _make_step(
    step: int,
    components: Sequence[str],
    num_prompts: int,
    respond: Respond,
    unscored_share: float,
    random: np.random.Generator,
    max_steps: int,
    progress: float,
) -> StoredStep:
    weights = weights_of(components)
    samples, scores = [], []
    for place in range(num_prompts * G):
        group, generation = divmod(place, G)
        response = respond(step, place)
        samples.append(
            Sample(
                response=response,
                prompt=f"What is 3 times {place // G}?",
                columns={"answer": str(3 * place)},
                step=step,
                max_steps=max_steps,
                group_id=group,
                rollout_id=f"{step}_{group}_{generation}",
                num_tokens=5 + len(response) // 4,
                ended=bool(random.random() > 0.1),
            )
        )
        values = {name: float(np.round(random.random(), 3)) for name in components[1:]}
        values = {components[0]: float(random.random() < 0.2 + 0.7 * progress)} | values
        failed = random.random() < unscored_share
        parts = {name: Score(value, detail=f"{name} said {value}") for name, value in values.items()}
        terms = {name: Term(weights[name], value) for name, value in values.items()}
        if failed:
            parts[components[0]] = Score.failed(Outcome.TIMEOUT, "took longer than 10 s")
            terms[components[0]] = Term(1.0, None, Outcome.TIMEOUT)
        known = {name: part.value for name, part in parts.items()}
        total = None if failed else sum(term.contribution for term in terms.values())
        scores.append(
            Score(
                total,
                components=known,
                outcome=Outcome.TIMEOUT if failed else Outcome.SCORED,
                detail=f"{components[0]} took longer than 10 s" if failed else "",
                parts=parts,
                terms=terms,
            )
        )
    totals = np.array([np.nan if score.value is None else score.value for score in scores])
    advantages = np.nan_to_num(totals - np.nanmean(totals)) if np.isfinite(totals).any() else np.zeros(len(totals))
    return StoredStep(
        step,
        samples,
        scores,
        advantages.astype(np.float32),
        np.full(len(samples), np.nan, np.float32),
        ScoringSettings(G),
        num_prompts,
    )


def _make_row(stored: StoredStep, components: Sequence[str]) -> dict[str, Any]:
    totals = np.array([np.nan if score.value is None else score.value for score in stored.scores])
    row: dict[str, Any] = summarise(
        stored.scores, totals, stored.advantages, num_generations=G, weights=weights_of(components), detailed=True
    )
    for name in ("total", *components):
        values = [score.value if name == "total" else score.components[name] for score in stored.scores]
        known = [value for value in values if value is not None]
        for percent in (10, 50, 90):
            row[f"rewards/{name}/p{percent}"] = float(np.percentile(known, percent)) if known else None
        row[f"rewards/{name}/length_correlation"] = None
    for index, name in enumerate(components):
        share = 1.0 if len(components) == 1 else 1.2 / (len(components) - 1)
        row[f"rewards/{name}/advantage_share"] = share if len(components) == 1 or index < len(components) - 1 else -0.2
        row[f"rewards/{name}/conflict_share"] = 0.1 * index
    for first, second in itertools.pairwise(components):
        row[f"rewards/conflicts/{first}/{second}"] = 0.25
    row |= {f"rewards/groups/{kind}": 0.1 for kind in ("all_highest", "all_lowest", "tied", "unscored")}
    lengths = [sample.num_tokens for sample in stored.samples]
    row |= {
        "completions/length_mean": float(np.mean(lengths)),
        "completions/length_max": max(lengths),
        "completions/clipped_share": 0.1,
        "completions/distinct_share": 0.8,
        "policy/loss": 0.01 / stored.step,
        "policy/kl": 0.001 * stored.step,
        "policy/clip_share": 0.0,
        "policy/entropy": 1.0 / stored.step,
        "policy/grad_norm": 0.5,
        "policy/learning_rate": 1e-4,
        "time/rollout_s": 0.8,
        "time/reward_s": 0.1,
        "time/update_s": 0.6,
        "time/step_s": 1.5,
        "throughput/tokens_per_s": 900.0,
    }
    return row
