"""Rollouts that are shown of a long run, curves of bounded length, and histograms on common bins."""

import json
import string
from collections.abc import Mapping

import numpy as np
import pytest

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.sample import Term
from agent_tunix.tracking.report import sampling
from agent_tunix.tracking.report.curves import Curves
from agent_tunix.tracking.report.cutting import cut, to_inert_json
from agent_tunix.tracking.report.heat import rebin
from agent_tunix.tracking.report.sampling import Chooser

SPANS = {"a": (0.0, 1.0), "b": (0.0, 10.0), "constant": (2.0, 2.0)}


def make(
    step: int,
    generation: int = 0,
    group: int = 0,
    total: float | None = 0.5,
    values: Mapping[str, float | None] | None = None,
) -> tuple[Sample, Score]:
    sample = Sample(
        f"response {step}", prompt="p", step=step, group_id=group, rollout_id=f"{step}_{group}_{generation}"
    )
    if total is None:
        return sample, Score.failed(Outcome.ERROR, "broke")
    values = values or {}
    terms = {name: Term(-1.0 if name == "b" else 1.0, value) for name, value in values.items()}
    return sample, Score(total, components=values, terms=terms)


def choose(*rollouts: tuple[Sample, Score], wanted: tuple[str, ...] = (), limit: int = 10**6) -> sampling.Chosen:
    chooser = Chooser(list(SPANS), SPANS, wanted)
    for sample, score in rollouts:
        chooser.add([sample], [score], [0.0])
    return chooser.choose(limit)


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "NUM_OF_EACH", 2)
    monkeypatch.setattr(sampling, "NUM_UNIFORM", 3)


def test_a_short_run_is_shown_whole_and_in_order() -> None:
    chosen = choose(*(make(step) for step in range(1, 40)))
    assert [record["step"] for record in chosen.records] == list(range(1, 40))
    assert len(chosen.prompts) == 1


@pytest.mark.usefixtures("_few")
def test_the_ends_the_failures_and_the_newest_of_a_long_run_are_kept() -> None:
    totals = np.random.default_rng(0).permutation(500) / 500
    rollouts = [make(step, total=None if step in (7, 8, 9) else float(totals[step])) for step in range(500)]
    chosen = choose(*rollouts, wanted=("250_0_0",))
    steps = {record["step"] for record in chosen.records}
    kept = {float(record["total"]) for record in chosen.records if record["total"] is not None}
    scored = sorted(float(total) for step, total in enumerate(totals) if step not in (7, 8, 9))
    assert {8, 9, 498, 499, 250} <= steps
    assert {*scored[:2], *scored[-2:]} <= kept
    assert len(chosen.records) <= 2 * 5 + 1 + 3
    assert (chosen.num_seen, chosen.num_failed) == (500, 3)


@pytest.mark.usefixtures("_few")
def test_the_uniform_sample_is_of_whole_groups_and_always_the_same() -> None:
    rollouts = [make(1, generation, group) for group in range(50) for generation in range(3)]
    first, again = choose(*rollouts), choose(*rollouts)
    assert first == again
    groups = [record["group"] for record in first.records if record["group"] < 48]
    assert max(groups.count(group) for group in groups) == 3


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"a": 1.0, "b": 10.0}, 1.0),  # b has a negative weight: its best pulls down
        ({"a": 1.0, "b": 0.0}, 0.0),
        ({"a": 0.5, "b": 10.0}, 0.5),
        ({"a": 1.0, "constant": 2.0}, None),  # what never varies cannot disagree
        ({"a": 1.0, "b": None}, None),
        ({"a": 1.0}, None),
    ],
)
def test_disagreement(values: dict[str, float | None], expected: float | None) -> None:
    assert choose(make(1, values=values)).records[0]["disagreement"] == expected


def test_the_bytes_hold_whatever_the_text_is() -> None:
    texts = [string.printable * 50, "<" * 5000, "漢字" * 3000, "😀\ud800" * 2000, "\u2028\x00\x1b" * 2000]
    rollouts = [
        (Sample(text, prompt=text, step=step, rollout_id=f"{step}_0_0"), Score(0.1 * step))
        for step, text in enumerate(texts * 4)
    ]
    chosen = choose(*rollouts, limit=60_000)
    assert 0 < len(chosen.records) < len(rollouts)
    assert len(to_inert_json([chosen.records, chosen.prompts]).encode()) < 61_000


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = cut("a" * 5000 + "THE END", 900)
    assert text.startswith("aaa")
    assert text.endswith("THE END")
    assert "4,107 characters omitted" in text
    assert cut("short", 900) == "short"


def test_inert_json_reads_back_and_holds_no_markup() -> None:
    value = {"</script><!--": ["<script>", "\u2028", 1.5, None]}
    text = to_inert_json(value)
    assert "<" not in text
    assert json.loads(text) == value


def test_few_rows_are_points_as_they_are() -> None:
    curves = Curves(num_points=4)
    for step in range(5):
        curves.add({"step": step, "a": step * 2.0})
    assert curves.steps == [0, 1, 2, 3, 4]
    assert curves.get("a") is not None
    assert curves.get("a").y == [0, 2, 4, 6, 8]  # type: ignore[union-attr]


@pytest.mark.parametrize("num_rows", [8, 9, 16, 17, 100, 5000])
def test_many_rows_are_merged_and_none_is_lost(num_rows: int) -> None:
    curves = Curves(num_points=4)
    for step in range(1, num_rows + 1):
        curves.add({"step": step, "a": float(step)})
    curve = curves.get("a")
    assert curve is not None
    assert 4 <= len(curve.y) <= 8
    assert curves.steps[-1] == num_rows
    assert (curve.low[0], curve.high[-1]) == (1, num_rows)
    # The last stretch may be shorter than the others.
    counts = np.diff([0, *curves.steps])
    assert np.average(np.array(curve.y, float), weights=counts) == pytest.approx((num_rows + 1) / 2)
    assert all(low <= y <= high for low, y, high in zip(curve.low, curve.y, curve.high, strict=True))  # type: ignore[operator]


def test_null_is_no_value_and_never_a_zero() -> None:
    curves = Curves(num_points=2)
    for step, value in enumerate([None, 3.0, None, 5.0, None]):
        curves.add({"step": step, "a": value, "b": None})
    assert curves.get("a").y == [3.0, 5.0, None]  # type: ignore[union-attr]
    assert curves.get("b") is None


def test_what_is_no_number_is_passed_over() -> None:
    curves = Curves()
    curves.add({"step": 1, "text": "x", "flag": True, "histogram": {"counts": [1], "edges": [0, 1]}})
    assert curves.names() == ["step"]


COMMON = np.array([0.0, 1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("counts", "edges", "shares"),
    [
        ([4], [0, 4], [0.25, 0.25, 0.25, 0.25]),
        ([1, 3], [0, 1, 2], [0.25, 0.75, 0, 0]),
        ([2], [1.5, 2.5], [0, 0.5, 0.5, 0]),
        ([5], [2, 2], [0, 0, 1, 0]),  # equal values
        ([5], [4, 4], [0, 0, 0, 1]),  # at the upper end
        ([1], [-9, 0.5], [1, 0, 0, 0]),  # beyond the range
    ],
)
def test_a_histogram_is_divided_by_overlap(counts: list[int], edges: list[float], shares: list[float]) -> None:
    assert rebin([{"counts": counts, "edges": edges}], COMMON)[0] == pytest.approx(shares)


def test_no_histogram_has_no_shares() -> None:
    assert rebin([None, {"counts": [0], "edges": [0, 1]}], COMMON) == [None, None]
