import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, DataConfig, EnvironmentConfig, TrainingConfig
from agent_tunix.data.dataset import (
    is_held_out,
    load_evaluation,
    load_examples,
    load_splits,
    peek_example,
    peek_examples,
)
from agent_tunix.data.examples import Example
from agent_tunix.errors import AgentTunixError, DataError
from tests.raising import raises


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"question": f"{n} + 1?", "answer": f"add\n#### {n + 1}", "level": n} for n in range(first, first + count)]


def write(path: Path, objects: Sequence[Any]) -> None:
    path.write_text("".join(f"{json.dumps(value)}\n" for value in objects), encoding="utf-8")


def config_for(path: Path, train_fraction: float = 1.0, seed: int = 0) -> Config:
    return Config(
        seed=seed,
        data=DataConfig(source="jsonl", path=str(path)),
        training=TrainingConfig(train_fraction=train_fraction),
    )


def test_examples_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(300))
    loaded = load_examples(config_for(tmp_path), "train")
    assert [example.columns["answer"] for example in loaded.examples] == [str(n + 1) for n in range(300)]
    assert [example.index for example in loaded.examples] == list(range(1, 301))
    assert loaded.dropped.total == 0


def test_malformed_rows_of_every_kind_are_counted_with_their_lines(tmp_path: Path) -> None:
    good = json.dumps(rows(1)[0]).encode()
    lines = [
        good,
        b'{"answer": "#### 1"}',
        b'{"question": "q", "answer": "24"}',
        b'{"question": "q", "answer": "####"}',
        b"",
        b'{"question": "\xff"}',
        b"x" * 1_000_000,
        good,
    ]
    (tmp_path / "train.jsonl").write_bytes(b"\n".join(lines))
    loaded = load_examples(config_for(tmp_path), "train")
    assert [example.index for example in loaded.examples] == [1, 8]
    assert loaded.dropped.rows == {
        "no column 'question'": [2],
        "no #### in column 'answer'": [3],
        "nothing after #### in column 'answer'": [4],
        "empty line": [5],
        "not UTF-8": [6],
        "longer than data.max_row_bytes=65536": [7],
    }
    assert str(tmp_path / "train.jsonl") in loaded.describe("training")


@pytest.mark.parametrize(
    ("mark", "answers", "references"),
    [
        ("auto", ["Paris"], ["Paris"]),
        ("auto", ["24"] * 3 + ["add\n#### 7"] * 7, ["7"] * 7),
        ("always", ["1", "#### Overview"], ["Overview"]),
        ("none", ["1", "#### Overview"], ["1", "#### Overview"]),
    ],
)
def test_answers_are_references_or_hold_them_after_a_mark(
    mark: str, answers: list[str], references: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "train.jsonl", [{"question": "q", "answer": answer} for answer in answers])
    config = config_for(tmp_path)
    config.data.answer_mark = mark
    loaded = load_examples(config, "train")
    assert [example.columns["answer"] for example in loaded.examples] == references
    lost = len(answers) - len(references)
    assert loaded.dropped.counts == ({"no #### in column 'answer'": lost} if lost else {})
    assert not caplog.records


def test_one_heading_among_the_answers_marks_no_dataset(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = [{"question": f"{n}?", "answer": str(n)} for n in range(150)]
    heading = {"question": "Explain.", "answer": "#### Overview\nIt is so."}
    write(tmp_path / "train.jsonl", [heading, *plain, heading])
    loaded = load_examples(config_for(tmp_path), "train")
    assert len(loaded.examples) == 152
    assert loaded.examples[0].columns["answer"] == heading["answer"]
    assert [record.getMessage().split(" have ####")[0] for record in caplog.records] == [
        f"2 train answers of {tmp_path / 'train.jsonl'}"
    ]


@pytest.mark.parametrize(
    ("objects", "code", "words"),
    [
        ([], "no_rows", ["train.jsonl"]),
        (
            [{"problem": "q", "answer": "1"}, [], {"problem": "p", "answer": "2"}],
            "no_rows",
            [
                "none of the 3",
                "1 × not a JSON object",
                "2 × no column 'question' (lines 1, 3; ",
                "'problem'",
                "answer_column=null",
            ],
        ),
    ],
)
def test_a_file_without_a_usable_row_is_refused_with_the_counts(
    objects: list[Any], code: str, words: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "train.jsonl", objects)
    with raises(DataError, code, *words):
        load_examples(config_for(tmp_path), "train")


def test_evaluation_has_the_test_rows(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(5))
    write(tmp_path / "test.jsonl", [*rows(3, first=100), "bad"])
    train, evaluation, report = load_splits(config_for(tmp_path))
    assert (len(train), len(evaluation)) == (5, 3)
    assert load_evaluation(config_for(tmp_path)).examples == evaluation
    assert report.describe().startswith("5 training examples\n3 evaluation examples; dropped of ")


def test_fraction_divides_the_training_rows(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", rows(100))
    config = config_for(tmp_path / "rows.jsonl", train_fraction=0.9)
    train, evaluation, _ = load_splits(config)
    assert (len(train), len(evaluation)) == (90, 10)
    assert {example.index for example in train + evaluation} == set(range(1, 101))
    assert load_splits(config)[:2] == (train, evaluation)
    assert load_evaluation(config).examples == evaluation
    assert load_splits(config_for(tmp_path / "rows.jsonl", 0.9, seed=1))[1] != evaluation


def test_held_out_problems_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    write(tmp_path / "forward.jsonl", rows(50))
    write(tmp_path / "backward.jsonl", rows(50)[::-1])
    forward = load_splits(config_for(tmp_path / "forward.jsonl", 0.8))[1]
    backward = load_splits(config_for(tmp_path / "backward.jsonl", 0.8))[1]
    assert {example.prompt for example in forward} == {example.prompt for example in backward}


@pytest.mark.parametrize("space", ["{}", "\n {}  "])
def test_a_repeated_problem_is_never_on_both_sides(space: str, tmp_path: Path) -> None:
    repeated = [{**row, "question": space.format(row["question"])} for row in rows(20)]
    write(tmp_path / "rows.jsonl", [*rows(20), *repeated])
    config = config_for(tmp_path / "rows.jsonl", 0.7)
    train, evaluation, _ = load_splits(config)
    assert (len(train), len(evaluation)) == (28, 12)
    assert not {example.prompt.strip() for example in train} & {example.prompt.strip() for example in evaluation}
    sides = [is_held_out(example, config) for example in load_examples(config, "train").examples]
    assert sides[:20] == sides[20:]
    assert len(set(sides)) == 2


def test_a_question_is_the_same_problem_as_text_and_as_a_conversation() -> None:
    config = Config(training=TrainingConfig(train_fraction=0.5))
    for number in range(20):
        asked = f"{number} + 1?"
        talk = Example(asked, {}, 1, ({"role": "user", "content": asked},))
        assert is_held_out(talk, config) == is_held_out(Example(asked, {}, 2), config)


def test_an_environment_has_another_problem_for_each_row(tmp_path: Path) -> None:
    games = [{"question": "Play.", "answer": "", "target": {"number": number // 2}} for number in range(40)]
    write(tmp_path / "rows.jsonl", games)
    config = config_for(tmp_path / "rows.jsonl", 0.7)
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, answer_column=None))
    with raises(DataError, "no_rows"):
        load_splits(config)
    config = dataclasses.replace(config, environment=EnvironmentConfig(name="guess_number"))
    train, evaluation, _ = load_splits(config)
    assert (len(train), len(evaluation)) == (28, 12)
    numbers = [{example.columns["target"]["number"] for example in part} for part in (train, evaluation)]
    assert not numbers[0] & numbers[1]
    assert len({is_held_out(example, config) for example in train + evaluation}) == 2


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_neither_side_is_ever_empty(fraction: float, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", rows(3))
    train, evaluation, _ = load_splits(config_for(tmp_path / "rows.jsonl", fraction))
    assert train
    assert evaluation


LOST = [{"problem": "p"}, {"problem": "q"}]


@pytest.mark.parametrize(
    ("objects", "fraction", "code", "words"),
    [
        (rows(1), 0.5, "no_rows", "there is 1; set it to 1"),
        ([*rows(1), *LOST], 0.5, "no_rows", "were dropped: 2 × no column 'question' or 'answer' (lines 2, 3"),
    ],
)
def test_what_cannot_be_divided(objects: list[Any], fraction: float, code: str, words: str, tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", objects)
    with raises(AgentTunixError, code, words):
        load_splits(config_for(tmp_path / "rows.jsonl", fraction))


def test_peeking_knows_the_columns_and_reads_no_further_than_it_must(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(1) * 100)
    os.truncate(tmp_path / "train.jsonl", 1 << 40)  # A terabyte of holes, which nobody should read.
    write(tmp_path / "test.jsonl", rows(1))
    assert set(peek_example(config_for(tmp_path)).columns) == {"question", "answer", "worked_solution", "level"}


def mixture(directory: Path, train_fraction: float = 1.0, **keys: Any) -> Config:
    """`easy`: 40 rows of a directory; `hard`: 8 of a CSV file with other columns."""
    easy = directory / "easy"
    easy.mkdir()
    write(easy / "train.jsonl", [*rows(40), "bad"])
    write(easy / "test.jsonl", rows(20, first=200))
    hard = directory / "hard"
    hard.mkdir()
    for split, first in (("train", 100), ("test", 300)):
        lines = "".join(f"{n} * 2?,{2 * n},hard\n" for n in range(first, first + 8))
        (hard / f"{split}.csv").write_text(f"problem,result,level\n{lines}")
    sets = {
        "easy": {"weight": 3.0, "path": str(easy)},
        "hard": {"path": str(hard), "prompt_column": "problem", "answer_column": "result", **keys},
    }
    return Config(data=DataConfig(mixture=sets), training=TrainingConfig(train_fraction=train_fraction))


def test_a_mixture_has_the_rows_of_each_set_with_its_name(tmp_path: Path) -> None:
    loaded = load_examples(mixture(tmp_path), "train")
    assert [example.columns["data_source"] for example in loaded.examples] == ["easy"] * 40 + ["hard"] * 8
    assert loaded.examples[-1].columns == {
        "problem": "107 * 2?",
        "result": "214",
        "answer": "214",
        "level": "hard",
        "data_source": "hard",
    }
    assert loaded.describe("training") == (
        "48 training examples (easy 40, hard 8); dropped of the mixture: "
        "1 × easy: not a JSON object (line 41; it is str)"
    )


def test_the_evaluation_of_a_mixture_takes_turns_between_its_sets(tmp_path: Path) -> None:
    config = mixture(tmp_path)
    names = [example.columns["data_source"] for example in load_evaluation(config).examples]
    assert (names.count("easy"), names.count("hard")) == (20, 8)
    assert names[:14].count("hard") == 4
    write(tmp_path / "other.jsonl", rows(3))
    config.training.test_data_dir = str(tmp_path / "other.jsonl")
    assert len(load_evaluation(config).examples) == 3


def test_a_fraction_divides_all_sets_together(tmp_path: Path) -> None:
    train, evaluation, report = load_splits(mixture(tmp_path, train_fraction=0.75))
    assert (len(train), len(evaluation)) == (36, 12)
    assert not {example.prompt for example in train} & {example.prompt for example in evaluation}
    assert sum(report.train.counts.values()) == 36
    assert sum(report.evaluation.counts.values()) == 12


def test_columns_of_each_set_are_known_before_loading(tmp_path: Path) -> None:
    columns = {name: set(example.columns) for name, example in peek_examples(mixture(tmp_path)).items()}
    assert columns == {
        "easy": {"question", "answer", "worked_solution", "level", "data_source"},
        "hard": {"problem", "result", "answer", "level", "data_source"},
    }


def test_a_set_without_a_usable_row_is_refused_with_its_name(tmp_path: Path) -> None:
    config = mixture(tmp_path, prompt_column="question")
    for split, read in (("test", peek_examples), ("train", lambda config: load_examples(config, "train"))):
        with raises(DataError, "no_rows", f"{split} rows of data.mixture.hard"):
            read(config)


def test_a_column_that_says_otherwise_where_rows_come_from_must_be_renamed(tmp_path: Path) -> None:
    config = mixture(tmp_path, columns={"data_source": "problem", "problem": "level"})
    with raises(DataError, "no_rows", "rename it, for example data.mixture.hard.columns.origin=data_source"):
        load_examples(config, "train")


def test_a_training_row_without_a_difficulty_is_dropped_and_a_held_out_one_kept(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [*rows(5), {"question": "q", "answer": "#### 1", "level": None}])
    write(tmp_path / "test.jsonl", [{"question": "q", "answer": "#### 1"}])
    config = config_for(tmp_path)
    config.data.curriculum.column = "level"
    train, evaluation, report = load_splits(config)
    assert (len(train), len(evaluation)) == (5, 1)
    assert report.train.dropped.rows == {
        "column 'level' is not a number, and data.curriculum.order is empty": [6],
    }


def test_the_evaluation_of_a_stream_reads_no_more_than_it_asks(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(1))
    write(tmp_path / "test.jsonl", rows(1) * 200)
    os.truncate(tmp_path / "test.jsonl", 1 << 40)  # A terabyte of holes, which nobody should read.
    config = config_for(tmp_path)
    config.data.streaming, config.evaluation.num_samples = True, 150
    assert len(load_evaluation(config).examples) == 150


@pytest.mark.parametrize("fraction", [0.8, 1.0])
def test_a_stream_without_evaluation_needs_no_held_out_rows(fraction: float, tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", rows(20))
    config = config_for(tmp_path / "train.jsonl", train_fraction=fraction)
    config.data.streaming, config.evaluation.num_samples = True, 0
    assert load_evaluation(config).examples == []


def test_about_a_fraction_of_a_stream_trains_and_the_rest_is_held_out(tmp_path: Path) -> None:
    write(tmp_path / "rows.jsonl", rows(1000) * 2)
    config = config_for(tmp_path / "rows.jsonl", train_fraction=0.9)
    config.data.streaming = True
    held_out = load_evaluation(config).examples
    assert 2 * 70 < len(held_out) < 2 * 130
    assert all(is_held_out(example, config) for example in held_out)
    assert load_evaluation(config).examples == held_out
    config.seed = 1
    assert load_evaluation(config).examples != held_out
    config.training.train_fraction = 0.999999999
    with raises(DataError, "no_rows"):
        load_evaluation(config)
