"""Checks of a configuration that need no JAX."""

import json
from pathlib import Path

import pytest

from agent_tunix.config.compose import compose_overrides, find_conf_directory
from agent_tunix.errors import ConfigError, RewardError
from agent_tunix.rewards import fingerprint
from agent_tunix.runs.preflight import ValidatedConfig, preflight
from tests.raising import raises

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


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["data.subset=foo"], "data.subset"),
        (["data.source=synthetic", "data.subset=foo"], "data.subset"),
        (["data.mixture={sums:{source:synthetic,subset:foo}}"], "data.mixture.sums.subset"),
    ],
)
def test_a_subset_that_the_source_does_not_read_is_refused(overrides: list[str], key: str, tmp_path: Path) -> None:
    with raises(ConfigError, "unread_subset") as caught:
        checked(tmp_path, *overrides)
    assert str(caught.value).startswith(f"{key}=foo")


def test_a_mesh_that_cannot_divide_the_model_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with raises(ConfigError, "indivisible_model") as caught:
        checked(tmp_path, "model.mesh_shape=[1,1,5]")
    assert "try tp=4" in str(caught.value)
    checked(tmp_path, "model.mesh_shape=[7,1,1]", "grpo.num_generations=7")


@pytest.mark.parametrize("given", ["[2]", "all", "[1,1,1,1]", "[8,0]"])
def test_what_is_no_mesh_shape_is_refused(given: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model.mesh_shape must be auto or"):
        checked(tmp_path, f"model.mesh_shape={given}")
