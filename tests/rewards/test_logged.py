import logging
from typing import Any

import numpy as np
import pytest

from agent_tunix.rewards import Sample, resolve_reward
from agent_tunix.rewards.measuring import MAX_LOGGED, RewardMetrics, logged_metrics


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


def test_a_run_records_a_limited_number_of_names_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    def invents(completions: list[str], log_metric: Any, trainer_state: Any) -> list[float]:
        log_metric("same", 0.5)
        for number in range(MAX_LOGGED // 2):
            log_metric(f"{trainer_state.global_step}_{number}", 1.0)
        return [1.0 for _ in completions]

    mixture = resolve_reward({"mine": invents})
    metrics = RewardMetrics(mixture, num_generations=1, detailed=False)
    names: set[str] = set()
    with caplog.at_level(logging.WARNING):
        for step in range(6):
            samples = [Sample("4", step=step)]
            row = metrics.measure(step, samples, mixture.score(samples), np.ones(1), np.zeros(1))
            names |= {name for name in row if "/logged/" in name}
            assert row["rewards/mine/logged/same"] == 0.5
    assert len(names) == MAX_LOGGED
    assert len([record for record in caplog.records if "different metrics" in record.message]) == 1
