"""Checks of a configuration before the model is loaded, and its reward."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import compose_overrides, find_conf_directory, with_overrides
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RewardError
from agent_tunix.rewards import fingerprint
from agent_tunix.rewards.answers.verifiers import Verifiers
from agent_tunix.runs import reward_setup
from agent_tunix.runs.preflight import ValidatedConfig, preflight
from agent_tunix.training import components
from tests.raising import raises
from tests.training.support import small_run

SHIPPED = sorted(file.stem for file in (find_conf_directory() / "reward").glob("*.yaml"))


def checked(directory: Path, *overrides: str) -> ValidatedConfig:
    return preflight(compose_overrides(list(overrides)), directory)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_mixture_is_the_same_as_a_group_and_as_a_name(name: str, tmp_path: Path) -> None:
    as_group = checked(tmp_path, f"reward={name}").mixture
    as_name = checked(tmp_path, f"training.reward_function={name}").mixture
    assert fingerprint(as_group) == fingerprint(as_name)
    assert len(as_group.components) > 1


def test_keys_of_a_mixture_are_set_on_the_command_line(tmp_path: Path) -> None:
    mixture = checked(
        tmp_path,
        "reward=careful_math",
        "reward.components.brevity.weight=0.3",
        "reward.components.tags.weight={from:0.5,to:0.1,steps:[2,4]}",
        "+reward.components.tags.transform=[{map:{0:-1,1:1}},rank]",
        "+reward.components.extra={function:shaped,requires:{correct:0.5}}",
    ).mixture
    assert mixture.weights(1)["brevity"] == 0.3
    assert mixture.weights(3)["tags"] == pytest.approx(0.3)
    assert "extra: 1 × " in mixture.describe()
    assert mixture.describe().endswith("where correct ≥ 0.5")
    tags = fingerprint(mixture).to_data()["components"]["tags"]
    assert tags["transform"] == [{"map": {"0": -1.0, "1": 1.0}}, "rank"]


def test_a_route_by_a_column_that_the_data_lack_is_refused(tmp_path: Path) -> None:
    rows = json.dumps({"question": "What is 1 + 1?", "answer": "2", "kind": "sum"}) + "\n"
    for split in ("train", "test"):
        (tmp_path / f"{split}.jsonl").write_text(rows)
    data = ["data.source=jsonl", f"data.path={tmp_path}"]
    checked(tmp_path, *data, "training.reward_function={a:{function:math,when:{kind:sum}}}")
    with pytest.raises(RewardError, match="the column 'level'"):
        checked(tmp_path, *data, "training.reward_function={a:{function:math,when:{level:3}}}")


def test_trial_calls_have_the_time_limit_of_the_configuration(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "slow.py").write_text("import time\n\n\ndef reward(completions):\n    time.sleep(1000)\n")
    checked(tmp_path, "training.reward_function=slow.py:reward", "rewards.timeout_s=0.5")
    assert "the trial was inconclusive: took longer than 0.5 s (rewards.timeout_s)" in caplog.text


def test_a_filter_by_no_component_is_refused(tmp_path: Path) -> None:
    checked(tmp_path, "grpo=dapo", "grpo.filter_by=math")
    with raises(ConfigError, "invalid_mixture"):
        checked(tmp_path, "grpo=dapo", "grpo.filter_by=maths")


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["data.subset=foo"], "data.subset"),
        (["data.source=synthetic", "data.subset=foo"], "data.subset"),
        (["data.mixture={sums:{source:synthetic,subset:foo}}"], "data.mixture.sums.subset"),
    ],
)
def test_a_subset_that_the_source_does_not_read_is_refused(overrides: list[str], key: str, tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_config") as caught:
        checked(tmp_path, *overrides)
    assert str(caught.value).startswith(f"{key}=foo")


def test_a_mesh_that_cannot_divide_the_model_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with raises(ConfigError, "indivisible_model", "use tp=4"):
        checked(tmp_path, "model.mesh_shape=[1,1,5]")
    checked(tmp_path, "model.mesh_shape=[7,1,1]", "grpo.num_generations=7")


@pytest.mark.parametrize("given", ["[2]", "all", "[1,1,1,1]", "[8,0]"])
def test_what_is_no_mesh_shape_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.mesh_shape must be auto or"):
        checked(tmp_path, f"model.mesh_shape={given}")


def test_a_cache_without_room_is_refused_before_the_weights_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any) -> None:
        raise AssertionError("the weights were loaded")

    monkeypatch.setattr(components, "load_policy", load)
    config = small_run("generation.max_generation_steps=200000000", "generation.max_prompt_length=64")
    preflight(config, Path.cwd())
    with pytest.raises(ConfigError, match=r"keys and values of sampling, .*batch_size.*max_generation_steps"):
        components.build_components(config)


@pytest.fixture
def verifiers(monkeypatch: pytest.MonkeyPatch) -> Verifiers:
    own = Verifiers()
    monkeypatch.setattr(reward_setup, "VERIFIERS", own)
    return own


@pytest.mark.parametrize(
    "chosen",
    [
        "training.reward_function=careful_math",
        "training.reward_function={correct: math, brevity: {function: conciseness, args: {limit: 80}, weight: 0.1}}",
    ],
)
def test_a_component_without_a_function_changes_the_one_of_that_name(chosen: str, tmp_path: Path) -> None:
    changes = ["reward.components.brevity.weight=0.9", "reward.components.tags.function=format"]
    config = with_overrides(Config(), [chosen, *changes])
    components = {one.name: one for one in reward_setup.resolve_from_config(config, tmp_path).components}
    assert components["brevity"].weight == 0.9
    assert components["brevity"].reward.args == {"limit": 80}  # type: ignore[attr-defined]
    assert {"correct", "brevity", "tags"} <= components.keys()


def test_a_component_with_a_function_replaces_the_named_mixture(tmp_path: Path) -> None:
    changes = ["training.reward_function=careful_math", "reward.components.tags.function=format"]
    mixture = reward_setup.resolve_from_config(with_overrides(Config(), changes), tmp_path)
    assert [one.name for one in mixture.components] == ["tags"]


def test_a_change_of_a_component_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with raises(RewardError, "invalid_reward", "math"):
        reward_setup.resolve_from_config(with_overrides(Config(), ["reward.components.brevity.weight=0.9"]), tmp_path)
