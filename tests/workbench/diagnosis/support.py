"""Made-up runs: rows as a step of 16 prompts × 8 completions would write them, healthy unless told otherwise."""

from collections.abc import Callable, Iterable
from typing import Any

from agent_tunix.rewards.resolve import read_components, resolve_reward
from agent_tunix.workbench.diagnosis import Finding, RunContext, diagnose

SETTINGS = {
    "environment.max_turns": 4,
    "generation.max_generation_steps": 32,
    "generation.temperature": 1.0,
    "grpo.advantage_scaling": "group",
    "grpo.beta": 0.02,
    "grpo.num_generations": 8,
    "optimizer.learning_rate": 1e-4,
    "rewards.timeout_s": 10.0,
    "training.batch_size": 16,
}
MIXTURE = {
    "correct": "math",
    "tags": {"function": "format", "weight": 0.2},
    "oracle": {"function": "check_numbers", "weight": 0.0},
}

Row = dict[str, Any]


def make_context(spec: object = "math", *, num_steps: int = 40, warmup_steps: int = 4, **settings: Any) -> RunContext:
    """The context of a run of a reward; settings by key, with `__` for the dot."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return RunContext.of(
        resolve_reward(spec),
        written=read_components(spec),
        num_steps=num_steps,
        warmup_steps=warmup_steps,
        settings=SETTINGS | given,
    )


def make_row(step: int, mean: float = 0.5, **metrics: Any) -> Row:
    """A step's row; metrics by name, with `__` for the slash."""
    healthy: Row = {
        "step": step,
        "rewards/total/mean": mean,
        "rewards/total/std": 0.45,
        "rewards/total/min": 0.0,
        "rewards/total/max": 1.0,
        "rewards/total/at_min": 1.0 - mean,
        "rewards/total/at_max": mean,
        "rewards/total/distinct": 2,
        "rewards/total/length_correlation": 0.1,
        "rewards/outcomes/scored": 128,
        "rewards/outcomes/error": 0,
        "rewards/dead_groups": 0.2,
        "rewards/groups/all_highest": 0.1,
        "completions/length_mean": 12.0,
        "completions/clipped_share": 0.0,
        "completions/distinct_share": 0.3,
        "completions/duplicate_share": 0.5,
        "completions/duplicate_score_std": 0.0,
        "policy/kl": 0.01,
        "policy/entropy": 0.3,
        "policy/grad_norm": 1.0,
    }
    return healthy | {name.replace("__", "/"): value for name, value in metrics.items()}


def make_rows(num_steps: int, row: Callable[[int], Row]) -> list[Row]:
    """The evaluation before training, and the rows of steps from 1."""
    return [{"step": 0, "eval/accuracy": 0.3, "eval/num_problems": 200}, *(row(s) for s in range(1, num_steps + 1))]


def names(findings: Iterable[Finding]) -> list[str]:
    return [finding.title for finding in findings]


def found(rows: Iterable[Row], context: RunContext | None = None) -> list[str]:
    return names(diagnose(rows, context or make_context()))


def steady(num_steps: int, mean: float = 0.5, **metrics: Any) -> list[Row]:
    return make_rows(num_steps, lambda step: make_row(step, mean, **metrics))


def mixed(step: int, mean: float = 0.5, **metrics: Any) -> Row:
    """A row of `MIXTURE`, its components at work."""
    parts: dict[str, Any] = {"rewards__oracle__mean": 1.5 * mean, "rewards__oracle__weight": 0.0}
    for name, weight, share in (("correct", 1.0, 0.9), ("tags", 0.2, 0.1)):
        leaves = {"mean": mean, "std": 0.4, "max": 1.0, "weight": weight, "advantage_share": share}
        parts |= {f"rewards__{name}__{leaf}": value for leaf, value in leaves.items()}
    return make_row(step, mean, **(parts | metrics))


def gated(least: float) -> dict[str, Any]:
    return {"correct": "math", "brief": {"function": "conciseness", "requires": {"correct": least}}}


def scheduled(last_step: int) -> dict[str, Any]:
    """A component whose weight falls to 0."""
    weight = {"from": 1.0, "to": 0.0, "steps": [1, last_step]}
    return {"correct": "math", "tags": {"function": "format", "weight": weight}}
