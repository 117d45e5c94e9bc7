import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError, RewardSignatureError, UnknownRewardError
from agent_tunix.rewards import (
    Mixture,
    Sample,
    finding,
    get_reward_function,
    list_reward_functions,
    register_reward_function,
    resolve_reward,
)
from agent_tunix.rewards.finding import synonym
from agent_tunix.rewards.uploaded import UploadedSource
from tests.raising import raises

MINE = """
from agent_tunix.rewards import register_reward_function

@register_reward_function("registered")
def some_function(response):
    return 1.0

def bare(response, scale=1.0):
    return 2.0 * scale
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def total(mixture: Mixture, response: str = "4") -> float | None:
    return mixture.score([Sample(response, columns={"answer": "4"})])[0].value


def test_reward_is_appended_to_a_name_and_a_registered_name_comes_before_a_file(here: Path) -> None:
    register_reward_function("careful_reward", lambda response: 3.0)
    (here / "careful.yaml").write_text("components: {tags: {function: format}}")
    assert total(resolve_reward("careful", reward_directories=[here])) == 3.0


def test_a_file_of_components_is_a_mixture(here: Path) -> None:
    (here / "careful.yaml").write_text(
        "components:\n  correct: {function: math, weight: 2}\n  brevity: {function: conciseness, args: {limit: 10}}\n"
    )
    mixture = resolve_reward("careful", reward_directories=[here / "absent", here])
    assert mixture.name == "careful"
    assert mixture.weights(1) == {"correct": 2.0, "brevity": 1.0}
    assert total(mixture) == pytest.approx(2 + 0.97)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("components: [", "invalid_reward"),
        ("components: {}", "invalid_reward"),
        ("correct: {function: math}", "invalid_reward"),
        ("components: {a: math}\nmore: 1", "invalid_reward"),
        ("", "invalid_reward"),
        ("components: {again: {function: careful}}", "invalid_mixture"),
    ],
)
def test_a_malformed_file_of_components_is_told_by_name(here: Path, text: str, code: str) -> None:
    (here / "careful.yaml").write_text(text)
    with raises(RewardError, code, "careful"):
        resolve_reward("careful", reward_directories=[here])


@pytest.mark.parametrize("spec", ["mine.bare", "mine.py:bare", "sub/mine.py:bare", "sub.mine.bare"])
def test_a_path_to_a_function_works_where_a_name_does(here: Path, spec: str) -> None:
    (here / "sub").mkdir()
    (here / "mine.py").write_text(MINE)
    (here / "sub" / "mine.py").write_text(MINE)
    mixture = resolve_reward(spec)
    assert mixture.name == "bare"
    assert total(mixture) == 2.0


def test_a_dotted_path_is_looked_up_in_the_package_first(here: Path) -> None:
    (here / "rewards").mkdir()
    (here / "rewards" / "transforms.py").write_text("def tagged_answer(response):\n    return 9.0\n")
    description = resolve_reward("rewards.builtin.correctness.math_reward").describe()
    assert "agent_tunix.rewards.builtin.correctness.math_reward (" in description


def test_custom_rewards_is_imported_when_a_name_is_not_built_in(here: Path) -> None:
    (here / "custom_rewards.py").write_text(MINE)
    assert total(resolve_reward("registered")) == 1.0
    assert total(resolve_reward("bare")) == 2.0
    assert total(resolve_reward("custom_rewards.bare")) == 2.0


def test_custom_rewards_is_left_alone_when_an_upload_is_named_by_its_id(here: Path) -> None:
    (here / "custom_rewards.py").write_text("raise RuntimeError")
    content = b"def reward(completions, **kwargs):\n    return [2.0 for _ in completions]\n"
    source = UploadedSource("rf_" + "a" * 24, "mine", "trl", 1, content, "a test")
    assert resolve_reward(source.id, fetch={source.id: source}.get).components[0].name == source.id
    with raises(UnknownRewardError, "unknown_reward"):
        resolve_reward("rf_" + "b" * 24, fetch={source.id: source}.get)


@pytest.mark.parametrize("module", ["mine", "mine.py"])
def test_modules_are_imported_first(here: Path, module: str) -> None:
    (here / "mine.py").write_text(MINE)
    assert total(resolve_reward("registered", modules=[module])) == 1.0


def test_a_module_may_replace_a_builtin(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    (here / "mine.py").write_text(MINE.replace('"registered"', '"math"'))
    assert total(resolve_reward("math", modules=["mine.py"]), "wrong") == 1.0
    assert "the built-in reward 'math' is replaced by mine.some_function (mine.py:4)" in caplog.text


def test_a_file_may_import_its_neighbours(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "neighbour_of_mine.py").write_text("VALUE = 5.0\n")
    (here / "sub" / "mine.py").write_text("import neighbour_of_mine\ndef f(response): return neighbour_of_mine.VALUE\n")
    assert total(resolve_reward("sub/mine.py:f")) == 5.0


def test_a_file_named_like_a_standard_module_shadows_nothing(here: Path) -> None:
    (here / "statistics.py").write_text("def f(response): return 5.0\n")
    assert total(resolve_reward("statistics.py:f")) == 5.0
    assert importlib.import_module("statistics").mean([1, 3]) == 2


@pytest.mark.parametrize(
    "source", ["def only(response): return 7.0", "def helper(x): return x\n\ndef compute_score(response): return 7.0"]
)
def test_a_file_with_one_reward_or_a_usual_name_needs_no_function(here: Path, source: str) -> None:
    (here / "single.py").write_text(source)
    assert total(resolve_reward("single.py")) == 7.0


def test_an_unknown_name_lists_names_and_the_nearest(here: Path) -> None:
    (here / "careful.yaml").write_text("components: {tags: {function: format}}")
    for name, facts in (
        ("mth", ["no reward 'mth'; did you mean 'math'?", "Rewards: ", " math,"]),
        ("carefull", ["did you mean 'careful'?", "Files of conf/reward: careful"]),
        ("accuracy_reward", ["the closest here is 'math'"]),
    ):
        with raises(UnknownRewardError, "unknown_reward", *facts):
            resolve_reward(name, reward_directories=[here])


@pytest.mark.parametrize(
    ("spec", "code", "told"),
    [
        ("absent.py:f", "unknown_reward", "absent.py"),
        ("no_such_module.f", "unknown_reward", "'no_such_module'"),
        ("mine.py:bear", "unknown_reward", "did you mean 'bare'? mine.py has: mine.py:some_function, mine.py:bare"),
        ("mine.bear", "unknown_reward", "did you mean 'bare'?"),
        ("mine.py", "invalid_reward", "mine.py:some_function, mine.py:bare"),
        ("", "invalid_reward", ""),
        ("two words", "invalid_reward", ""),
        ("../etc/passwd", "invalid_reward", ""),
        (".f", "reward_import_failed", ""),
        ("x" * 300, "invalid_reward", "at most 100 letters"),
        ("x" * 300 + ".py:f", "unknown_reward", ""),
    ],
)
def test_what_is_not_there_is_told_with_what_is(here: Path, spec: str, code: str, told: str) -> None:
    (here / "mine.py").write_text(MINE)
    with raises(RewardError, code, told):
        resolve_reward(spec, reward_directories=[here])


@pytest.mark.parametrize(
    ("source", "exception", "place"),
    [
        ("x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero", "broken.py:2: y = x / 0)"),
        ("x = 1\ndef f(:\n", "SyntaxError: ", "broken.py:2: def f(:"),
        ("import no_such_thing_at_all\n", "ModuleNotFoundError: No module named", "broken.py:1"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3", "broken.py:2"),
        ("import json\njson.loads('')\n", "JSONDecodeError: ", "broken.py:2: json.loads"),
    ],
)
@pytest.mark.parametrize("spec", ["broken.py:f", "broken.f"])
def test_a_file_that_fails_to_import_is_told_with_file_line_and_exception(
    here: Path, source: str, exception: str, place: str, spec: str
) -> None:
    (here / "broken.py").write_text(source)
    with raises(RewardError, "reward_import_failed") as caught:
        resolve_reward(spec)
    assert exception in str(caught.value)
    assert place in str(caught.value)
    assert not isinstance(caught.value, UnknownRewardError)


@pytest.mark.parametrize("middle", [None, "middle"])
def test_two_files_do_not_share_the_helper_of_one_of_them(here: Path, middle: str | None) -> None:
    helper = f"helper_below_{middle}"
    for name, value in (("one", 0.25), ("two", 0.75)):
        (here / name).mkdir()
        (here / name / f"{helper}.py").write_text(f"def value():\n    return {value}\n")
        direct = helper
        if middle:
            direct = f"{middle}_of_{name}"
            (here / name / f"{direct}.py").write_text(f"from {helper} import value\n")
        code = f"def reward(response):\n    import {direct}\n    return {direct}.value()\n"
        (here / name / "mine.py").write_text(code)
    assert total(resolve_reward("one/mine.py:reward", working_directory=here)) == 0.25
    with raises(RewardError, "reward_import_failed", f"{here / 'one' / helper}.py has the same name"):
        resolve_reward("two/mine.py:reward", working_directory=here)


def test_a_file_beside_a_reward_does_not_take_the_place_of_an_installed_module(here: Path) -> None:
    (here / "json.py").write_text("raise ValueError('not this one')\n")
    (here / "mine.py").write_text("import json\ndef reward(response):\n    return float(json.loads('0.5'))\n")
    assert total(resolve_reward("mine.py:reward", working_directory=here)) == 0.5


def test_a_list_is_components_of_weight_one_named_after_their_functions(here: Path) -> None:
    (here / "mine.py").write_text(MINE)
    mixture = resolve_reward(["math", "mine.py:bare", "format"])
    assert mixture.weights(1) == {"math": 1.0, "bare": 1.0, "format": 1.0}
    assert total(mixture) == 3.0


def test_a_list_with_one_name_twice_says_how_to_name_them(here: Path) -> None:
    with raises(RewardError, "invalid_mixture", "{bare: {function: …}, bare_2: {function: …}}"):
        resolve_reward(["a.bare", "b.bare"])


def test_a_mapping_names_weighs_and_binds_its_components(here: Path) -> None:
    mixture = resolve_reward(
        {"correct": "math", "brevity": {"function": "conciseness", "weight": -0.5, "args": {"limit": 10}}}
    )
    assert mixture.weights(1) == {"correct": 1.0, "brevity": -0.5}
    assert total(mixture) == pytest.approx(1 - 0.5 * 0.97)


@pytest.mark.parametrize(
    ("spec", "code", "told"),
    [
        ({"a": {"function": "math", "wieght": 2}}, "invalid_reward", "'wieght'; its keys are function, args, weight"),
        ({"a": {"function": "math", "requires": {"b": 1}}}, "invalid_mixture", "'b'"),
        ({"a": {"function": "math", "requires": "b"}}, "invalid_mixture", "'a'"),
        ({"a": {"function": "math", "transform": "rnk"}}, "invalid_mixture", "'a'"),
        ({"a": {"function": "math", "when": 3}}, "invalid_mixture", "'a'"),
        ({"a": {"function": "math", "cost": -1}}, "invalid_mixture", "at least 0"),
        ({"a": {"function": "math", "cost": "1"}}, "invalid_mixture", "'1'"),
        ({"a": {"weight": 2}}, "invalid_reward", "'a'"),
        ({"a": None}, "invalid_reward", "'a'"),
        ({"a": {"function": "math", "weight": "2"}}, "invalid_mixture", "'a' must be a number or a schedule, not '2'"),
        ({"a": {"function": "math", "weight": "1e-3"}}, "invalid_mixture", "for example 1.0e-3"),
        ({"a": {"function": "math", "weight": {"from": 0}}}, "invalid_mixture", "to must be"),
        ({"a": {"function": "math", "weight": True}}, "invalid_mixture", "a number"),
        ({"a": {"function": "math", "weight": float("nan")}}, "invalid_mixture", "finite"),
        ({"a": {"function": "math", "weight": 0}}, "invalid_mixture", ""),
        ({"a": {"function": "math", "args": [1]}}, "invalid_reward_args", "[1]"),
        ({"a": {"function": "mth"}}, "unknown_reward", "did you mean 'math'"),
        ({"total": {"function": "math"}}, "invalid_reward", "rewards/total"),
        ({"a/b": {"function": "math"}}, "invalid_reward", "'a/b'"),
        ({1: {"function": "math"}}, "invalid_reward", "1"),
        ({"function": "math", "weight": 2}, "invalid_mixture", ""),
        ({}, "invalid_reward", ""),
        ([], "invalid_reward", ""),
        ([{"a": "math"}], "invalid_reward", ""),
        (None, "invalid_reward", "None"),
        (3, "invalid_reward", "3"),
        ({"a": 3}, "invalid_reward", "3"),
    ],
)
def test_a_malformed_spec_is_refused_with_the_remedy(here: Path, spec: object, code: str, told: str) -> None:
    with raises(RewardError, code, told):
        resolve_reward(spec)


def test_a_function_may_stand_for_a_name(here: Path) -> None:
    assert total(resolve_reward(lambda response: 5.0)) == 5.0
    assert total(resolve_reward(get_reward_function("math"))) == 1.0
    assert total(resolve_reward({"mine": lambda response: 5.0})) == 5.0


@pytest.mark.parametrize(
    ("spec", "args"),
    [
        ("conciseness", {"conciseness": {"limit": 10}}),
        ({"brevity": {"function": "conciseness"}}, {"brevity": {"limit": 10}}),
        ({"brevity": {"function": "conciseness"}}, {"conciseness": {"limit": 10}}),
        ({"brevity": {"function": "conciseness", "args": {"limit": 10}}}, {"brevity": {"limit": 10}}),
    ],
)
def test_arguments_come_by_the_components_name_or_its_functions(
    here: Path, spec: object, args: Mapping[str, Mapping[str, Any]]
) -> None:
    assert total(resolve_reward(spec, args=args)) == pytest.approx(0.97)


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        ({"brevity": {"limit": 50}}, "invalid_mixture", "80 in its args and 50 in rewards.args.brevity"),
        ({"brevity": {"limt": 80}}, None, "no argument 'limt'; it has: answer, limit"),
        ({"brevity": 3}, "invalid_reward_args", "rewards.args.brevity"),
        ({"concisenes": {"limit": 80}}, "unknown_reward", "rewards.args.concisenes: "),
        ({"concisenes": {"limit": 80}}, "unknown_reward", "did you mean 'conciseness'"),
    ],
)
def test_malformed_arguments_are_an_error(here: Path, args: Any, code: str | None, told: str) -> None:
    spec = {"brevity": {"function": "conciseness", "args": {"limit": 80}}}
    with pytest.raises(RewardError) as caught:
        resolve_reward(spec, args=args)
    assert code is None or caught.value.code == code
    assert told in str(caught.value)


def test_arguments_for_a_reward_not_in_use_are_told(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "agent_tunix.rewards"):
        resolve_reward("math", args={"conciseness": {"limit": 80}})
    assert "rewards.args.conciseness has no effect" in caplog.text


def test_a_missing_parameter_is_found_before_training(here: Path) -> None:
    (here / "mine.py").write_text("def f(response, difficulty): return 0.0\n")
    mixture = resolve_reward(["math", "mine.py:f"])
    mixture.check_parameters(["answer", "difficulty"])
    with pytest.raises(RewardSignatureError, match="`difficulty`"):
        mixture.check_parameters(["answer"])


def test_what_each_component_resolved_to_is_told(here: Path) -> None:
    (here / "mine.py").write_text(MINE)
    description = resolve_reward({"correct": {"function": "math", "weight": 0.5}, "mine": "mine.py:bare"}).describe()
    correct, mine = description.splitlines()
    assert correct.startswith("correct: 0.5 × agent_tunix.rewards.builtin.correctness.math_reward (")
    assert mine == "mine: 1 × mine.bare (mine.py:8)"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("accuracy_reward", "math"),
        ("get_cosine_scaled_reward", "cosine_length"),
        ("get_repetition_penalty_reward", "ngram_repetition"),
        ("get_soft_overlong_punishment", "soft_overlong"),
        ("xmlcount_reward_func", "tag_count"),
    ],
)
def test_a_name_of_another_library_means_a_reward_that_exists(name: str, meant: str) -> None:
    assert synonym(name) == meant
    assert {synonym(known) for known in finding.NAMES} <= set(list_reward_functions())
