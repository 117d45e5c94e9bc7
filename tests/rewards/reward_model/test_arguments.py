"""What is refused of a reward model before anything is loaded, with torch or without."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import get_builtin, list_reward_functions, resolve_reward
from agent_tunix.rewards.kinds import declared_range


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory that looks like a checkpoint."""
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertForSequenceClassification"]}))
    return tmp_path


def build(**args: Any) -> Any:
    return get_builtin("reward_model").bind("rm", {"python": sys.executable, **args})


def test_it_goes_by_its_name() -> None:
    assert "reward_model" in list_reward_functions()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({"path": ""}, "requires `path`"),
        ({"path": 3}, "`path` must be a text, not 3"),
        ({"path": "./nowhere"}, "path=./nowhere should be"),
        ({"path": "/no/such/model"}, "path=/no/such/model should be a directory"),
        ({"path": "a/b/c"}, "path=a/b/c should be a directory"),
        ({"pth": "x"}, "no argument 'pth' to set; it has: path"),
        ({"activation": "tanh"}, "`activation` must be one of none, sigmoid, softmax, not 'tanh'"),
        ({"prompt": True}, "`prompt` must be one of with, without, pair"),
        ({"max_length": 0}, "`max_length` must be at least 1"),
        ({"max_length": True}, "`max_length` must be a whole number or null, not True"),
        ({"batch_size": None}, "`batch_size` must be a whole number, not None"),
        ({"timeout_s": 0}, "`timeout_s` must be above 0"),
        ({"timeout_s": float("inf")}, "`timeout_s` must be above 0 and finite"),
        ({"label_index": -1}, "`label_index` must be at least 0"),
    ],
)
def test_a_malformed_argument_is_refused_by_name(args: dict[str, Any], text: str, directory: Path) -> None:
    given = args if "path" in args else {"path": str(directory), **args}
    with pytest.raises(RewardError, match=text):
        build(**given)


def test_a_directory_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match=r"config.json cannot be read .* is .* a model\?"):
        build(path=str(tmp_path))


def test_a_model_that_gives_no_score_is_refused_by_its_architecture(directory: Path) -> None:
    (directory / "config.json").write_text(json.dumps({"architectures": ["Qwen3ForCausalLM"]}))
    with pytest.raises(RewardError, match="holds Qwen3ForCausalLM, which gives no score"):
        build(path=str(directory))


def test_without_torch_the_error_says_what_to_install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RewardError, match=r"requires torch and transformers; run `pip install agent_tunix\[reward_mo"):
        resolve_reward({"rm": {"function": "reward_model", "args": {"path": str(directory)}}})


def test_a_python_that_is_not_there_is_refused(directory: Path) -> None:
    with pytest.raises(RewardError, match="python=/no/python should be a Python that can be run"):
        build(path=str(directory), python="/no/python")


def test_without_args_it_says_that_it_needs_them() -> None:
    reward = resolve_reward("reward_model")
    with pytest.raises(RewardError, match="requires args, at least `path`"):
        reward.check_parameters(["answer"])
    with pytest.raises(RewardError, match="requires args, at least `path`"):
        get_builtin("reward_model")("It is 4.")


def test_its_range_follows_from_the_activation(directory: Path) -> None:
    assert declared_range(build(path=str(directory), activation="sigmoid")) == (0.0, 1.0)
    assert declared_range(build(path=str(directory))) is None


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
    with pytest.raises(RewardError, match=r"cannot be loaded: .*torch"):
        build(path=str(directory), start_timeout_s=60.0).open()
