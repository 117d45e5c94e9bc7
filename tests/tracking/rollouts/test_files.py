"""Steps cut from the files, because a resumed run writes them again."""

import os
from pathlib import Path

import pytest

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.tracking.rollouts.files import cut_after, list_files
from tests.raising import raises
from tests.tracking.rollouts.support import assert_same_step, make_step, names, write


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Steps 1 to 3, 4 to 6 and 7, and an unfinished file."""
    write(tmp_path, *map(make_step, range(1, 8)), flush_after=[3, 6])
    (tmp_path / ".step_000008.partial").write_bytes(b"PAR1 half")
    return tmp_path


@pytest.mark.parametrize("last", [-1, 0, 2, 3, 5, 7, 8])
def test_steps_up_to_the_last_kept_are_all_that_is_left(directory: Path, last: int) -> None:
    cut_after(directory, last)
    steps = list(range(1, min(last, 7) + 1))
    reader = RolloutReader(directory)
    assert reader.steps() == steps
    for stored in reader.iterate():
        assert_same_step(stored, make_step(stored.step))
    assert not [name for name in names(directory) if name.startswith(".")]


def test_a_file_that_spans_the_cut_is_renamed_for_what_it_keeps(directory: Path) -> None:
    cut_after(directory, 5)
    assert names(directory) == ["step_000001-000003.parquet", "step_000004-000005.parquet"]


def test_a_run_without_rollouts_has_nothing_to_cut(tmp_path: Path) -> None:
    cut_after(tmp_path / "rollouts", 3)
    assert names(tmp_path) == []


def test_a_cut_that_was_killed_halfway_shows_each_step_once_and_can_be_done_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shorter file is there, the longer one not yet gone."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", _fail_for_parquet)
        with raises(RunDirectoryError, "inaccessible_rollouts"):
            cut_after(directory, 5)
    assert [(file.first, file.last) for file in list_files(directory)] == [(1, 3), (4, 5), (4, 6), (7, 7)]
    assert [stored.step for stored in RolloutReader(directory).iterate()] == list(range(1, 8))
    cut_after(directory, 5)
    assert names(directory) == ["step_000001-000003.parquet", "step_000004-000005.parquet"]


def _fail_for_parquet(path: Path, missing_ok: bool = False) -> None:
    if path.suffix == ".parquet":
        raise OSError("killed here")
    os.unlink(path)


def test_a_damaged_file_that_spans_the_cut_is_named(directory: Path) -> None:
    (directory / "step_000004-000006.parquet").write_bytes(b"PAR1 nothing PAR1")
    with raises(RunDirectoryError, "inaccessible_rollouts"):
        cut_after(directory, 5)
    cut_after(directory, 3)  # as a whole it can go
    assert names(directory) == ["step_000001-000003.parquet"]
