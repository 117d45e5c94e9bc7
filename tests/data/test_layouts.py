"""Rows of verl load with nothing but their path."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data import load_examples
from agent_tunix.data.examples import fit_layout
from tests.data.reading import config_for

MESSAGES = [{"role": "user", "content": "What is 2 + 2? Output the answer after ####."}]


def verl_row(truth: Any = "4", **more: Any) -> dict[str, Any]:
    return {
        "data_source": "openai/gsm8k",
        "prompt": MESSAGES,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"split": "train", "index": 0, "answer": "2 + 2 = 4\n#### 4", "question": "What is 2 + 2?"},
        **more,
    }


def load(path: Path, **keys: Any) -> Any:
    config: Config = config_for(path)
    for key, value in keys.items():
        setattr(config.data, key, value)
    (example,) = load_examples(config, "train").examples
    return example


def test_a_parquet_file_of_verl_loads(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([verl_row()]), tmp_path / "rows.parquet")
    example = load(tmp_path / "rows.parquet")
    assert example.messages == tuple(MESSAGES)
    assert example.columns == {**verl_row(), "answer": "4"}


@pytest.mark.parametrize("truth", [{"target": ["Paris", "paris"]}, ["4", "four"], 4])
def test_its_reference_stays_as_it_is(truth: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(verl_row(truth)))
    assert load(tmp_path / "rows.jsonl").columns["answer"] == truth


def test_columns_under_the_default_names_and_configured_ones_stay(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(verl_row(question="Own?", answer="own")))
    example = load(tmp_path / "rows.jsonl")
    assert (example.prompt, example.columns["answer"]) == ("Own?", "own")
    example = load(tmp_path / "rows.jsonl", answer_column="extra_info.index")
    assert example.columns["answer"] == 0


def test_other_rows_and_none_change_nothing() -> None:
    config = Config()
    assert fit_layout(config.data, []) is config.data
