"""Arguments that a reward model refuses before anything is loaded, with torch or without."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import get_builtin, list_reward_functions, resolve_reward
from agent_tunix.rewards.kinds import declared_range
from tests.raising import raises


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that looks like a checkpoint."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    return tmp_path


def build(**args: Any) -> Any:
    return get_builtin("reward_model").bind("rm", {"python": sys.executable, **args})


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ({"path": ""}, "invalid_reward_args", "`path`"),
        ({"path": 3}, "invalid_reward_args", "`path`: input should be a valid string, not 3"),
        ({"path": "./nowhere"}, "invalid_reward_model", "nowhere"),
        ({"path": "/no/such/model"}, "invalid_reward_model", "path=/no/such/model"),
        ({"path": "a/b/c"}, "invalid_reward_model", "path=a/b/c"),
        ({"pth": "x"}, "invalid_reward_args", "'pth'; it has: path"),
        ({"activation": "tanh"}, "invalid_reward_args", "'none', 'sigmoid' or 'softmax', not 'tanh'"),
        ({"prompt": True}, "invalid_reward_args", "'with', 'without' or 'pair'"),
        ({"max_length": 0}, "invalid_reward_args", "`max_length`: input should be greater"),
        ({"max_length": True}, "invalid_reward_args", "a valid integer, not True"),
        ({"timeout_s": 0}, "invalid_reward_args", "`timeout_s`: input should be greater than 0"),
        ({"timeout_s": float("inf")}, "invalid_reward_args", "finite"),
        ({"label_index": -1}, "invalid_reward_args", "`label_index`: input should be greater"),
        ({"python": "/no/python"}, "invalid_reward_model", "python=/no/python"),
    ],
)
def test_a_malformed_argument_is_refused_by_name(args: dict[str, Any], code: str, told: str, directory: Path) -> None:
    with raises(RewardError, code) as caught:
        build(**{"path": str(directory), **args})
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("config", "code"),
    [(None, "invalid_reward_model"), ({"architectures": ["Qwen3ForCausalLM"]}, "invalid_reward_model")],
)
def test_a_directory_that_holds_no_reward_model_is_refused(config: object, code: str, directory: Path) -> None:
    (directory / "config.json").write_text("" if config is None else json.dumps(config))
    with raises(RewardError, code) as caught:
        build(path=str(directory))
    assert ("Qwen3ForCausalLM" if config else "config.json") in str(caught.value)


def test_without_torch_the_error_says_what_to_install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with raises(RewardError, "missing_package") as caught:
        resolve_reward({"rm": {"function": "reward_model", "args": {"path": str(directory)}}})
    assert "torch and transformers; run `pip install agent_tunix[reward_model]`" in str(caught.value)


def test_without_args_it_says_that_it_needs_them() -> None:
    assert "reward_model" in list_reward_functions()
    with raises(RewardError, "invalid_reward_args") as caught:
        resolve_reward("reward_model").check_parameters(["answer"])
    assert "at least `path`" in str(caught.value)
    with pytest.raises(RewardError, match="at least `path`"):
        get_builtin("reward_model")("It is 4.")


def test_its_range_follows_from_the_activation(directory: Path) -> None:
    assert declared_range(build(path=str(directory), activation="sigmoid")) == (0.0, 1.0)
    assert declared_range(build(path=str(directory))) is None


def test_a_reward_that_was_never_used_can_be_closed(directory: Path) -> None:
    build(path=str(directory)).close()


def test_a_checkpoint_is_told_from_another_by_its_files(directory: Path) -> None:
    weights = directory / "model.safetensors"
    weights.write_bytes(b"a" * 100)
    before = build(path=str(directory)).checkpoint_hash()
    assert build(path=str(directory)).checkpoint_hash() == before
    weights.write_bytes(b"a" * 99 + b"b")
    assert build(path=str(directory)).checkpoint_hash() != before


def test_a_python_that_cannot_import_torch_is_named_in_the_error(directory: Path) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("this Python has torch")
    with raises(RewardError, "invalid_reward_model") as caught:
        build(path=str(directory), start_timeout_s=60.0).open()
    assert "torch" in str(caught.value)
