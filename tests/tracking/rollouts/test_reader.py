"""Rollouts read back by our reader, pandas, Polars and DuckDB, and steps cut before a resumed run writes them."""

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.tracking.rollouts.files import cut_after, list_files
from agent_tunix.tracking.rollouts.schema import COLUMNS
from tests.raising import raises
from tests.tiers import slow_after
from tests.tracking.rollouts.support import assert_same_step, make_step, names, write


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps in three files."""
    path = tmp_path_factory.mktemp("rollouts")
    write(path, *map(make_step, range(1, 7)), flush_after=[2, 4])
    return path


def test_one_step_is_read(directory: Path) -> None:
    assert_same_step(RolloutReader(directory).read_step(4), make_step(4))


def test_steps_groups_and_rollouts_are_picked(directory: Path) -> None:
    reader = RolloutReader(directory)
    assert [stored.step for stored in reader.iterate(steps=[5, 2, 99])] == [2, 5]
    assert {sample.rollout_id for stored in reader.iterate([3], groups=[1]) for sample in stored.samples} == {
        "3_1_0",
        "3_1_1",
    }
    found = list(reader.iterate(rollout_ids={"2_0_1", "6_1_0", "9_9_9", "nonsense"}))
    assert [sample.rollout_id for stored in found for sample in stored.samples] == ["2_0_1", "6_1_0"]
    assert reader.read_step(2).is_whole
    assert not found[0].is_whole
    assert found[0].scores == [make_step(2).scores[1]]
    assert found[0].advantages.tolist() == [make_step(2).advantages[1]]
    assert list(reader.iterate(groups=[7])) == []


def test_counts_and_columns_are_read_without_the_rest(directory: Path) -> None:
    reader = RolloutReader(directory)
    assert reader.num_completions() == 6 * 4
    tables = list(reader.tables(["step", "total"]))
    assert [table.column_names for table in tables] == [["step", "total"]] * 6
    assert pa.concat_tables(tables)["step"].to_pylist() == [step for step in range(1, 7) for _ in range(4)]


def test_a_step_that_is_not_there_is_an_error_that_names_those_that_are(directory: Path, tmp_path: Path) -> None:
    for place, said in ((directory, "steps 1 to 6 are"), (tmp_path / "none", "no steps are")):
        with raises(RunDirectoryError, "invalid_request") as caught:
            RolloutReader(place).read_step(7)
        assert said in str(caught.value)


def test_a_reader_sees_what_a_run_adds_and_cuts(tmp_path: Path) -> None:
    reader = RolloutReader(tmp_path)
    assert reader.steps() == []
    write(tmp_path, make_step(1))
    assert reader.steps() == [1]
    write(tmp_path, make_step(2), make_step(3))
    assert reader.steps() == [1, 2, 3]
    (tmp_path / "step_000001-000001.parquet").unlink()
    assert reader.steps() == [2, 3]


def test_an_unfinished_file_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, make_step(1))
    (tmp_path / ".step_000002.partial").write_bytes(b"PAR1")
    (tmp_path / "notes.txt").write_text("mine")
    assert RolloutReader(tmp_path).steps() == [1]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b""), ""),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), ""),
        (lambda path: pq.write_table(pa.table({"step": [1]}), path), "it contains no rollouts"),
        (lambda path: pq.write_table(of_version(99, pq.read_table(path)), path), "version 99 of the schema"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    write(tmp_path, make_step(1))
    damage(tmp_path / "step_000001-000001.parquet")
    with raises(RunDirectoryError, "damaged_run") as caught:
        list(RolloutReader(tmp_path).iterate())
    assert "step_000001-000001.parquet" in str(caught.value)
    assert said in str(caught.value)


def of_version(number: int, table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata({**table.schema.metadata, b"agent_tunix.rollouts": b"%d" % number})


# As others read it.


def expected_totals() -> list[float | None]:
    return [score.value for step in range(1, 7) for score in make_step(step).scores]


def test_pandas_reads_the_directory(directory: Path) -> None:
    frame = pd.read_parquet(directory)
    assert list(frame.columns) == [column.name for column in COLUMNS]
    assert frame.sort_values(["step", "rollout_id"])["total"].tolist() == expected_totals()
    row = frame[frame["rollout_id"] == "2_1_0"].iloc[0]
    assert json.loads(row["columns"])["answer"] == "3"
    assert {part["name"]: part["value"] for part in row["components"]}["correct"] == 1.0


def test_polars_reads_the_directory(directory: Path) -> None:
    frame = pl.read_parquet(directory / "*.parquet").sort("step", "rollout_id")
    assert frame["total"].to_list() == expected_totals()
    parts = frame.explode("components").unnest("components", separator=".")
    correct = parts.filter(pl.col("components.name") == "correct")["components.value"].to_list()
    assert correct == [score.components["correct"] for step in range(1, 7) for score in make_step(step).scores]


def test_duckdb_reads_the_directory(directory: Path) -> None:
    with duckdb.connect() as database:
        totals = database.execute(f"SELECT total FROM '{directory}/*.parquet' ORDER BY step, rollout_id").fetchall()
        assert [total for (total,) in totals] == expected_totals()
        of_step_4 = f"FROM '{directory}/*.parquet' WHERE step = 4"
        answers = database.execute(f"SELECT DISTINCT columns ->> 'answer' {of_step_4} ORDER BY 1").fetchall()
        assert answers == [("4",), ("5",)]


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """Steps 1 to 3, 4 to 6 and 7, and an unfinished file."""
    write(tmp_path, *map(make_step, range(1, 8)), flush_after=[3, 6])
    (tmp_path / ".step_000008.partial").write_bytes(b"PAR1 half")
    return tmp_path


@pytest.mark.parametrize("last", slow_after(3, [3, 5, 8, -1, 0, 2, 7]))
def test_steps_up_to_the_last_kept_are_all_that_is_left(unfinished: Path, last: int) -> None:
    cut_after(unfinished, last)
    steps = list(range(1, min(last, 7) + 1))
    reader = RolloutReader(unfinished)
    assert reader.steps() == steps
    for stored in reader.iterate():
        assert_same_step(stored, make_step(stored.step))
    assert not [name for name in names(unfinished) if name.startswith(".")]


def test_a_file_that_spans_the_cut_is_renamed_for_what_it_keeps(unfinished: Path) -> None:
    cut_after(unfinished, 5)
    assert names(unfinished) == ["step_000001-000003.parquet", "step_000004-000005.parquet"]


def test_a_run_without_rollouts_has_nothing_to_cut(tmp_path: Path) -> None:
    cut_after(tmp_path / "rollouts", 3)
    assert names(tmp_path) == []


def test_a_cut_killed_halfway_can_be_done_again(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shorter file is there, the longer one not yet gone."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _fail_for_parquet)
        with raises(RunDirectoryError, "damaged_run"):
            cut_after(unfinished, 5)
    assert [(file.first, file.last) for file in list_files(unfinished)] == [(1, 3), (4, 5), (4, 6), (7, 7)]
    assert [stored.step for stored in RolloutReader(unfinished).iterate()] == list(range(1, 8))
    cut_after(unfinished, 5)
    assert names(unfinished) == ["step_000001-000003.parquet", "step_000004-000005.parquet"]


def _fail_for_parquet(path: Path, missing_ok: bool = False) -> None:
    if path.suffix == ".parquet":
        raise OSError("killed here")
    os.unlink(path)


@pytest.mark.parametrize("content", [b"", b"PAR1 nothing PAR1"])
def test_a_damaged_file_that_spans_the_cut_is_removed_and_told(
    unfinished: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (unfinished / "step_000004-000006.parquet").write_bytes(content)
    with caplog.at_level(logging.WARNING, "agent_tunix.rollouts"):
        cut_after(unfinished, 5)
    assert names(unfinished) == ["step_000001-000003.parquet"]
    assert "the completions of steps 4 to 5 are lost" in caplog.text


def test_a_reader_that_skips_damaged_files_reads_the_others(unfinished: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One is torn at its end, where the footer is, and one within its rows."""
    torn, garbled = unfinished / "step_000001-000003.parquet", unfinished / "step_000004-000006.parquet"
    torn.write_bytes(torn.read_bytes()[:-50])
    content = bytearray(garbled.read_bytes())
    content[200:-2000] = bytes(len(content) - 2200)
    garbled.write_bytes(content)
    reader = RolloutReader(unfinished, skips_damaged=True)
    with caplog.at_level(logging.WARNING, "agent_tunix.rollouts"):
        assert [stored.step for stored in reader.iterate()] == [7]
    assert reader.damaged == [torn, garbled]
    assert len(caplog.records) == 2
