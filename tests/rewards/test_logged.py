from typing import Any

from agent_tunix.rewards import Sample, resolve_reward
from agent_tunix.rewards.measuring import logged_metrics


class Environment:
    def compute_reward(self, rollout_id: str, messages: Any, task: Any) -> dict[str, float | None]:
        return {"length": float(len(messages[-1]["content"])), "rare": 1.0 if rollout_id == "a" else None}


def logs(completions: list[str], log_metric: Any) -> list[float]:
    log_metric("share", 0.25)
    return [1.0 for _ in completions]


def test_components_and_logged_numbers_are_means_over_who_has_them() -> None:
    mixture = resolve_reward({"mine": Environment, "batch": logs}, completions="text")
    scores = mixture.score([Sample("one", rollout_id="a"), Sample("three", rollout_id="b")])
    assert logged_metrics(scores) == {
        "rewards/mine/components/length": 4.0,
        "rewards/mine/components/rare": 1.0,
        "rewards/batch/logged/share": 0.25,
    }


def test_plain_rewards_log_nothing() -> None:
    assert logged_metrics(resolve_reward("math").score([Sample("4", columns={"answer": "4"})])) == {}
