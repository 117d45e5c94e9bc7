"""Pairs of rows: layouts of preference data, and refusals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, DataConfig, PreferConfig
from agent_tunix.data import peek_example
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.preferences.pairs import check_preferences, make_pairs, read_pair
from tests.raising import raises
from tests.training.support import small_run

USER = {"role": "user", "content": "Name a number."}
FOUR, FIVE = ({"role": "assistant", "content": text} for text in (" Four. ", "Five."))


def write_rows(directory: Path, *rows: dict[str, Any]) -> Config:
    path = directory / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = Config(data=DataConfig(path=str(path)))
    config.evaluation.num_samples = 0
    return config


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Name a number.", "chosen": " Four. ", "rejected": "Five."},
        {"question": "Name a number.", "answer": "4", "chosen": "Four.", "rejected": "Five."},
        {"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]},
        {"chosen": [USER, FOUR], "rejected": [USER, FIVE]},
        {"prompt": "Name a number.", "chosen": [USER, FOUR], "rejected": [USER, FIVE]},
    ],
    ids=["text", "columns of problems", "messages", "implicit prompt", "prompt and conversations"],
)
def test_layouts_of_preference_data_are_read_without_settings(row: dict[str, Any], tmp_path: Path) -> None:
    example = peek_example(write_rows(tmp_path, row))
    assert example.prompt == "Name a number."
    assert read_pair(example.columns) == ("Four.", "Five.")


def test_a_shared_prompt_may_have_several_turns(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Be brief."}
    turns = [system, USER, FOUR, {"role": "user", "content": "Another."}]
    example = peek_example(write_rows(tmp_path, {"chosen": [*turns, FIVE], "rejected": [*turns, FOUR]}))
    assert example.messages is not None
    assert [message["role"] for message in example.messages] == ["system", "user", "assistant", "user"]
    assert read_pair(example.columns) == ("Five.", "Four.")


@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"answer": "4"}, "prefer.from_rollouts"),
        ({"chosen": "4", "rejected": "4 "}, "equal"),
        ({"chosen": "4", "rejected": " "}, "rejected"),
        ({"chosen": "4", "rejected": 5}, "rejected"),
        ({"chosen": [USER, FOUR, USER, FIVE], "rejected": [USER, FIVE]}, "3 messages"),
        ({"chosen": [USER, USER], "rejected": [USER, FIVE]}, "assistant"),
    ],
)
def test_what_is_no_pair_is_refused(columns: dict[str, Any], fact: str) -> None:
    with raises(DataError, "invalid_row", fact):
        read_pair(columns)


def test_chosen_comes_before_rejected_and_both_end(tokenizer: Tokenizer) -> None:
    config = Config(prefer=PreferConfig(max_response_length=12))
    config.generation.max_prompt_length = 4
    rows = [{"chosen": "4", "rejected": "2+2=5"}, {"chosen": "1", "rejected": "4" * 40}, {"chosen": "4"}]
    batch = PromptBatch(["?"] * 3, [[]] * 3, [[1], [1, 2], [3]], rows)
    pairs = make_pairs(batch, tokenizer, config, pad_id=0, eos_id=7)
    expected = [[*tokenizer.encode(text, allow_special=False), 7] for text in ("4", "2+2=5")]
    assert [list(ids[mask]) for ids, mask in zip(pairs.tokens[:2], pairs.mask[:2], strict=True)] == expected
    assert not pairs.mask[2:].any()
    assert len(pairs.left_out) == 2
    assert "prefer.max_response_length=12" in pairs.left_out[0]
    np.testing.assert_array_equal(pairs.prompt_lengths, [1, 2, 1])


def test_rows_without_pairs_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with raises(DataError, "invalid_row", "chosen"):
        check_preferences(preflight(small_run(), tmp_path))


@pytest.mark.parametrize(
    ("prefer", "key"),
    [
        (PreferConfig(gamma=1.0), "prefer.gamma"),
        (PreferConfig(loss="simpo", reference=True), "prefer.reference"),
        (PreferConfig(loss="ipo", label_smoothing=0.1), "prefer.label_smoothing"),
    ],
)
def test_a_key_that_the_loss_does_not_read_is_refused(prefer: PreferConfig, key: str) -> None:
    with raises(ConfigError, "invalid_config", key):
        check(Config(prefer=prefer))
