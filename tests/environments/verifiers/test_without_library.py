import importlib.util
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import compose_overrides, spell_out
from agent_tunix.config.episodes import has_agent, verifiers_name
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.sources import verifiers as source
from agent_tunix.data.sources.base import Split
from agent_tunix.environments.verifiers import read_rows
from agent_tunix.errors import InvalidEnvironmentError
from tests.raising import raises


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is not None, reason="verifiers is installed")
@pytest.mark.slow
def test_the_package_is_named_if_it_is_missing(tmp_path: Path) -> None:
    with raises(InvalidEnvironmentError, "missing_package", "pip install verifiers"):
        read_rows("gsm8k", {}, tmp_path, 10)


def test_the_data_of_an_environment_bring_the_environment_and_its_reward() -> None:
    data = ["data=verifiers", "data.path=owner/gsm8k"]
    assert spell_out(["data=verifiers:owner/gsm8k"]) == [*data, "environment.name=verifiers:owner/gsm8k"]
    assert spell_out(["data=verifiers:owner/gsm8k", "environment.name=null"]) == [*data, "environment.name=null"]
    config = compose_overrides(["data=verifiers:owner/gsm8k", "environment.args={split: test}"])
    assert verifiers_name(config) == "owner/gsm8k"
    assert has_agent(config)
    assert config.training.reward_function == "environment"
    assert config.data.prompt_column == "prompt"
    assert config.data.answer_column is None
    assert not has_agent(compose_overrides(["environment.name=guess_number"]))


@pytest.mark.parametrize(
    ("num_rows", "num_own", "train", "test"), [(40, 5, 40, 5), (40, 0, 36, 4), (6, 0, 5, 1), (1, 0, 1, 0)]
)
def test_rows_are_held_out_if_an_environment_has_none_for_evaluation(
    monkeypatch: pytest.MonkeyPatch, num_rows: int, num_own: int, train: int, test: int
) -> None:
    def read(name: str, args: dict[str, Any], directory: Path, limit: int) -> tuple[list[Any], list[Any]]:
        assert (name, args, limit) == ("gsm8k", {"split": "test"}, 4196)
        return [{"prompt": f"{number}"} for number in range(num_rows)], [{"prompt": "held out"}] * num_own

    monkeypatch.setattr(source, "read_rows", read)
    config = compose_overrides(["data=verifiers:gsm8k", "environment.args={split: test}"])
    splits: tuple[Split, ...] = ("train", "test")
    rows = [list(source.read_environment(config, split, Dropped())) for split in splits]
    assert [len(one) for one in rows] == [train, test]
    assert not {row.number for row in rows[0]} & {row.number for row in rows[1]}
