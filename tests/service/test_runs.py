import json
import os
from pathlib import Path

import pytest

from agent_tunix.runs.directory import hold
from agent_tunix.service import runs
from agent_tunix.service.runs import RunIndex
from agent_tunix.web.problems import Problem
from tests.tracking.report.support import write_run


def _touch(root: Path, started: int) -> Path:
    os.utime(root / "config.yaml", (started, started))
    return root


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    for number, name in enumerate(("first", "day/second", "day/hour/third")):
        root = tmp_path / "runs" / name
        root.parent.mkdir(parents=True, exist_ok=True)
        write_run(root, num_steps=2)
        _touch(root, 1000 + number)
    return tmp_path / "runs"


def test_runs_are_listed_newest_first(roots: Path) -> None:
    page = RunIndex([roots]).list()
    assert [run.name for run in page.data] == ["day/hour/third", "day/second", "first"]
    assert not page.has_more


def test_pages_hold_every_run_once(roots: Path) -> None:
    index = RunIndex([roots, roots / "day"])
    seen, after = [], None
    while True:
        page = index.list(1, after)
        seen += [run.id for run in page.data]
        if not page.has_more:
            break
        after = page.data[-1].id
    assert len(seen) == len(set(seen)) == 3


def test_a_summary_has_the_last_step_the_reward_and_the_method(roots: Path) -> None:
    (run, *_) = RunIndex([roots]).list().data
    rows = [json.loads(line) for line in (roots / run.name / "metrics.jsonl").read_text().splitlines()]
    assert (run.step, run.reward, run.method) == (2, rows[-1]["rewards/total/mean"], "grpo")


def test_a_state_follows_the_status_file_and_the_lock(roots: Path) -> None:
    index = RunIndex([roots])
    status = {"overrides": [], "detail": "", "status": "running"}
    (roots / "first" / "status.json").write_text(json.dumps(status))
    with hold(roots / "first"):
        assert index.list().data[-1].state == "running"
    assert index.list().data[-1].state == "stopped"
    (roots / "first" / "status.json").write_text(json.dumps(status | {"status": "finished"}))
    assert index.list().data[-1].state == "finished"
    (roots / "first" / "status.json").write_text("{")
    assert index.list().data[-1].state == "unreadable"


def test_an_unchanged_run_is_not_read_again(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = RunIndex([roots])
    first = found.list()
    monkeypatch.setattr(runs, "summarise_run", None)
    assert found.list() == first


def test_ids_tell_nothing_and_stay(roots: Path) -> None:
    ids = {run.id for run in RunIndex([roots]).list().data}
    assert ids == {run.id for run in RunIndex([roots / "day", roots]).list().data}
    assert all(len(id) == 28 and id.startswith("run_") for id in ids)


def test_links_to_directories_are_not_followed(roots: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "elsewhere", num_steps=1)
    (roots / "link").symlink_to(tmp_path / "elsewhere")
    assert len(RunIndex([roots]).list().data) == 3


def test_a_run_that_was_removed_is_not_found(roots: Path, tmp_path: Path) -> None:
    index = RunIndex([roots])
    run = next(run for run in index.list().data if run.name == "first")
    (roots / "first").rename(tmp_path / "elsewhere")
    with pytest.raises(Problem) as caught:
        index.get(run.id)
    assert caught.value.code == "run_not_found"


def test_a_missing_root_has_no_runs(tmp_path: Path) -> None:
    assert RunIndex([tmp_path / "nowhere"]).list().data == []


HOSTILE = [
    "",
    "..",
    "../../etc",
    "/etc/passwd",
    "run_",
    "run_" + "a" * 24,
    "first",
    "\0",
    "run_" + "é" * 24,
    "a" * 9999,
]


def test_an_unknown_id_or_cursor_is_refused(roots: Path) -> None:
    index = RunIndex([roots])
    for unknown in HOSTILE:
        with pytest.raises(Problem) as caught:
            index.get(unknown)
        assert (caught.value.status, caught.value.code) == (404, "run_not_found")
        with pytest.raises(Problem) as caught:
            index.list(after=unknown)
        assert (caught.value.status, caught.value.param) == (400, "after")


def test_a_summary_names_the_model(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", num_steps=1)
    for settings, model in (
        ("{path: null, model_size: tiny}", "tiny"),
        ("{path: hf://Qwen/Qwen3-0.6B, model_size: tiny}", "Qwen3-0.6B"),
        ("{path: /models/own/, model_size: tiny}", "own"),
        ("{path: [1], model_size: 3}", None),
        ("none", None),
    ):
        (tmp_path / "runs" / "one" / "config.yaml").write_text(f"model: {settings}\n")
        (run,) = RunIndex([tmp_path / "runs"]).list().data
        assert run.model == model


def test_a_damaged_status_spoils_only_its_run(roots: Path) -> None:
    index = RunIndex([roots])
    for content in (b"\xff", b"[]"):
        (roots / "first" / "status.json").write_bytes(content)
        found = {run.name: run for run in index.list().data}
        assert len(found) == 3
        assert found["first"].state == "unreadable"
        assert len(found["first"].detail) <= 500
