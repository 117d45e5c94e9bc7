"""`model.from_run`: what a run takes from the one that it starts from."""

import dataclasses
import logging
from pathlib import Path

import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.compose import compose_overrides, to_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.runs.starting_run import compose_start, resolve_start
from tests.raising import raises


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The directory of a run with settings of its own."""
    config = compose_overrides(
        ["model.lora_rank=8", "model.lora_alpha=32", "model.dtype=bfloat16", "prompt=boxed", "prompt.system=Think."]
    )
    config.prompt.chat_template = "{{ messages }}"
    config.generation.stop_strings = ["END"]
    config.model.mesh_shape = [2, 1]
    config.training.reward_function = "evil.py:reward"
    config.training.batch_size = 64
    root = tmp_path / "other"
    root.mkdir()
    (root / "config.yaml").write_text(to_yaml(config))
    return root


def test_model_adapter_prompts_and_stop_tokens_are_taken(other: Path) -> None:
    config = compose_start([f"model.from_run={other}"])
    assert (config.model.lora_rank, config.model.lora_alpha, config.model.dtype) == (8, 32.0, "bfloat16")
    assert config.prompt.system == "Think."
    assert config.prompt.format == compose_overrides(["prompt=boxed"]).prompt.format
    assert config.prompt.chat_template == "{{ messages }}"
    assert config.generation.stop_strings == ["END"]
    assert config.training.init_checkpoint == str(other)
    assert config.model.from_run is None
    check(config)


def test_code_data_batches_and_devices_are_not_taken(other: Path) -> None:
    default, config = compose_overrides([]), compose_start([f"model.from_run={other}"])
    assert config.training == dataclasses.replace(default.training, init_checkpoint=str(other))
    assert config.model.mesh_shape == default.model.mesh_shape
    for group in ("data", "grpo", "rewards", "environment", "distributed"):
        assert getattr(config, group) == getattr(default, group)


def test_keys_of_the_user_win_and_conflicts_are_told(other: Path, caplog: pytest.LogCaptureFixture) -> None:
    # A rank that equals the default counts as set, because it is named.
    overrides = [f"model.from_run={other}:7", "model.lora_rank=0", "prompt=tags", "model.dtype=bfloat16"]
    with caplog.at_level(logging.WARNING):
        config = compose_start(overrides)
    assert config.model.lora_rank == 0
    assert config.prompt == compose_overrides([]).prompt
    assert config.model.lora_alpha == 32.0
    assert config.training.init_checkpoint == f"{other}:7"
    told = caplog.text
    assert "model.lora_rank" in told
    assert "prompt.format" in told
    assert "model.dtype" not in told


def test_without_the_key_nothing_changes() -> None:
    config = Config()
    assert resolve_start(config, []) is config


def test_two_starts_are_refused(other: Path) -> None:
    with raises(ConfigError, "invalid_config", "training.init_checkpoint"):
        compose_start([f"model.from_run={other}", f"training.init_checkpoint={other}"])


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_run_config", "model.from_run"):
        compose_start([f"model.from_run={tmp_path}"])


def test_a_command_that_does_not_resolve_the_key_refuses_it(other: Path) -> None:
    with raises(ConfigError, "invalid_config", "checkpoint_dir=RUN"):
        check(compose_overrides([f"model.from_run={other}"]))
