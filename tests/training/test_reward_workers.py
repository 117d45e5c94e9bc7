"""Runs whose reward is a user's own file: scored in workers, whatever it does, and stopped where that is asked."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RewardFailureRateError
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking import StoredRun
from tests.raising import raises
from tests.rewards.execution.leftovers import take_stock
from tests.training.support import small_run, train_config

Configure = Callable[..., Config]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """A small run with the code given as its reward."""

    def configure(code: str) -> Config:
        file = tmp_path / "my_rewards.py"
        file.write_text(textwrap.dedent(code), encoding="utf-8")
        config = small_run("training.eval_every_n_steps=0")
        config.training.reward_function = f"{file}:reward"
        config.rewards.num_workers = 1
        config.rewards.timeout_s = 0.3
        return config

    return configure


def rows_of(config: Config, root: Path) -> list[dict[str, Any]]:
    """Train; the rows of the steps, without timings."""
    return train_config(config, root)[1:]


FAULTS = """
    import logging, os
    def reward(response, step):
        print("so said the reward")
        logging.getLogger("mine").warning("seen %r", response)
        if step == 1:
            os._exit(1)
        if step == 2:
            while True: pass
        if step == 3:
            raise ValueError("no more")
        return float(len(response))
    """


@pytest.mark.slow
def test_a_run_goes_on_past_faults(configure: Configure, tmp_path: Path) -> None:
    """Messages that a reward logs are stored with its completion."""
    config = configure(FAULTS)
    config.rewards.max_failure_rate = 1.0
    met = [
        {name.rpartition("/")[2] for name, count in row.items() if name.startswith("rewards/outcomes/") and count}
        for row in rows_of(config, tmp_path / "run")
    ]
    assert met == [{"error"}, {"timeout"}, {"error"}, {"scored"}]
    assert "so said the reward" in (tmp_path / "run" / "train.log").read_text()
    *_, stored = StoredRun(tmp_path / "run").rollouts.iterate()
    for sample, score in zip(stored.samples, stored.scores, strict=True):
        assert f"WARNING seen {sample.response!r}\n" in score.extras["reward"]["log"]


@pytest.mark.slow
def test_too_many_faults_stop_the_run_and_leave_nothing(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response, step):\n    if step == 2: raise ValueError('no more')\n    return 1.0\n")
    before = take_stock()
    with raises(RewardFailureRateError, "reward_failure_rate") as caught:
        rows_of(config, tmp_path / "run")
    assert "step 2: the reward fails on 16 of 16 completions" in str(caught.value)
    assert "no more" in str(caught.value)
    assert "checkpoint of step 1 is saved" in str(caught.value)
    after = take_stock()
    assert set(after.processes) <= set(before.processes)
    assert [name for name in after.threads if "reward" in name] == []


@pytest.mark.slow
def test_a_reward_trains_alike_here_and_in_workers(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response, answer):\n    return len(set(response)) / 10 + (answer in response)\n")
    found = []
    config.training.num_batches = 2
    for place in ("inline", "process"):
        config.rewards.execution = place
        found.append(rows_of(config, tmp_path / place))
    assert found[0] == found[1]


def test_settings_that_make_no_sense_are_refused(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response): return 1.0\n")
    config.rewards.execution = "threads"
    config.rewards.timeout_s = 0.0
    config.rewards.num_workers = 0
    with pytest.raises(ConfigError) as caught:
        preflight(config, tmp_path)
    for key in ("execution", "num_workers", "timeout_s"):
        assert f"rewards.{key}" in str(caught.value)
