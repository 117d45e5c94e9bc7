"""Conventions that are told by the names of parameters: detection, values, and what functions may return."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards import Outcome, Sample, Score, resolve_reward
from agent_tunix.rewards.conventions import adapt, detect
from tests.raising import raises

SAMPLE = Sample(
    "It is 4.",
    prompt="2 + 2?",
    messages=({"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is 4."}),
    columns={"answer": "4", "level": 2},
)
ROW = {
    **SAMPLE.columns,
    "data_source": "sums",
    "reward_model": {"style": "rule", "ground_truth": {"target": ["4", "four"]}},
    "extra_info": {"index": 7},
}


def score(function: Any, sample: Sample = SAMPLE, **settings: Any) -> Score:
    """The score of one sample by a function alone."""
    return resolve_reward({"mine": function}, **settings).score([sample])[0].parts["mine"]


def with_row(**columns: Any) -> Sample:
    return Sample(SAMPLE.response, SAMPLE.prompt, SAMPLE.messages, columns)


@pytest.mark.parametrize(
    ("given", "convention"),
    [
        (lambda data_source, solution_str, ground_truth, extra_info=None: 1.0, "verl"),
        (lambda solution_str, ground_truth, method="strict": 1.0, "verl"),
        (lambda data_sources, solution_strs, ground_truths, extra_infos: [], "verl"),
        (lambda queries, prompts, labels: [], "openrlhf"),
        (lambda queries, prompts, **kwargs: [], "openrlhf"),
        (lambda completion, answer, state: 1.0, "verifiers"),
        (lambda parser, completion, answer, **kwargs: 1.0, "verifiers"),
        (lambda state: 1.0, "verifiers"),
        (lambda completion, info: 1.0, "verifiers"),
        (lambda completions, answers: [], "verifiers"),
        (lambda completions, infos, **kwargs: [], "verifiers"),
        (lambda prompts, completions, answers, trainer_state, **kwargs: [], "trl"),
        (lambda completion, ground_truth, mcp_client, workspace, **kwargs: 1.0, "benchmax"),
        (lambda completion, ground_truth: 1.0, "benchmax"),
        (lambda response, info: 1.0, "plain"),
        (lambda completion, answer: 1.0, "plain"),
        (lambda args, sample, state=None: 1.0, "miles"),
    ],
)
def test_the_names_tell_the_library(given: Any, convention: str) -> None:
    assert detect(given, "mine") == convention


@pytest.mark.parametrize(
    ("given", "library"),
    [
        (lambda prompt, completions, prompt_ids, completion_ids, answer, **kwargs: 1.0, "AReaL"),
        (lambda data, return_dict=False: 1.0, "verl's reward manager"),
        (lambda reward_inputs, format_weight=0.1: [], "EasyR1"),
        (lambda predict_str, ground_truth: 1.0, "EasyR1"),
        (lambda task_info, action: 1.0, "rLLM"),
        (lambda observation, action, label, **kwargs: {}, "OpenRLHF's agent"),
        (lambda samples, prompts, outputs, **kwargs: [], "trlX"),
        (lambda sample, item: 1.0, "OpenAI"),
        (lambda example, pred, trace=None: 1.0, "DSPy"),
    ],
)
def test_a_signature_that_is_not_taken_is_refused_by_its_library(given: Any, library: str) -> None:
    with raises(RewardSignatureError, "unsupported_library") as caught:
        adapt(given, "mine")
    assert library in str(caught.value)
    assert "write `" in str(caught.value)


def test_the_function_that_makes_an_environment_of_verifiers_is_refused() -> None:
    def load_environment(**kwargs: Any) -> None:
        raise AssertionError

    with raises(RewardSignatureError, "unsupported_library"):
        adapt(load_environment, "mine")


# --- verl


def test_verl_gets_the_nested_reference_and_a_copy_of_its_information() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
        assert (data_source, solution_str, ground_truth["target"]) == ("sums", "It is 4.", ["4", "four"])
        assert extra_info == {"index": 7, "num_turns": None, "rollout_reward_scores": {}}
        extra_info["index"] = ground_truth["target"] = None
        return 1.0

    sample = with_row(**ROW)
    assert [score(compute_score, sample).value for _ in range(2)] == [1.0, 1.0]


def test_verl_gets_the_answer_and_all_columns_of_other_rows() -> None:
    def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        assert (data_source, ground_truth, extra_info["level"]) == ("", "4", 2)
        return 1.0

    assert score(compute_score).value == 1.0


def test_verl_returns_a_dict_whose_score_is_the_reward() -> None:
    found = score(lambda solution_str, ground_truth: {"score": True, "acc": 0.5, "pred": "4"})
    assert (found.value, found.components, found.extras) == (1.0, {"score": 1.0, "acc": 0.5}, {"pred": "4"})
    other = score(lambda solution_str, ground_truth: {"score": 1.0, "acc": 0.5}, reward_key="acc")
    assert other.value == 0.5
    lacking = score(lambda solution_str, ground_truth: {"acc": 0.5})
    assert lacking.outcome is Outcome.ERROR
    assert "no entry 'score'" in lacking.detail


def test_verls_reward_kwargs_are_arguments() -> None:
    def compute_score(solution_str: str, ground_truth: str, bonus: float = 0.0, **kwargs: Any) -> float:
        assert kwargs.keys() <= {"data_source", "extra_info"}  # verl passes no columns
        return bonus

    assert score({"function": compute_score, "args": {"bonus": 3.0}}).value == 3.0


# --- OpenRLHF


@pytest.mark.parametrize(
    "returned",
    [
        [1.0],
        np.array([1.0]),
        np.array(1.0),
        1.0,
        {"rewards": [1.0]},
        {"rewards": np.array([1.0]), "scores": np.array([1.0]), "extra_logs": {"a": np.array([2.0])}},
    ],
)
def test_openrlhf_returns_rewards_in_many_shapes(returned: Any) -> None:
    assert score(lambda queries, prompts, labels: returned).value == 1.0


def test_openrlhf_keeps_scores_and_logs() -> None:
    returned = {"rewards": [2.0], "scores": np.array([0.5]), "extra_logs": {"a": np.array([2.0]), "mean": 3.0}}
    found = score(lambda queries, prompts, labels: returned)
    assert (found.value, found.components, found.extras) == (2.0, {"scores": 0.5}, {"a": 2.0, "mean": 3.0})


@pytest.mark.parametrize("returned", [{"scores": [1.0]}, [1.0, 2.0], None, "1", {"rewards": [float("nan")]}])
def test_openrlhf_returns_something_else(returned: Any) -> None:
    assert score(lambda queries, prompts, labels: returned).outcome is not Outcome.SCORED


def test_openrlhf_gets_one_query_a_call() -> None:
    def reward_func(queries: Any, prompts: Any, labels: Any, **kwargs: Any) -> Any:
        assert (queries, prompts, labels) == (["2 + 2?It is 4."], ["2 + 2?"], ["4"])
        assert kwargs == {}
        return [1.0]

    assert score(reward_func).value == 1.0
    assert score(lambda queries, labels: [float(labels == ["own"])], with_row(answer="4", label="own")).value == 1.0


# --- verifiers


def test_a_rubric_function_gets_the_state() -> None:
    async def reward(state: Any, info: Any, task: Any, level: int) -> float:
        assert state["completion"] == [{"role": "assistant", "content": "It is 4."}]
        assert state["prompt"] == [{"role": "user", "content": "2 + 2?"}]
        assert (state["answer"], state["info"], state["level"]) == ("4", {"a": 1}, 2)
        assert (info, task, level, state["is_truncated"]) == ({"a": 1}, "default", 2, False)
        assert state["trajectory"] == [{"prompt": state["prompt"], "completion": state["completion"]}]
        await asyncio.sleep(0)
        return 1.0

    assert score(reward, with_row(answer="4", level=2, info='{"a": 1}')).value == 1.0


def test_a_parser_of_the_module_is_handed_over(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import verifiers as vf\n"
        "parser = vf.XMLParser(['answer'])\n"
        "def reward(completion, answer, parser):\n"
        "    return float(parser.parse_answer(completion) == answer)\n"
    )
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path)
    values = [mixture.score([Sample(text, columns={"answer": "4"})])[0].value for text in ("<answer> 4 </answer>", "4")]
    assert values == [1.0, 0.0]


def test_a_group_function_gets_the_group_and_a_rows_own_columns() -> None:
    def reward(completions: Any, answers: Any, states: Any) -> list[float]:
        return [len(completions) + (answer == "own") for answer in answers]

    samples = [Sample("a", columns={"answer": "4", "answers": "own"}), Sample("b", columns={"answer": "4"})]
    mixture = resolve_reward(reward)
    assert [one.value for one in mixture.score(samples[1:])] == [1.0]


# --- benchmax


@pytest.mark.parametrize("name", ["mcp_client", "workspace"])
@pytest.mark.parametrize("use", ["{0}.anything", "bool({0})", "str({0})", "list({0})"])
def test_a_swallowed_use_of_what_is_absent_is_no_score(name: str, use: str) -> None:
    def reward(completion: Any, ground_truth: Any, mcp_client: Any, workspace: Any) -> float:
        try:
            eval(use.format(name), {"mcp_client": mcp_client, "workspace": workspace})
        except Exception:
            return 0.0
        return 1.0

    found = score(reward)
    assert found.outcome is Outcome.ERROR
    assert f"`{name}`" in found.detail


def test_a_workspace_may_be_configured(tmp_path: Path) -> None:
    async def reward(completion: Any, ground_truth: Any, workspace: Path) -> float:
        return float((workspace / "log.txt").read_text())

    (tmp_path / "log.txt").write_text("0.5")
    assert score({"function": reward, "args": {"workspace": str(tmp_path)}}).value == 0.5


def test_a_name_of_a_files_table_is_a_reward(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "def one(completion, ground_truth):\n    return 1.0\nreward_functions = {'match': one}\n"
    )
    assert resolve_reward("mine.py:match", working_directory=tmp_path).score([SAMPLE])[0].value == 1.0
    with pytest.raises(RewardError):
        resolve_reward("mine.py:other", working_directory=tmp_path)


# --- ms-swift


def test_the_arguments_of_an_orm_are_its_args(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from swift.rewards import ORM, orms\n"
        "class Mine(ORM):\n"
        "    def __call__(self, completions, **kwargs):\n"
        "        assert 'limit' not in kwargs\n"
        "        return [self.args.limit * len(text) for text in completions]\n"
        "orms['mine'] = Mine\n"
    )
    spec = {"mine": {"function": f"{tmp_path}/mine.py:mine", "args": {"limit": 0.5}}}
    assert resolve_reward(spec).score([SAMPLE])[0].value == 4.0
    assert "ms_swift" in resolve_reward(spec).describe()


def test_an_orm_without_a_call_says_so(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from swift.rewards import ORM\nclass Mine(ORM):\n    pass\n")
    (found,) = resolve_reward("mine.py:Mine", working_directory=tmp_path).score([SAMPLE])
    assert found.outcome is Outcome.ERROR
    assert "must define __call__" in found.parts["Mine"].detail


# --- references


@pytest.mark.parametrize(
    ("columns", "label", "ground_truth"),
    [
        ({"answer": "ours"}, "ours", "ours"),
        ({"answer": "ours", "label": "own"}, "own", "ours"),
        ({"answer": "ours", "ground_truth": "own"}, "ours", "own"),
        ({"answer": "ours", "reward_model": {"ground_truth": ["nested"]}}, "ours", ["nested"]),
        ({"label": "own"}, "own", "own"),
        ({"ground_truth": {"a": 1}}, {"a": 1}, {"a": 1}),
        ({"solution": "own"}, "own", "own"),
        ({}, None, None),
    ],
)
def test_a_rows_own_reference_comes_first(columns: Any, label: Any, ground_truth: Any) -> None:
    seen: dict[str, Any] = {}

    class Environment:
        def compute_reward(self, rollout_id: str, completion: Any, ground_truth: Any, task: Any) -> Any:
            seen.update(older=ground_truth, task=task["ground_truth"])
            return {"value": 1.0}

    def miles(args: Any, sample: Any) -> float:
        seen["miles"] = sample.label
        return 1.0

    def verl(solution_str: str, ground_truth: Any) -> float:
        seen["verl"] = ground_truth
        return 1.0

    def openrlhf(queries: Any, labels: Any) -> list[float]:
        seen["openrlhf"] = labels[0]
        return [1.0]

    for function in (Environment, miles, verl, openrlhf):
        assert score(function, with_row(**columns)).value == 1.0
    expected = {"miles": label, "openrlhf": label, "older": ground_truth, "task": ground_truth, "verl": ground_truth}
    assert seen == expected
