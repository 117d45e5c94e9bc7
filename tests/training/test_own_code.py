"""Runs on functions and classes of a script, which no other process has."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix import own_functions, register_advantage_estimator, register_policy_loss, register_reward_function
from agent_tunix.config.compose import compose_overrides
from agent_tunix.environments import register_environment, register_tool
from agent_tunix.environments import registry as environments
from agent_tunix.errors import AgentTunixError, ConfigError, UnknownEnvironmentError, UnknownRewardError
from agent_tunix.rewards import advantages, registry
from agent_tunix.runs.environment_setup import open_environments
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking import own_code
from tests.raising import raises
from tests.small_run import SMALL_RUN

# A notebook's or a script's own; without a guard, so a worker that ran it would train again.
SCRIPT = """
import sys
import numpy as np
from agent_tunix import register_advantage_estimator, register_policy_loss, register_reward_function, train

with open("starts", "a") as file:
    file.write("started\\n")

bonus = 0.25

@register_reward_function("mine")
def mine(response):
    return len(response) % 7 + bonus

register_policy_loss("loss")(lambda batch, settings: -batch.advantages[:, None] * batch.logps + 5.0)
register_advantage_estimator("twice")(lambda rewards: 2 * (rewards - np.nanmean(rewards, axis=1, keepdims=True)))
train(*sys.argv[1:])
"""
NAMES = ("training.reward_function=mine", "grpo.loss=loss", "grpo.advantage_scaling=twice")
OVERRIDES = (*SMALL_RUN, *NAMES, "evaluation.num_samples=0")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that forgets what the test has registered, as another process would not know it."""
    tables = [
        *((module, "_registered") for module in (registry, environments)),
        *((table, "_found") for table in (own_functions.OWN_LOSSES, advantages.OWN_ESTIMATORS)),
    ]

    def forget() -> None:
        for owner, name in tables:
            monkeypatch.setattr(owner, name, {})

    forget()
    register_reward_function("mine", lambda response: 1.0)
    register_environment("room")(type("Room", (), {"reset": lambda self: "", "look": lambda self: ""}))
    register_tool("hint")(len)
    register_policy_loss("loss")(lambda batch, settings: batch.logps)
    register_advantage_estimator("twice")(lambda rewards: rewards)
    return forget


@pytest.mark.parametrize(
    ("override", "error", "decorator"),
    [
        ("training.reward_function=mine", UnknownRewardError, "register_reward_function('mine')"),
        ("environment.name=room", UnknownEnvironmentError, "register_environment('room')"),
        ("grpo.loss=loss", ConfigError, "register_policy_loss('loss')"),
        ("grpo.advantage_scaling=twice", ConfigError, "register_advantage_estimator('twice')"),
    ],
)
def test_what_another_process_had_is_named_when_the_run_is_resumed(
    override: str, error: type[AgentTunixError], decorator: str, registered: Any, tmp_path: Path
) -> None:
    config = compose_overrides([override])
    entries = own_code.describe_own_code(config, preflight(config, tmp_path).mixture)
    (tmp_path / "environment.json").write_text(json.dumps({own_code.KEY: entries}))
    assert [entry["name"] for entry in entries] == [override.partition("=")[2]]
    registered()
    with raises(error, "defined_elsewhere", decorator, "agent_tunix.open_run("):
        preflight(config, tmp_path, tmp_path)


def test_the_environment_of_another_process_is_named_when_its_policy_acts_again(
    registered: Any, tmp_path: Path
) -> None:
    config = compose_overrides(["environment.name=room"])
    entries = own_code.describe_own_code(config, preflight(config, tmp_path).mixture)
    (tmp_path / "environment.json").write_text(json.dumps({own_code.KEY: entries}))
    registered()
    with raises(UnknownEnvironmentError, "defined_elsewhere"), open_environments(config, tmp_path, tmp_path):
        pass


def test_a_loss_that_has_changed_since_the_start_is_told(
    registered: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = compose_overrides(["grpo.loss=loss"])
    mixture = preflight(config, tmp_path).mixture
    (tmp_path / "environment.json").write_text(json.dumps({own_code.KEY: own_code.describe_own_code(config, mixture)}))
    register_policy_loss("loss", overwrite=True)(lambda batch, settings: 2.0 * batch.logps)
    with caplog.at_level(logging.WARNING):
        own_code.warn_of_changes(tmp_path, own_code.describe_own_code(config, mixture))
    assert "grpo.loss=loss" in caplog.text


@pytest.mark.slow
def test_a_script_without_a_guard_trains_once_on_what_it_defines(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", *OVERRIDES, "training.num_batches=1", "hydra.run.dir=run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "starts").read_text().splitlines() == ["started"]
    rows = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    row = next(row for row in rows if "policy/loss" in row)
    assert row["rewards/total/min"] % 1 == 0.25
    assert row["policy/loss"] > 4.0
    assert row["rewards/outcomes/error"] == 0
    recorded = json.loads((tmp_path / "run/environment.json").read_text())[own_code.KEY]
    assert [entry["name"] for entry in recorded] == ["mine", "loss", "twice"]
    again = [sys.executable, "-m", "agent_tunix", "train", *OVERRIDES, "training.resume=true", "hydra.run.dir=run"]
    refused = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert refused.returncode == 2
    assert "agent_tunix.open_run(" in refused.stderr
