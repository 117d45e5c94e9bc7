"""A run's directory, read from outside."""

import json
from pathlib import Path

import pytest

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.tracking import StoredRun
from tests.raising import raises
from tests.tracking.rollouts.support import make_step, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What a run has left by its second checkpoint."""
    config = Config()
    config.seed = 7
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    (tmp_path / "environment.json").write_text(json.dumps({"python": "3.11", "reward_fingerprint": {"hash": "ab"}}))
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n{"step": 1, "rewards/total/mean": 0.5}\n{"step": 2, "rew')
    (tmp_path / "findings.jsonl").write_text('{"step": 1, "name": "constant_reward"}\n')
    write(tmp_path / "rollouts", make_step(1))
    return tmp_path


def test_a_run_is_read_in_its_parts(root: Path) -> None:
    run = StoredRun(root)
    assert run.config.seed == 7
    assert [row["step"] for row in run.rows] == [0, 1]  # the last line is being written
    assert run.findings == [{"step": 1, "name": "constant_reward"}]
    assert run.rollouts.steps() == [1]
    assert run.environment["python"] == "3.11"
    assert run.fingerprint == {"hash": "ab"}


def test_a_run_that_goes_on_is_seen_to(root: Path) -> None:
    run = StoredRun(root)
    assert run.rollouts.steps() == [1]
    write(root / "rollouts", make_step(2))
    with (root / "metrics.jsonl").open("a") as file:
        file.write('ards/total/mean": 0.5}\n{"step": 3}\n')
    assert run.rollouts.steps() == [1, 2]
    assert [row["step"] for row in run.rows] == [0, 1, 2, 3]


def test_a_run_that_has_just_begun_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml(Config()))
    run = StoredRun(tmp_path)
    assert (run.rows, run.findings, run.rollouts.steps()) == ([], [], [])


def test_a_path_that_is_no_run_is_refused(root: Path, tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "missing", "does not exist"),
        (root / "config.yaml", "is a file"),
        (root / "rollouts", "it holds step_000001-000001.parquet"),
    ):
        with raises(RunDirectoryError, "missing_run") as caught:
            StoredRun(path)
        assert said in str(caught.value)


def test_a_damaged_part_is_named_and_leaves_the_others_readable(root: Path) -> None:
    (root / "environment.json").write_text("[")
    (root / "config.yaml").write_text("a: [")
    (root / "metrics.jsonl").write_text("{\n{}\n")
    run = StoredRun(root)
    with raises(RunDirectoryError, "unreadable_environment"):
        _ = run.fingerprint
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        _ = run.config
    with raises(RunDirectoryError, "damaged_metrics"):
        _ = run.rows
    assert run.rollouts.steps() == [1]


def test_an_environment_without_a_fingerprint_is_told(root: Path) -> None:
    (root / "environment.json").write_text("{}")
    with raises(RunDirectoryError, "missing_fingerprint"):
        _ = StoredRun(root).fingerprint
    (root / "environment.json").unlink()
    with raises(RunDirectoryError, "unreadable_environment"):
        _ = StoredRun(root).environment
