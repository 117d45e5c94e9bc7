"""Tasks of reasoning_gym: their rows, and that their reward is the library's own score."""

import copy
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources import Split, read_rows
from agent_tunix.errors import ConfigError
from agent_tunix.rewards import Outcome, Sample, get_reward_function, resolve_reward
from agent_tunix.rewards.builtin.tasks import make_task
from agent_tunix.rewards.execution import make_runner
from tests.raising import raises
from tests.training.support import train_run

reasoning_gym: Any = pytest.importorskip("reasoning_gym", reason="needs the extra tasks")

# With scorers of all kinds: one answer, parts of one, any valid answer, and answers that are evaluated.
TASKS: dict[str, dict[str, Any]] = {
    "chain_sum": {"size": 8, "seed": 1, "min_terms": 2, "max_terms": 3},
    "spell_backward": {"size": 4},
    "graph_color": {"size": 4},
    "countdown": {"size": 4, "seed": 7},
    "spiral_matrix": {"size": 4},
    "decimal_arithmetic": {"size": 4, "min_num_decimal_places": 2, "max_num_decimal_places": 2},
    "prime_factorization": {"size": 4},
    "polynomial_equations": {"size": 4, "max_degree": 2, "operators": ["+"]},
    "word_sorting": {"size": 4},
    "list_functions": {"size": 4},
}
MALFORMED = ("", "nonsense (", '{"a":', "[[1, 2", "1/0", "1, 2", "\N{DEVANAGARI DIGIT FOUR}")


def rows_of(tasks: dict[str, Any], split: Split = "train", num_test: int = 20, **training: Any) -> list[Row]:
    data = DataConfig(source="reasoning_gym", tasks=tasks, num_test=num_test, answer_column=None)
    return list(read_rows(Config(data=data, training=TrainingConfig(**training)), split, Dropped()))


def library_score(row: Row, answer: str | None) -> float:
    task = row.columns["task"]
    own = {key: value for key, value in TASKS[task].items() if key not in ("size", "seed")}
    dataset = reasoning_gym.create_dataset(task, size=1, seed=0, **own)
    try:
        return float(
            dataset.score_answer(answer, {key: row.columns[key] for key in ("question", "answer", "metadata")})
        )
    except Exception:
        return 0.0  # what the reward documents


@pytest.mark.slow
def test_every_value_is_that_of_the_library() -> None:
    rows = rows_of(TASKS)
    assert {row.columns["task"] for row in rows} == set(TASKS)
    texts = [
        (row, text) for row in rows for text in (*MALFORMED, str(row.columns["answer"]), f"{row.columns['answer']} x")
    ]
    samples = [Sample(f"So <answer>{text}</answer>", columns=row.columns) for row, text in texts]
    samples += [Sample("no answer", columns=row.columns) for row in rows]
    expected = [
        library_score(row, reasoning_gym.utils.extract_answer(f"<answer>{text}</answer>")) for row, text in texts
    ]
    expected += [library_score(row, None) for row in rows]
    with make_runner(resolve_reward("reasoning_gym")) as runner:
        scores = runner.reward.score(samples)
    assert [score.value for score in scores] == expected
    assert {0.0, 1.0} < set(expected)


def test_an_answer_that_is_code_does_not_reach_the_files(tmp_path: Path) -> None:
    (row,) = rows_of({"spiral_matrix": {"size": 1}}, num_test=1)
    code = f"[open({str(tmp_path / 'written')!r}, 'w').write('1')]"
    with make_runner(resolve_reward("reasoning_gym"), num_workers=1) as runner:
        (score,) = runner.reward.score([Sample(f"<answer>{code}</answer>", columns=row.columns)])
    assert score.value == 0.0
    assert list(tmp_path.iterdir()) == []


def test_the_answer_is_the_tagged_one_or_else_the_boxed_one() -> None:
    (row,) = rows_of({"chain_sum": {"size": 1}}, num_test=1)
    answer, reward = row.columns["answer"], get_reward_function("reasoning_gym")
    texts = {f"<answer>{answer}</answer>": 1.0, rf"\boxed{{{answer}}}": 1.0, f"#### {answer}": 1.0, str(answer): 0.0}
    assert [reward(text, metadata=row.columns) for text in texts] == list(texts.values())
    assert reward(rf"\boxed{{{answer}}} <answer>no</answer>", metadata=row.columns) == 0.0


def test_a_row_that_is_no_entry_is_a_bad_reference() -> None:
    (score,) = get_reward_function("reasoning_gym").score([Sample("<answer>4</answer>", columns={"answer": "4"})])
    assert score.outcome is Outcome.BAD_REFERENCE


@pytest.mark.parametrize("split", ["train", "test"])
def test_rows_are_the_same_each_time(split: Split) -> None:
    assert rows_of(TASKS, split) == rows_of(TASKS, split)


def test_held_out_rows_share_no_question_with_training_rows() -> None:
    tasks = {"chain_sum": {"size": 200, "min_terms": 2, "max_terms": 2, "max_digits": 1}}  # few different questions
    train, test = ({row.columns["question"] for row in rows_of(tasks, split)} for split in ("train", "test"))
    assert train
    assert len(test) > 1
    assert not train & test


def test_levels_are_those_of_the_librarys_curriculum() -> None:
    rows = rows_of({"chain_sum": {"size": 6, "levels": [0, 4], "min_digits": 1, "max_digits": 1}})
    assert [row.columns["level"] for row in rows].count(4) == 3
    longest = {
        level: max(row.columns["metadata"]["num_terms"] for row in rows if row.columns["level"] == level)
        for level in (0, 4)
    }
    assert longest[0] == 2 < longest[4]


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ({}, "invalid_tasks"),
        ({"chain_sums": {}}, "invalid_tasks"),
        ({"chain_sum": {"num_terms": 2}}, "invalid_tasks"),
        ({"chain_sum": {"min_terms": 9}}, "invalid_tasks"),
        ({"list_functions": {"levels": [1]}}, "invalid_tasks"),
    ],
)
def test_tasks_that_the_library_refuses(tasks: dict[str, Any], code: str) -> None:
    with raises(ConfigError, code):
        rows_of(tasks)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with raises(ConfigError, "missing_package", "pip install agent_tunix[tasks]"):
        rows_of({"chain_sum": None})


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("n_queens", "[entry['metadata'].update(valid_answers=['_']), '_'][1:]"),
        ("polynomial_multiplication", "exec('import random; random.changed = True')"),
        ("countdown", "getattr(exec, 'x')"),
        ("simple_integration", "Integral(INTEGRAND)"),
    ],
)
def test_code_in_an_answer_neither_runs_nor_scores(task: str, answer: str) -> None:
    row = make_task(task, {}, size=1, seed=1)[0]
    before = copy.deepcopy(row)
    answer = answer.replace("INTEGRAND", f"{row['metadata'].get('integrand')}, {row['metadata'].get('variable')}")
    score = get_reward_function("reasoning_gym")
    assert score(f"<answer>{answer}</answer>", metadata=row) in (0.0, 0.01)
    assert row == before
    assert not hasattr(random, "changed")
    assert score(f"<answer>{row['answer']}</answer>", metadata=row) == 1.0


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("puzzle24", "1*2*3*4"),
        ("countdown", "0e0*(NUMBERS)+TARGETe0"),
        ("countdown", "0*(NUMBERS)" + "+cos(pi-pi)" * 5),
        ("countdown", "(NUMBERS)**0"),
        ("complex_arithmetic", "nan"),
        ("complex_arithmetic", "nan+nanj"),
        ("coin_flip", "0"),
        ("coin_flip", "1e999999999"),
        ("coin_flip", "1.e-1_000_000_000"),
        ("game_of_life_halting", "0"),
        ("game_of_life_halting", "True or False"),
    ],
)
def test_no_answer_is_right_in_every_row(task: str, answer: str) -> None:
    score = get_reward_function("reasoning_gym")
    for row in make_task(task, {}, size=10, seed=5):
        details = row["metadata"]
        numbers = "+".join(map(str, details.get("numbers", ())))
        given = answer.replace("NUMBERS", numbers).replace("TARGET", str(details.get("target")))
        assert score(f"<answer>{given}</answer>", metadata=row) in (0.0, 0.01)
        if row["answer"] is not None:
            assert score(f"<answer>{row['answer']}</answer>", metadata=row) == 1.0


def test_a_rounded_probability_is_right() -> None:
    rows = make_task("coin_flip", {}, size=10, seed=5)
    score = get_reward_function("reasoning_gym")
    for row in rows:
        assert score(f"<answer>{float(row['answer']):.3g}</answer>", metadata=row) not in (0.0, None)


def test_scoring_loads_no_jax() -> None:
    program = (
        "import sys, reasoning_gym; from agent_tunix.rewards import get_reward_function;"
        "row = reasoning_gym.create_dataset('chain_sum', seed=1, size=1)[0];"
        "score = get_reward_function('reasoning_gym');"
        "print(score(f'<answer>{row[\"answer\"]}</answer>', metadata=row), 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["1.0", "False"]


@pytest.mark.slow
def test_a_run_on_tasks(tmp_path: Path) -> None:
    tasks = "data.tasks={chain_sum: {size: 40, levels: [0, 1]}, spell_backward: {size: 20}, graph_color: null}"
    rows = train_run(
        tmp_path / "run", "data=reasoning_gym", tasks, "training.num_batches=3", "data.curriculum.column=level"
    )
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert all(row["rewards/outcomes/scored"] == 16 for row in rows[1:])
    assert rows[-1]["eval/accuracy"] is not None
