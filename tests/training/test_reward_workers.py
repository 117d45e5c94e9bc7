"""Runs whose reward is a user's own file: scored in workers, whatever it does, and stopped where that is asked."""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RewardFailureRateError
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from tests.rewards.execution.leftovers import take_stock
from tests.training.support import small_run

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


def rows_of(root: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["step"] > 0]


FAULTS = """
    import os
    def reward(response, step):
        print("so said the reward")
        if step == 1:
            os._exit(1)
        if step == 2:
            while True: pass
        if step == 3:
            raise ValueError("no more")
        return float(len(response))
    """


def test_a_run_goes_on_past_faults(configure: Configure, tmp_path: Path) -> None:
    config = configure(FAULTS)
    config.rewards.max_failure_rate = 1.0
    train(preflight(config, tmp_path), tmp_path / "run")
    met = [
        {name.rpartition("/")[2] for name, count in row.items() if name.startswith("rewards/outcomes/") and count}
        for row in rows_of(tmp_path / "run")
    ]
    assert met == [{"error"}, {"timeout"}, {"error"}, {"scored"}]
    assert "so said the reward" in (tmp_path / "run" / "train.log").read_text()


def test_too_many_faults_stop_the_run_and_leave_nothing(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response, step):\n    if step == 2: raise ValueError('no more')\n    return 1.0\n")
    before = take_stock()
    with pytest.raises(RewardFailureRateError, match=r"no more[\s\S]*checkpoint of step 1 is saved"):
        train(preflight(config, tmp_path), tmp_path / "run")
    after = take_stock()
    assert set(after.processes) <= set(before.processes)
    assert [name for name in after.threads if "reward" in name] == []


def test_a_reward_trains_alike_here_and_in_workers(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response, answer):\n    return len(set(response)) / 10 + (answer in response)\n")
    for place in ("inline", "process"):
        config.rewards.execution = place
        train(preflight(config, tmp_path), tmp_path / place)
    inline, isolated = (
        [{name: row[name] for name in row if not name.startswith(("time/", "throughput/"))} for row in rows_of(root)]
        for root in (tmp_path / "inline", tmp_path / "process")
    )
    assert inline == isolated


def test_settings_that_make_no_sense_are_refused(configure: Configure, tmp_path: Path) -> None:
    config = configure("def reward(response): return 1.0\n")
    config.rewards.execution = "threads"
    config.rewards.timeout_s = 0.0
    config.rewards.num_workers = 0
    with pytest.raises(ConfigError, match=r"rewards\.execution[\s\S]*rewards\.num_workers[\s\S]*rewards\.timeout_s"):
        preflight(config, tmp_path)
