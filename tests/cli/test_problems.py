from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.raising import raises

from agent_tunix.cli.rewards.problems import load_problems, source_of
from agent_tunix.errors import DataError


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.jsonl", "rows.txt"])
def test_problems_come_from_any_file_that_training_reads(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith(".csv"):
        path.write_text("problem,label,level\np,4,hard\n")
    elif name.endswith(".parquet"):
        pq.write_table(pa.table({"problem": ["p"], "label": [4], "level": ["hard"]}), path)
    else:
        path.write_text('{"problem": "p", "label": 4, "level": "hard"}\n')
    (problem,) = load_problems(str(path), 5, None, None)
    assert problem.prompt == "p"
    assert (str(problem.columns["answer"]), problem.columns["level"]) == ("4", "hard")


def test_a_directory_has_the_training_rows(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("question,answer\n" + "q,1\n" * 10)
    assert len(load_problems(str(tmp_path), 4, None, None)) == 4
    assert source_of(str(tmp_path)) == "auto"


def test_a_missing_file_is_refused() -> None:
    with raises(DataError, "missing_data"):
        load_problems("nowhere", 4, None, None)


def test_columns_are_asked_for_by_the_options_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"task": "p", "solution": "4"}\n')
    with raises(DataError, "no_rows") as caught:
        load_problems(str(tmp_path / "rows.jsonl"), 4, None, None)
    assert "no column 'question' " in str(caught.value)
    assert str(caught.value).endswith("set --prompt-column and --answer-column")
