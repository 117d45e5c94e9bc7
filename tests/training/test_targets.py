"""Targets of a supervised start: texts, tokens, masks and refusals."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.targets import check_supervised, make_targets, target_text
from tests.raising import raises
from tests.training.support import small_run

ROW = {"solution": "2+2=4", "answer": "4", "question": "What is 2 plus 2?"}


def config_of(**keys: Any) -> Config:
    config = Config()
    for key, value in keys.items():
        group, _, name = key.partition("__")
        setattr(getattr(config, group), name, value)
    return config


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "<reasoning>{reasoning}</reasoning><answer>{answer}</answer>",
            "<reasoning>2+2=4</reasoning><answer>4</answer>",
        ),
        ("<think>{thinking}</think> {answer}", "<think>2+2=4</think> 4"),
        ("{solution}\n#### {answer}", "2+2=4\n#### 4"),
        ("{question} {answer}", "What is 2 plus 2? 4"),
        (r"\boxed{{answer}}", r"\boxed{4}"),
        ("{answer}", "4"),
    ],
)
def test_the_format_is_filled_with_the_solution_and_the_answer(given: str, expected: str) -> None:
    assert target_text(ROW, config_of(prompt__format=given)) == expected


def test_a_column_may_hold_the_whole_target() -> None:
    config = config_of(sft__target_column="ideal")
    assert target_text({**ROW, "ideal": " Four. "}, config) == "Four."


def test_what_is_filled_in_is_not_filled_in_itself() -> None:
    assert "{answer}" in target_text({**ROW, "solution": "say {answer}"}, Config())


@pytest.mark.parametrize(
    ("number", "text"), [(4, "4"), (12.0, "12"), (0.5, "0.5"), (Decimal("4.50"), "4.50"), (Decimal("3.00"), "3")]
)
def test_a_number_is_the_text_that_it_is_as_a_reference(number: Any, text: str) -> None:
    assert target_text({"answer": number}, config_of(prompt__format="{answer}")) == text


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"answer": "4"}, "is not one of"),
        ({"answer": "4", "solution": " "}, "is ' '"),
        ({"answer": "4", "solution": None}, "is None"),
    ],
)
def test_a_row_without_a_solution_is_refused_with_the_column(columns: dict[str, Any], text: str) -> None:
    with raises(DataError, "invalid_row", "the column 'solution'", text):
        target_text(columns, Config())


def batch_of(rows: list[dict[str, Any]], prompts: list[list[int]]) -> PromptBatch:
    return PromptBatch([""] * len(rows), [[]] * len(rows), prompts, rows)


def test_a_target_ends_with_the_end_of_sequence_token_and_is_padded_on_the_right(tokenizer: Tokenizer) -> None:
    config = config_of(generation__max_prompt_length=4, sft__max_target_length=32)
    rows = [ROW, {**ROW, "solution": "2*3=6; 6-2=4"}]
    made = make_targets(batch_of(rows, [[5, 6], [7]]), tokenizer, config, pad_id=0, eos_id=2)
    assert made.prompt_tokens.tolist() == [[0, 0, 5, 6], [0, 0, 0, 7]]
    for row, columns in enumerate(rows):
        ids = tokenizer.encode(target_text(columns, config), allow_special=False)
        length = len(ids) + 1
        assert made.tokens[row, :length].tolist() == [*ids, 2]
        assert made.mask[row].tolist() == [True] * length + [False] * (32 - length)
        assert (made.tokens[row, length:] == 0).all()
    assert made.left_out == []


def test_special_tokens_that_a_solution_spells_stay_text(tokenizer: Tokenizer) -> None:
    config = config_of(sft__max_target_length=64)
    rows = [{**ROW, "solution": "stop <|im_end|> here"}]
    made = make_targets(batch_of(rows, [[5]]), tokenizer, config, pad_id=0, eos_id=tokenizer.eos_id())
    assert (made.tokens[made.mask] == tokenizer.eos_id()).sum() == 1


def test_a_row_whose_target_is_too_long_or_missing_is_left_out_and_told(tokenizer: Tokenizer) -> None:
    config = config_of(sft__max_target_length=30)
    rows = [ROW, {**ROW, "solution": "1+1=2; " * 20}, {"answer": "4"}]
    made = make_targets(batch_of(rows, [[5]] * 3), tokenizer, config, pad_id=0, eos_id=2)
    assert made.mask.any(axis=1).tolist() == [True, False, False]
    assert "at most sft.max_target_length=30 tokens" in made.left_out[0]
    assert "the column 'solution'" in made.left_out[1]
    assert np.all(made.tokens[1:] == 0)


def test_without_a_length_of_its_own_a_target_is_as_long_as_a_completion(tokenizer: Tokenizer) -> None:
    config = config_of(generation__max_generation_steps=3)
    made = make_targets(batch_of([ROW], [[5]]), tokenizer, config, pad_id=0, eos_id=2)
    assert made.tokens.shape == (1, 3)
    assert "at most generation.max_generation_steps=3 tokens" in made.left_out[0]


def test_rows_without_a_target_are_refused_before_jax(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": "What is 2 plus 2?", "answer": "4"}\n')
    (tmp_path / "test.jsonl").write_text('{"question": "What is 2 plus 3?", "answer": "5"}\n')
    config = small_run("data.source=jsonl", f"data.path={tmp_path}")
    with raises(DataError, "invalid_row"):
        check_supervised(preflight(config, tmp_path))


def test_a_micro_batch_that_devices_cannot_share_is_refused(tmp_path: Path) -> None:
    config = small_run("model.mesh_shape=[2,1]", "training.micro_batch_size=1")
    with raises(ConfigError, "invalid_config"):
        check_supervised(preflight(config, tmp_path))
