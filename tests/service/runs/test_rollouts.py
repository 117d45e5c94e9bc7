import base64
import dataclasses
import json
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from agent_tunix.environments import StopReason
from agent_tunix.service.problems import Problem
from agent_tunix.service.runs import rollouts
from agent_tunix.service.runs.queries import Order, RolloutQuery
from agent_tunix.service.runs.queries import StopReason as StopReasonName
from agent_tunix.service.runs.rollouts import StoredRollouts
from agent_tunix.service.runs.selection import Reading
from tests.service.runs.support import write_many
from tests.tracking.report.support import G, write_run
from tests.tracking.rollouts.support import make_samples, make_step, write


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredRollouts:
    """A run of six steps of 16 completions, some of them without a reward."""
    run = write_run(tmp_path_factory.mktemp("runs") / "run", num_prompts=4, unscored_share=0.2)
    return StoredRollouts(run.root / "rollouts")


def _all(stored: StoredRollouts, query: RolloutQuery, limit: int = 7) -> list[dict[str, Any]]:
    rows, after = [], None
    while True:
        page = stored.page(query, limit, after)
        assert page.problems == []
        assert len(page.rows) <= limit
        rows += page.rows
        if page.next is None:
            return rows
        after = page.next


def test_all_are_there_once_in_their_order(stored: StoredRollouts) -> None:
    ids = [row["rollout_id"] for row in _all(stored, RolloutQuery())]
    assert ids == [f"{step}_{group}_{one}" for step in range(1, 7) for group in range(4) for one in range(G)]


@pytest.mark.parametrize("order", ["reward", "-reward", "length", "-length"])
@pytest.mark.parametrize("limit", [1, 3, 16])
def test_a_step_is_sorted_and_those_without_a_reward_come_last(stored: StoredRollouts, order: str, limit: int) -> None:
    name = {"reward": "total", "length": "num_tokens"}[order.lstrip("-")]
    rows = _all(stored, RolloutQuery(step=3, order=order), limit)
    assert len({row["rollout_id"] for row in rows}) == 16
    known = [row[name] for row in rows if row[name] is not None]
    assert known == sorted(known, reverse=order.startswith("-"))
    assert all(row[name] is None for row in rows[len(known) :])


def test_filters_keep_the_matching_rows(stored: StoredRollouts) -> None:
    everything = _all(stored, RolloutQuery())
    for query, wanted in (
        (RolloutQuery(outcome="timeout"), lambda row: row["outcome"] == "timeout"),
        (RolloutQuery(group=2), lambda row: row["group"] == 2),
        (RolloutQuery(least=0.5, most=0.9), lambda row: row["total"] is not None and 0.5 <= row["total"] <= 0.9),
        (RolloutQuery(text="<ANSWER>9<"), lambda row: "<answer>9<" in row["response"]),
        (RolloutQuery(text="3*1.="), lambda row: False),
    ):
        found = _all(stored, query)
        assert found == [row for row in everything if wanted(row)]


def test_episodes_are_found_by_their_end_and_their_tools(tmp_path: Path) -> None:
    tool = 'ä "quoted" tool'
    stored = StoredRollouts(write_run(tmp_path / "run", 2, episodes_of=tool).root / "rollouts")
    for query, steps in (
        (RolloutQuery(stop_reason="error"), {1}),
        (RolloutQuery(stop_reason="finished", tool=tool), {2}),
        (RolloutQuery(stop_reason="length"), set()),
        (RolloutQuery(tool="ä"), set()),
    ):
        assert {row["step"] for row in _all(stored, query)} == steps
    assert set(get_args(StopReasonName)) == {"stop", "length", *StopReason}


def test_a_run_from_before_there_were_episodes_is_shown_and_has_none(tmp_path: Path) -> None:
    write(tmp_path, make_step(1))
    (path,) = tmp_path.iterdir()
    pq.write_table(pq.read_table(path).drop_columns(["episode"]), path)
    stored = StoredRollouts(tmp_path)
    assert len(stored.page(RolloutQuery(), in_full=True).rows) == 4
    page = stored.page(RolloutQuery(tool="add"))
    assert (page.rows, page.problems) == ([], [])


def test_a_group_has_its_completions_with_advantages(stored: StoredRollouts) -> None:
    rows = stored.group(2, 1).rows
    assert [row["rollout_id"] for row in rows] == [f"2_1_{one}" for one in range(G)]
    assert any(row["advantage"] for row in rows)
    assert {one["name"] for one in rows[0]["components"]} == {"correct", "brevity"}


def test_two_steps_are_compared_by_their_prompts(stored: StoredRollouts) -> None:
    shared, problems = stored.shared_prompts(1, 5)
    assert problems == []
    assert [(one.group, one.other_group) for one in shared] == [(group, group) for group in range(4)]


def test_a_run_without_rollouts_has_none(tmp_path: Path) -> None:
    stored = StoredRollouts(tmp_path / "rollouts")
    assert (stored.span(), stored.page(RolloutQuery()).rows) == (None, [])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> StoredRollouts:
    """100 steps of 500 completions in five files."""
    directory = tmp_path_factory.mktemp("large") / "rollouts"
    assert write_many(directory, 100) == 500
    return StoredRollouts(directory)


def test_a_page_of_a_step_reads_one_row_group_of_one_file(large: StoredRollouts) -> None:
    reading = Reading()
    page = large.page(RolloutQuery(step=75, order="-reward"), 20, reading=reading)
    assert len(page.rows) == 20
    assert (reading.files, reading.row_groups) == (1, 2)  # what is ordered by, and what is shown


def test_a_page_far_inside_opens_one_file(large: StoredRollouts) -> None:
    after = large.page(RolloutQuery(step=None), 100).next
    for _ in range(8):
        reading = Reading()
        page = large.page(RolloutQuery(), 100, after, reading)
        assert (reading.files, reading.row_groups) == (1, 1)
        after = page.next


def test_shown_columns_are_not_read_where_no_row_matches(large: StoredRollouts) -> None:
    seldom, often = Reading(), Reading()
    assert large.page(RolloutQuery(step=7, text="no such text"), reading=seldom).rows == []
    large.page(RolloutQuery(step=7), reading=often)
    assert seldom.num_bytes < often.num_bytes / 3


def test_a_search_ends_at_its_budget_and_goes_on(large: StoredRollouts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "_BUDGET_STEPS", 30)
    seen, after, pages = 0, None, 0
    while True:
        reading = Reading()
        page = large.page(RolloutQuery(text="no such text"), 20, after, reading)
        assert reading.row_groups <= 30
        seen += reading.row_groups
        pages += 1
        if page.next is None:
            break
        after = page.next
    assert (seen, pages) == (100, 4)


@pytest.mark.parametrize("order", ["place", "-reward"])
def test_a_page_ends_before_it_is_too_large_and_the_next_goes_on(stored: StoredRollouts, order: Order) -> None:
    query, rows, pages, after = RolloutQuery(order=order), [], 0, None
    while not pages or after:
        reading = Reading()
        page = stored.page(query, 100, after, reading, most_bytes=3000)
        assert 0 < reading.num_bytes_shown <= 3000
        rows += page.rows
        pages, after = pages + 1, page.next
    assert rows == _all(stored, query)
    assert pages > 6


def test_a_completion_larger_than_a_page_is_left_out_and_reported(tmp_path: Path) -> None:
    samples = [*make_samples(1)]
    samples[1] = dataclasses.replace(samples[1], response="a" * 20_000)
    write(tmp_path, make_step(1, samples=samples, scores=make_step(1).scores))
    stored = StoredRollouts(tmp_path)
    first = stored.page(RolloutQuery(), 2, most_bytes=10_000)
    second = stored.page(RolloutQuery(), 2, first.next, most_bytes=10_000)
    names = [sample.rollout_id for sample in samples]
    assert [row["rollout_id"] for row in first.rows + second.rows] == [names[0], *names[2:]]
    assert [problem.split()[0] for problem in first.problems] == [names[1]]


def _damaged(directory: Path, kind: str) -> None:
    path = directory / "step_000002-000002.parquet"
    content = path.read_bytes()
    if kind == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "noise":
        path.write_bytes(content[:100] + bytes(byte ^ 0x5A for byte in content[100:2000]) + content[2000:])
    elif kind == "text":
        path.write_text("PAR1 no file of rollouts PAR1")
    elif kind == "other":
        import pyarrow as pa

        pq.write_table(pa.table({"step": ["a"]}), path)


@pytest.mark.parametrize("kind", ["cut", "empty", "noise", "text", "other"])
def test_a_damaged_file_is_left_out_and_reported(tmp_path: Path, kind: str) -> None:
    write(tmp_path, *map(make_step, (1, 2, 3)), flush_after=[1, 2, 3])
    _damaged(tmp_path, kind)
    page = StoredRollouts(tmp_path).page(RolloutQuery(text="answer"), 100)
    assert [row["step"] for row in page.rows] == [1] * 4 + [3] * 4
    assert ["step_000002-000002.parquet" in problem for problem in page.problems] == [True]


def test_a_file_in_progress_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, make_step(1))
    (tmp_path / ".step_000002.partial").write_bytes(b"PAR1")
    page = StoredRollouts(tmp_path).page(RolloutQuery())
    assert (len(page.rows), page.problems) == (4, [])


def test_a_step_that_two_files_have_is_shown_once(tmp_path: Path) -> None:
    write(tmp_path / "a", *map(make_step, (1, 2)))
    write(tmp_path / "b", make_step(1))
    (tmp_path / "b" / "step_000001-000001.parquet").rename(tmp_path / "a" / "step_000001-000001.parquet")
    assert [row["step"] for row in StoredRollouts(tmp_path / "a").page(RolloutQuery()).rows] == [1] * 4 + [2] * 4


def _forge(query: RolloutQuery, *rest: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps([query.digest(), *rest]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "?", "é", "bm90aGluZw", "A" * 9999),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        _forge(RolloutQuery()),
        _forge(RolloutQuery(), -1, 0.0, 0),
        _forge(RolloutQuery(), 2**40, 0.0, 0),
        _forge(RolloutQuery(), 1, "x", 0),
        _forge(RolloutQuery(), 1, 10**400, 0),
        _forge(RolloutQuery(), 1, 0.0, True),
        _forge(RolloutQuery(), 1, 0.0, -2),
        _forge(RolloutQuery(step=1), 1, 0.0, 0),
    ],
)
def test_a_forged_cursor_is_refused(stored: StoredRollouts, cursor: str) -> None:
    with pytest.raises(Problem) as caught:
        stored.page(RolloutQuery(), after=cursor)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_cursor", "after")
