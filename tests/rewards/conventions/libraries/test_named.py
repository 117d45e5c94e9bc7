"""Conventions that are told by the names of parameters: detection, values, and what functions may return."""

import asyncio
import textwrap
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
        (lambda completions, infos: [], "verifiers"),
        (lambda completions, answers, states, **kwargs: [], "verifiers"),
        (lambda completions, parser, **kwargs: [], "verifiers"),
        (lambda rollout_ids, completions, ground_truths, **kwargs: [], "environment"),
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
    "column",
    [
        *(
            "queries",
            "answers",
            "tasks",
            "infos",
            "states",
            "state",
            "info",
            "workspace",
            "solution_str",
            "data_source",
        ),
        *("rollout_id", "response", "completion", "reward_inputs", "outputs", "task_info"),
    ],
)
def test_a_function_of_trl_may_name_any_column(column: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def mine(completions, {column}, **kwargs):\n    return [float(x == 'own') for x in {column}]", namespace)
    sample = Sample("It is 4.", columns={column: "own", "answer": "4"})
    assert detect(namespace["mine"], "mine") == "trl"
    assert score(namespace["mine"], sample, completions="text").value == 1.0


@pytest.mark.parametrize(
    ("given", "convention", "detected"),
    [
        (lambda completions, answers: [], "trl", "trl"),
        (lambda completions, answers, states, **kwargs: [], "trl", "trl"),
        (lambda completions, answers, **kwargs: [], "verifiers", "verifiers"),
        (lambda solution_str, **kwargs: [], "trl", "trl"),  # reads `completions` from its keywords
        (lambda queries, **kwargs: [], "trl", "trl"),
        (lambda completion, ground_truth: 1.0, "plain", "plain"),
        (lambda args, response, **kwargs: 1.0, "miles", "miles"),
        (lambda solution_str, ground_truth: 1.0, "trl", "verl"),  # clear
        (lambda queries, prompts, labels, **kwargs: [], "trl", "openrlhf"),
        (lambda completions, **kwargs: [], "verl", "trl"),
    ],
)
def test_the_configuration_decides_where_a_signature_has_a_sign_of_it(
    given: Any, convention: str, detected: str
) -> None:
    assert detect(given, "mine", convention) == detected


@pytest.mark.parametrize(
    ("library", "signature", "convention"),
    [
        ("verifiers", "completions, answers, **kwargs", "verifiers"),
        ("verifiers", "completion, answer, **kwargs", "verifiers"),
        ("benchmax.envs", "rollout_id, completions, **kwargs", "environment"),
        ("trl", "completions, answers, **kwargs", "trl"),
        ("json", "completion, answer, **kwargs", "plain"),
    ],
)
def test_a_library_that_the_file_imports_is_evidence(
    library: str, signature: str, convention: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(f"def mine({signature}):\n    import {library}\n")
    assert resolve_reward(f"{tmp_path}/mine.py:mine").components[0].reward.convention == convention  # type: ignore[attr-defined]


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
        (lambda messages, ground_truth=None, **kwargs: 1.0, "eval-protocol"),
        (lambda messages, **kwargs: 1.0, "eval-protocol"),
        (lambda row: row, "eval-protocol"),
    ],
)
def test_a_signature_that_is_not_taken_is_refused_by_its_library(given: Any, library: str) -> None:
    with raises(RewardSignatureError, "unsupported_library", library, "write `"):
        adapt(given, "mine")


VERIFIERS = """
import verifiers as vf

class Game(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return []

class Graded(vf.Rubric[str]):
    def __call__(self, completion, answer):
        return 1.0

def load_environment(**kwargs):
    return Game(rubric=vf.Rubric(funcs=[]))
"""


@pytest.mark.parametrize("name", [":Game", ":Graded", ":load_environment", ""])
def test_a_class_of_verifiers_is_refused_by_its_library(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(VERIFIERS)
    with raises(RewardSignatureError, "unsupported_library", "verifiers", "`def "):
        resolve_reward(f"{tmp_path}/mine.py{name}")


def test_a_file_beside_a_loader_has_one_reward(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{VERIFIERS}\ndef correct(completion, answer):\n    return 1.0\n")
    assert resolve_reward(f"{tmp_path}/mine.py").score([SAMPLE])[0].value == 1.0


@pytest.mark.parametrize(
    ("code", "library"),
    [
        ("import verifiers.v1 as vf\nclass Task(vf.Task[int]):\n    pass\n", "verifiers.v1"),
        ("from verifiers.v1 import Task\n", "verifiers.v1"),
        ("from verifiers import v1\n", "verifiers.v1"),
        ("from eval_protocol import evaluation_test\n", "eval-protocol"),
        ("import reward_kit\n", "eval-protocol"),
        ("from rllm.rewards import RewardOutput\n", "rLLM"),
    ],
)
def test_a_module_of_another_library_is_refused_by_its_name(code: str, library: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{code}\ndef reward(response):\n    return 1.0\n")
    with raises(RewardError, "reward_import_failed", library, "`def reward(response, answer): …`"):
        resolve_reward(f"{tmp_path}/mine.py:reward")


@pytest.mark.parametrize(
    ("given", "library", "reference"),
    [
        (lambda queries, prompts, references: [], "OpenRLHF", "labels"),
        (lambda solution_str, gold_answer: 1.0, "verl", "ground_truth"),
        (lambda completions, targets, **kwargs: [], "TRL", "answer"),
    ],
)
def test_a_missing_reference_is_named_as_its_library_names_it(given: Any, library: str, reference: str) -> None:
    with raises(
        RewardSignatureError, "invalid_reward_signature", f"{library} passes the reference answer as `{reference}`"
    ):
        adapt(given, "mine").check_parameters(["answer"])


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


LOADERS = {
    "a local variable": """
        parser = vf.XMLParser(["think", "guess"], answer_field="guess")
        rubric = vf.Rubric(funcs=[check], parser=parser)
    """,
    "a keyword": 'return vf.Rubric(funcs=[check], parser=vf.XMLParser(["guess"], "guess"))',
    "the third argument": 'return vf.Rubric([check], [1.0], vf.XMLParser(["guess"], "guess"))',
    "beside data that no reward needs": """
        from nowhere import load_dataset
        dataset = load_dataset("train")
        if use_guess:
            dataset = dataset.filter(len)
            tag = "guess"
            parser = vf.XMLParser([tag], tag)
        else:
            parser = vf.Parser()
        try:
            rubric = vf.Rubric(parser=parser)
            rubric.add_reward_func(check)
        finally:
            dataset.close()
    """,
    "one of two rubrics": """
        first, second = vf.Parser(), vf.XMLParser(["guess"], "guess")
        vf.RubricGroup([vf.Rubric([lambda: 1], parser=first), vf.JudgeRubric(funcs=[check], parser=second)])
    """,
}


def write_loader(path: Path, body: str, signature: str = "parser, completion, answer") -> str:
    value = "parser" if "parser" in signature else "kwargs['parser']"
    path.write_text(
        f"import verifiers as vf\n\ndef check({signature}, **kwargs):\n"
        f"    return float({value}.parse_answer(completion) == answer)\n\n"
        f"def load_environment(use_guess=True, **kwargs):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    )
    return f"{path}:check"


@pytest.mark.parametrize("signature", ["parser, completion, answer", "completion, answer"])
@pytest.mark.parametrize("loader", LOADERS)
def test_a_parser_that_the_loader_makes_is_handed_over(loader: str, signature: str, tmp_path: Path) -> None:
    mixture = resolve_reward(write_loader(tmp_path / "mine.py", LOADERS[loader], signature), completions="messages")
    cases = [Sample(f"<guess>{value}</guess>", columns={"answer": "4"}) for value in (4, 5)]
    assert [one.value for one in mixture.score(cases)] == [1.0, 0.0], mixture.score(cases)[0].detail


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("parser = vf.Nothing()\nvf.Rubric(funcs=[check], parser=parser)", "`parser` failed with"),
        ("vf.Rubric([check], parser=vf.Parser())\nvf.Rubric([check], parser=vf.ThinkParser())", "its rubrics have the"),
        ("vf.Rubric([check], parser=vf.XMLParser([required]))", "NameError: name 'required'"),
    ],
)
def test_a_parser_that_cannot_be_known_is_an_error_of_its_use(body: str, reason: str, tmp_path: Path) -> None:
    found = (
        resolve_reward(write_loader(tmp_path / "mine.py", body), completions="text").score([SAMPLE])[0].parts["check"]
    )
    assert found.outcome is Outcome.ERROR
    assert reason in found.detail


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
