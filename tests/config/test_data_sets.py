import copy
from typing import Any

import pytest
from tests.raising import raises

from agent_tunix.config.checks import check
from agent_tunix.config.compose import compose_overrides, from_yaml, to_yaml
from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError


def mixture(**sets: Any) -> Config:
    config = Config()
    config.data.mixture = sets
    return config


def refusal_of(config: Config) -> str:
    with raises(ConfigError, "invalid_config") as caught:
        check(config)
    return str(caught.value)


def test_one_set_is_no_mixture() -> None:
    assert data_sets(Config()) == {}


def test_a_set_has_the_keys_of_the_group_but_for_its_own() -> None:
    config = mixture(easy={"weight": 3, "path": "easy.csv", "columns": {"a": "b"}}, hard={"curriculum": {"stages": 2}})
    config.data.prompt_column, config.data.curriculum.column = "problem", "level"
    sets = data_sets(config)
    easy, hard = sets["easy"].config.data, sets["hard"].config.data
    assert (sets["easy"].weight, sets["hard"].weight) == (3.0, 1.0)
    assert (easy.path, easy.columns, easy.prompt_column, easy.mixture) == ("easy.csv", {"a": "b"}, "problem", {})
    assert (hard.path, hard.curriculum.stages, hard.curriculum.column) == (None, 2, "level")
    assert config.data.curriculum.stages == 4


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("rows.csv", "data.mixture.a must be a mapping"),
        ({"weight": 0}, "data.mixture.a.weight must be a number above 0, not 0; to draw nothing"),
        ({"weight": -1.0}, "data.mixture.a.weight must be"),
        ({"weight": float("nan")}, "data.mixture.a.weight must be"),
        ({"weight": float("inf")}, "data.mixture.a.weight must be"),
        ({"weight": "half"}, "data.mixture.a.weight must be"),
        ({"weight": True}, "data.mixture.a.weight must be"),
        ({"wieght": 1}, "there is no key data.mixture.a.wieght; did you mean data.mixture.a.weight?"),
        ({"paht": "x"}, "there is no key data.mixture.a.paht; did you mean data.mixture.a.path?"),
        ({"path": 5}, "data.mixture.a.path must be text or null, not 5"),
        ({"num_train": "many"}, "data.mixture.a.num_train must be an integer, not 'many'"),
        ({"num_train": True}, "data.mixture.a.num_train must be an integer"),
        ({"num_train": 0}, "data.mixture.a.num_train must be at least 1, not 0"),
        ({"shuffle": "yes"}, "data.mixture.a.shuffle must be true or false, not 'yes'"),
        ({"columns": ["a"]}, "data.mixture.a.columns must be a mapping"),
        ({"columns": {"a": 1}}, "data.mixture.a.columns must be a mapping"),
        ({"curriculum": 3}, "data.mixture.a.curriculum must be a mapping"),
        ({"curriculum": {"stages": 1.5}}, "data.mixture.a.curriculum.stages must be an integer, not 1.5"),
        (
            {"curriculum": {"steps": 1}},
            "there is no key data.mixture.a.curriculum.steps; did you mean data.mixture.a.curriculum.stages?",
        ),
        ({"curriculum": {"kind": "fast"}}, "data.mixture.a.curriculum.kind must be one of baby_steps, one_pass"),
        ({"answer_mark": "some"}, "data.mixture.a.answer_mark must be one of auto, none, always, not 'some'"),
        (
            {"problems": "sums"},
            "data.mixture.a.problems must be one of word_problems, arithmetic, numbers, not 'sums'",
        ),
        ({"streaming": True}, "data.mixture.a.streaming cannot be set for one set"),
        ({"mixture": {"b": {}}}, "data.mixture.a.mixture cannot be set for one set"),
    ],
)
def test_a_set_that_is_written_wrong_is_refused_by_name(entry: Any, words: str) -> None:
    assert words in refusal_of(mixture(a=entry, b={}))


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", ".hidden"])
def test_a_name_that_metrics_could_not_bear_is_refused(name: str) -> None:
    assert "the name of a set must consist of letters" in refusal_of(mixture(**{name: {}}))


@pytest.mark.parametrize("key", ["data_source", "train_data_dir"])
def test_what_says_where_one_set_comes_from_is_refused_for_several(key: str) -> None:
    config = mixture(a={}, b={})
    setattr(config.training, key, "jsonl")
    assert f"training.{key} must be null with data.mixture" in refusal_of(config)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("kind", "sorted", "must be one of baby_steps, one_pass, not 'sorted'"),
        ("stages", 0, "must be at least 1, not 0"),
        ("until", 0.0, "must be above 0 and at most 1, not 0.0"),
        ("until", 1.5, "must be above 0 and at most 1, not 1.5"),
        ("order", ["a", "b", "a"], "must name each value once"),
    ],
)
@pytest.mark.parametrize("config", [Config(), mixture(a={}, b={})], ids=["one set", "mixture"])
def test_a_curriculum_that_cannot_be_is_refused_once(config: Config, key: str, value: Any, words: str) -> None:
    config = copy.deepcopy(config)
    config.data.curriculum.column = "level"
    setattr(config.data.curriculum, key, value)
    message = refusal_of(config)
    assert message.startswith(f"data.curriculum.{key} {words}")
    assert "\n" not in message


def test_a_stream_has_no_curriculum_and_a_known_number_of_batches() -> None:
    config = Config()
    config.data.streaming, config.training.num_batches = True, None
    assert "set training.num_batches" in refusal_of(config)
    config.training.num_batches, config.data.curriculum.column = 5, "level"
    assert "requires all rows in memory" in refusal_of(config)


def test_a_mixture_is_written_on_the_command_line_and_read_back_from_a_run(tmp_path: Any) -> None:
    config = compose_overrides(
        [
            "data.mixture={easy: {path: a.csv, weight: 2}, hard: {path: b.parquet, columns: {new: old}}}",
            "data.mixture.easy.weight=3",
            "data.columns={question: problem}",
            "data.curriculum={column: level, order: [easy, hard]}",
        ]
    )
    check(config)
    assert data_sets(config)["easy"].weight == 3.0
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    assert from_yaml(tmp_path / "config.yaml") == config
