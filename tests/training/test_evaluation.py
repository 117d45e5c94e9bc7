"""Figures of an evaluation, and pass@k."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.data import load_evaluation
from agent_tunix.errors import ConfigError
from agent_tunix.evaluation.evaluate import choose_rows, complete_problems, evaluation_sampling
from agent_tunix.evaluation.judging import judge, pass_at_k, reason_not_to_judge, warn_if_unknown
from agent_tunix.evaluation.request import read_request
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.components import build_components
from tests.raising import raises
from tests.training.support import small_run

FORMAT = "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>"


def sample(answer: str, reference: Any = "4", form: str = "<reasoning>r</reasoning><answer>{}</answer>") -> Sample:
    return Sample(form.format(answer), columns={"answer": reference}, format=FORMAT)


@pytest.mark.parametrize("num_samples", [1, 2, 5])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(num_samples: int) -> None:
    for k in range(1, num_samples + 1):
        for num_right in range(num_samples + 1):
            subsets = list(itertools.combinations([i < num_right for i in range(num_samples)], k))
            expected = sum(any(subset) for subset in subsets) / len(subsets)
            assert pass_at_k(np.array([num_right]), num_samples, k) == pytest.approx(expected)


def test_pass_at_k_is_the_mean_over_problems() -> None:
    assert pass_at_k(np.array([0, 1, 2, 2]), 2, 1) == pytest.approx((0 + 0.5 + 1 + 1) / 4)


def test_accuracies_count_exact_answers_near_ones_and_the_form() -> None:
    found = judge([[sample("100", "100")], [sample("105", "100")], [sample("150", "100")], [sample("", "100")]])
    assert (found.accuracy, found.partial_accuracy) == (0.25, 0.5)
    found = judge([[sample("5")], [sample("4", form="<answer>{}</answer>")]])
    assert (found.accuracy, found.format_accuracy) == (0.5, 0.5)


@pytest.mark.parametrize("reference", ["", None])
def test_a_bad_reference_counts_neither_as_right_nor_as_wrong(reference: Any, caplog: pytest.LogCaptureFixture) -> None:
    for answer, accuracy in (("4", 1.0), ("5", 0.0)):
        found = judge([[sample(answer)], [sample("4", reference)]])
        assert found.accuracy == accuracy
        assert found.num_unscored == 1
        assert found.num_problems == 2
    assert not caplog.records


@pytest.mark.parametrize(("num_usable", "accuracy"), [(0, None), (9, None), (10, 1.0), (20, 1.0)])
def test_an_accuracy_of_the_minority_of_problems_is_unknown(
    num_usable: int, accuracy: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    samples = [[sample("4", "4" if number < num_usable else "SELECT name FROM users")] for number in range(20)]
    found = judge(samples)
    assert (found.accuracy, found.partial_accuracy) == (accuracy, accuracy)
    assert found.format_accuracy == 1.0  # it needs no reference
    assert found.num_unscored == 20 - num_usable
    assert ("accuracy" in found.intervals) == (accuracy is not None)
    warn_if_unknown(found, "math")
    assert bool(caplog.records) == (accuracy is None)


def test_pass_at_k_and_consistency_of_the_minority_of_problems_are_unknown() -> None:
    metrics = judge(
        [
            [sample("4"), sample("4")],
            *[[sample("4", "SELECT name FROM users"), sample("5", "SELECT name FROM users")]] * 2,
        ]
    ).metrics()
    assert {name for name in metrics if metrics[name] is None} == {
        *("eval/accuracy", "eval/partial_accuracy", "eval/consistency"),
        *("eval/pass_at_1", "eval/pass_at_2", "eval/pass_at_k"),
    }


@pytest.mark.parametrize("template", ["", "{answer}", "{reasoning}{answer}"])
def test_a_format_without_tags_has_no_format_accuracy(template: str) -> None:
    found = judge([[replace(sample("4"), format=template)], [replace(sample("5"), format=template)]])
    assert (found.accuracy, found.format_accuracy) == (0.5, None)
    assert "format_accuracy" not in found.intervals


def test_a_format_with_fixed_text_has_a_format_accuracy() -> None:
    samples = [[replace(sample("", form=text), format="{reasoning} #### {answer}")] for text in ("so #### 4", "4")]
    assert judge(samples).format_accuracy == 0.5


def test_several_passes_give_pass_at_k_and_consistency() -> None:
    found = judge([[sample("4"), sample("5"), sample("4")], [sample("1"), sample("2"), sample("3")]])
    assert found.accuracy == pytest.approx(2 / 6)
    assert found.pass_at_k == pytest.approx({1: 2 / 6, 2: 0.5, 3: 0.5})
    assert found.consistency == pytest.approx((2 / 3 + 1 / 3) / 2)


def test_a_problem_with_a_bad_reference_leaves_pass_at_k() -> None:
    found = judge([[sample("4"), sample("5")], [sample("4", ""), sample("4", "")]])
    assert found.pass_at_k == {1: 0.5, 2: 1.0}
    assert found.num_unscored == 2


def test_pass_at_k_is_logged_for_the_largest_k_and_not_for_one_pass() -> None:
    metrics = judge([[sample("4"), sample("5"), sample("5")]]).metrics()
    assert metrics["eval/pass_at_k"] == metrics["eval/pass_at_3"] == 1.0
    metrics = judge([[sample("4")]]).metrics()
    assert {"eval/pass_at_k", "eval/consistency"}.isdisjoint(metrics)


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, None), ("standard", (0.7, 50, 0.95, False)), ("liberal", (0.85, 2000, 1.0, False))],
)
def test_inference_configs_are_temperature_top_k_and_top_p(name: str | None, expected: tuple[Any, ...] | None) -> None:
    """The default is greedy."""
    config = Config()
    if name is not None:
        config.evaluation.inference_config = name
    found = evaluation_sampling(config)
    assert found.greedy if expected is None else (found.temperature, found.top_k, found.top_p, found.greedy) == expected


def test_an_evaluation_may_sample_as_training_does() -> None:
    config = Config()
    config.evaluation.inference_config, config.generation.temperature, config.generation.min_p = "training", 0.6, 0.1
    assert evaluation_sampling(config) == SamplingParams.of_training(config)


def test_fewer_problems_are_the_first_ones() -> None:
    config = Config()
    config.evaluation.num_samples, config.evaluation.batch_size = 50, 8
    assert choose_rows(config, 500) == range(50)
    assert choose_rows(config, 30) == range(30)
    config.training.num_test_batches = 2
    assert choose_rows(config, 500) == range(16)


@pytest.mark.parametrize(
    ("correct", "column", "usable", "is_right"),
    [
        ("math", "answer", "4", True),
        ("math", "answer", "by mail", False),
        ("answer_correctness", "answer", "by mail", True),
        ("code_tests", "tests", ["assert True"], True),
        ("code_tests", "tests", [], False),
    ],
)
def test_correctness_needs_references_that_it_can_use(correct: str, column: str, usable: Any, is_right: bool) -> None:
    assert (reason_not_to_judge(correct, [{}, {column: usable}]) == "") == is_right
    assert reason_not_to_judge(correct, [{}, {}, {column: usable}])


def test_a_completion_is_correct_from_the_least_score_on() -> None:
    scores = [Score(value) for value in (0.8, 0.7 + 0.2 - 0.1, 0.4, 0.39)]
    found = judge([[sample("a")] for _ in scores], "file.py:f", scores, correct_at=0.8)
    assert (found.accuracy, found.partial_accuracy) == (0.5, 0.75)


def test_a_least_score_below_zero_has_no_half() -> None:
    scores = [Score(value) for value in (-0.5, -0.6, -1.0)]
    found = judge([[sample("a")] for _ in scores], "file.py:f", scores, correct_at=-0.6)
    assert found.accuracy == found.partial_accuracy == pytest.approx(2 / 3)


def test_what_a_reward_cannot_score_is_neither_correct_nor_wrong() -> None:
    scores = [Score(1.0), Score.failed(Outcome.ERROR, "KeyError"), Score(0.0)]
    found = judge([[sample("a")] for _ in scores], "file.py:f", scores)
    assert (found.accuracy, found.num_unscored) == (0.5, 1)


def test_answers_are_judged_by_the_measure_that_is_named() -> None:
    samples = [[sample("by mail", "By mail.")], [sample("by phone", "by mail")]]
    assert judge(samples, "answer_correctness").accuracy == 0.5
    assert judge(samples).accuracy is None


@pytest.mark.slow
def test_completions_are_grouped_by_problem_whatever_the_size_of_a_batch() -> None:
    """The last batch is filled up, and what fills it is dropped."""
    config = small_run("evaluation.num_samples=16", "evaluation.batch_size=5", "evaluation.num_passes=2")
    components = build_components(config)
    found = complete_problems(components.sampler, components.held_out, components.config)
    assert [len(samples) for samples in found] == [2] * 16
    assert found[3][1].rollout_id == "0_3_1"
    assert [samples[0].prompt for samples in found] == [e.prompt for e in components.held_out.examples[:16]]


def test_worked_examples_are_drawn_for_a_model_without_a_run() -> None:
    asked = EvaluateConfig(model={"path": str(EMBEDDED_MODEL)}, prompt={"num_few_shot": 2})
    assert len(read_request(asked).subject.run.config.prompt.few_shot) == 2


@pytest.mark.parametrize("source", ["jsonl", "auto"])
@pytest.mark.parametrize("of_a_run", [True, False])
def test_problems_of_ones_own_are_measured_whole(of_a_run: bool, source: str, tmp_path: Path) -> None:
    rows = "".join(json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(10))
    for name in ("old.jsonl", "new.jsonl"):
        (tmp_path / name).write_text(rows)
    config = Config()
    config.data.source, config.data.path, config.training.train_fraction = source, str(tmp_path / "old.jsonl"), 0.5
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "metrics.jsonl").touch()
    model = {"checkpoint_dir": str(tmp_path)} if of_a_run else {"model": {"path": str(EMBEDDED_MODEL)}}
    counts = {}
    for name in ("old.jsonl", "new.jsonl"):
        data = {"source": source, "path": str(tmp_path / name)}
        asked = EvaluateConfig(**model, data=data, num_samples=20, trust=True)
        counts[name] = len(load_evaluation(read_request(asked).subject.run.config).examples)
    assert counts["new.jsonl"] == 10
    assert counts["old.jsonl"] < 10 if of_a_run else counts["old.jsonl"] == 10


def test_a_run_that_other_programs_alone_evaluated_is_asked_for_a_number_of_problems(tmp_path: Path) -> None:
    config = Config()
    config.evaluation.num_samples, config.evaluation.harness = 0, "lm_eval:gsm8k"
    config.stopping.metric = "eval/lm_eval/gsm8k/acc"
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "metrics.jsonl").touch()
    with raises(ConfigError, "invalid_request", "set num_samples=N"):
        read_request(EvaluateConfig(checkpoint_dir=str(tmp_path)))
    read_request(EvaluateConfig(checkpoint_dir=str(tmp_path), num_samples=4))


@pytest.mark.parametrize("path", ["problems.jsonl", "."])
def test_an_evaluation_does_not_write_over_its_problems(path: str, tmp_path: Path) -> None:
    name = "problems" if path != "." else "test"
    asked = EvaluateConfig(
        model={"path": str(EMBEDDED_MODEL)},
        data={"source": "jsonl", "path": str(tmp_path / path)},
        output=str(tmp_path / f"{name}.json"),
    )
    with raises(ConfigError, "invalid_request"):
        read_request(asked)


@pytest.mark.parametrize("name", ["metrics.json", "findings.json", "status.json"])
def test_an_evaluation_does_not_write_over_files_of_a_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    data = {"source": "jsonl", "path": str(tmp_path / "problems.jsonl")}
    asked = EvaluateConfig(model={"path": str(EMBEDDED_MODEL)}, data=data, output=str(tmp_path / name))
    with raises(ConfigError, "invalid_request"):
        read_request(asked)


@pytest.mark.parametrize(
    ("correct", "reference", "responses", "expected"),
    [
        # correct answers, however they are written
        ("math", r"\frac12", ["#### 1/2", "#### 0.5", r"\boxed{\frac{1}{2}}", "#### 50%"], 1.0),
        ("math", "7", ["#### 7 apples", "#### 7", "#### 7.0", "<answer>$7$</answer>"], 1.0),
        ("math", "1234", ["#### 1,234", "#### 1234.0", "#### $1,234", "#### 1235"], 0.75),
        # incorrect answers that the measure accepts for each other
        ("math", "3", ["#### 1/2", "#### 0.5", r"\boxed{\frac{1}{2}}", "#### 50%"], 1.0),
        ("math", "3", [r"\boxed{x+1}", r"\boxed{1+x}", r"\boxed{x+2}", "#### 3"], 0.5),
        ("math", "3", [r"\boxed{(1, 2)}", r"\boxed{(2, 1)}", "#### 5", "#### 6"], 0.25),
        ("answer_correctness", "Berlin", ["Paris.", "<answer>the paris</answer>", "Rome", "Berlin"], 0.5),
        ("exact_match", "Berlin", [r"\boxed{\text{Paris}}", "paris", "in Paris", "Rome"], 0.5),
        ("multiple_choice", "A", ["(B)", "The answer is b.", "<answer>B. Paris</answer>", "C"], 0.75),
        # no answer agrees with none
        ("math", "3", ["none", "none", "no idea", ""], 0.0),
        ("math", "3", ["none", "#### 1", "#### 1.0", "none"], 0.5),
    ],
)
def test_answers_agree_if_the_measure_of_correctness_says_so(
    correct: str, reference: str, responses: list[str], expected: float
) -> None:
    samples = [Sample(response, columns={"answer": reference}) for response in responses]
    assert judge([samples], correct).consistency == expected


def test_the_correct_completions_of_a_reward_of_ones_own_agree() -> None:
    samples = [Sample(text) for text in ("by mail", "by a letter", "by phone", "#### 7", "#### 7")]
    scores = [Score(1.0), Score(1.0), Score(0.0), Score(0.0), Score(0.0)]
    assert judge([samples], "file.py:f", scores).consistency == 0.4
