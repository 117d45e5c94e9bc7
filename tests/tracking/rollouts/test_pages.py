import base64
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from agent_tunix.environments import StopReason
from agent_tunix.tracking.rollouts import pages
from agent_tunix.tracking.rollouts.pages import Order, RolloutPages, RolloutQuery, RolloutQueryError
from agent_tunix.tracking.rollouts.pages import StopReason as StopReasonName
from agent_tunix.tracking.rollouts.reader import RolloutReader, StepPlace
from tests.raising import raises
from tests.tracking.report.support import G, write_run
from tests.tracking.rollouts.many import write_many
from tests.tracking.rollouts.support import make_samples, make_step, write


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> RolloutPages:
    """A run of six steps of 16 completions, some of them without a reward."""
    run = write_run(tmp_path_factory.mktemp("runs") / "run", num_prompts=4, unscored_share=0.2)
    return RolloutPages(run.root / "rollouts")


def _all(stored: RolloutPages, query: RolloutQuery, limit: int = 7) -> list[dict[str, Any]]:
    rows, after = [], None
    while True:
        page = stored.page(query, limit, after)
        assert page.problems == []
        assert len(page.rows) <= limit
        rows += page.rows
        if page.next is None:
            return rows
        after = page.next


def test_all_are_there_once_in_their_order(stored: RolloutPages) -> None:
    ids = [row["rollout_id"] for row in _all(stored, RolloutQuery())]
    assert ids == [f"{step}_{group}_{one}" for step in range(1, 7) for group in range(4) for one in range(G)]


@pytest.mark.parametrize("order", ["reward", "-reward", "length", "-length"])
@pytest.mark.parametrize("limit", [1, 3, 16])
def test_a_step_is_sorted_and_those_without_a_reward_come_last(stored: RolloutPages, order: str, limit: int) -> None:
    name = {"reward": "total", "length": "num_tokens"}[order.lstrip("-")]
    rows = _all(stored, RolloutQuery(step=3, order=order), limit)
    assert len({row["rollout_id"] for row in rows}) == 16
    known = [row[name] for row in rows if row[name] is not None]
    assert known == sorted(known, reverse=order.startswith("-"))
    assert all(row[name] is None for row in rows[len(known) :])


def test_filters_keep_the_matching_rows(stored: RolloutPages) -> None:
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
    stored = RolloutPages(write_run(tmp_path / "run", 2, episodes_of=tool).root / "rollouts")
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
    stored = RolloutPages(tmp_path)
    assert len(stored.page(RolloutQuery(), in_full=True).rows) == 4
    page = stored.page(RolloutQuery(tool="add"))
    assert (page.rows, page.problems) == ([], [])


def test_episodes_from_before_turns_had_advantages_are_shown_and_read(tmp_path: Path) -> None:
    root = write_run(tmp_path / "run", 1, episodes_of="add").root / "rollouts"
    (path,) = root.iterdir()
    before = RolloutReader(root).read_step(1)
    pq.write_table(pq.read_table(path).drop_columns(["turn_advantages"]), path)
    page = RolloutPages(root).page(RolloutQuery(), in_full=True)
    assert page.problems == []
    assert any(row["episode"] for row in page.rows)
    stored = RolloutReader(root).read_step(1)
    assert stored.turn_advantages is None
    assert (stored.samples, stored.scores) == (before.samples, before.scores)


def test_a_group_has_its_completions_with_advantages(stored: RolloutPages) -> None:
    rows = stored.group(2, 1).rows
    assert [row["rollout_id"] for row in rows] == [f"2_1_{one}" for one in range(G)]
    assert any(row["advantage"] for row in rows)
    assert {one["name"] for one in rows[0]["components"]} == {"correct", "brevity"}


def test_two_steps_are_compared_by_their_prompts(stored: RolloutPages) -> None:
    shared, problems = stored.shared_prompts(1, 5)
    assert problems == []
    assert [(one.group, one.other_group) for one in shared] == [(group, group) for group in range(4)]


def test_a_run_without_rollouts_has_none(tmp_path: Path) -> None:
    stored = RolloutPages(tmp_path / "rollouts")
    assert (stored.span(), stored.page(RolloutQuery()).rows) == (None, [])


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> RolloutPages:
    """100 steps of 500 completions in five files."""
    directory = tmp_path_factory.mktemp("large") / "rollouts"
    assert write_many(directory, 100) == 500
    return RolloutPages(directory)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Sequence[str]]]:
    """The step and the columns of every reading of rows."""
    reads = []
    read = StepPlace.read

    def counted(place: StepPlace, columns: Sequence[str]) -> Any:
        reads.append((place.step, columns))
        return read(place, columns)

    monkeypatch.setattr(StepPlace, "read", counted)
    return reads


def test_a_page_reads_what_is_ordered_by_and_what_is_shown(large: RolloutPages, reads: list[Any]) -> None:
    assert len(large.page(RolloutQuery(step=75, order="-reward"), 20).rows) == 20
    assert reads == [(75, ("total",)), (75, pages.SHOWN)]


def test_shown_columns_are_not_read_where_no_row_matches(large: RolloutPages, reads: list[Any]) -> None:
    assert large.page(RolloutQuery(step=7, text="no such text")).rows == []
    assert reads == [(7, ("response",))]


def test_a_search_ends_at_its_budget_and_goes_on(
    large: RolloutPages, reads: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_BUDGET_STEPS", 30)
    after = large.page(RolloutQuery(text="no such text"), 20).next
    assert [step for step, _ in reads] == [*range(1, 31)]
    while after is not None:
        after = large.page(RolloutQuery(text="no such text"), 20, after).next
    assert [step for step, _ in reads] == [*range(1, 101)]


@pytest.mark.parametrize("order", ["place", "-reward"])
def test_a_page_ends_before_it_is_too_large_and_the_next_goes_on(stored: RolloutPages, order: Order) -> None:
    query, rows, num_pages, after = RolloutQuery(order=order), [], 0, None
    while not num_pages or after:
        page = stored.page(query, 100, after, most_bytes=3000)
        assert 0 < len(page.rows) < 16
        rows += page.rows
        num_pages, after = num_pages + 1, page.next
    assert rows == _all(stored, query)


def test_a_completion_larger_than_a_page_has_one_of_its_own(tmp_path: Path) -> None:
    samples = [*make_samples(1)]
    samples[1] = dataclasses.replace(samples[1], response="a" * 20_000)
    write(tmp_path, make_step(1, samples=samples, scores=make_step(1).scores))
    stored, after = RolloutPages(tmp_path), None
    sizes: list[int] = []
    while not sizes or after:
        page = stored.page(RolloutQuery(), 4, after, most_bytes=10_000)
        sizes, after = [*sizes, len(page.rows)], page.next
    assert sizes == [1, 1, 2]


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
    page = RolloutPages(tmp_path).page(RolloutQuery(text="answer"), 100)
    assert [row["step"] for row in page.rows] == [1] * 4 + [3] * 4
    assert ["step_000002-000002.parquet" in problem for problem in page.problems] == [True]


def test_a_file_in_progress_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, make_step(1))
    (tmp_path / ".step_000002.partial").write_bytes(b"PAR1")
    page = RolloutPages(tmp_path).page(RolloutQuery())
    assert (len(page.rows), page.problems) == (4, [])


def test_a_step_that_two_files_have_is_shown_once(tmp_path: Path) -> None:
    write(tmp_path / "a", *map(make_step, (1, 2)))
    write(tmp_path / "b", make_step(1))
    (tmp_path / "b" / "step_000001-000001.parquet").rename(tmp_path / "a" / "step_000001-000001.parquet")
    assert [row["step"] for row in RolloutPages(tmp_path / "a").page(RolloutQuery()).rows] == [1] * 4 + [2] * 4


def _forge(query: RolloutQuery, *position: Any) -> str:
    digest, *_ = json.loads(base64.urlsafe_b64decode(f"{query.write_cursor(1, 0)}=="))
    return base64.urlsafe_b64encode(json.dumps([digest, *position]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "?", "é", "bm90aGluZw", "A" * 9999),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        _forge(RolloutQuery()),
        _forge(RolloutQuery(), -1, 0),
        _forge(RolloutQuery(), 2**40, 0),
        _forge(RolloutQuery(), 1, "x"),
        _forge(RolloutQuery(), 1, True),
        _forge(RolloutQuery(), 1, -1),
        _forge(RolloutQuery(step=1), 1, 0),
    ],
)
def test_a_forged_cursor_is_refused(stored: RolloutPages, cursor: str) -> None:
    with raises(RolloutQueryError, "invalid_cursor") as caught:
        stored.page(RolloutQuery(), after=cursor)
    assert caught.value.param == "after"
