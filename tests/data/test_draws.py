import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.config.schema import CurriculumConfig
from agent_tunix.data.draws import CurriculumDraws, Draws, PassDraws, read_difficulty
from agent_tunix.data.dropped import RowError
from agent_tunix.errors import DataError
from tests.raising import raises

PASSES = [1, 3, 2, 4, 5, 0, 2, 4, 1, 5, 0, 3]
CURRICULA = {
    "baby_steps": [3, 1, 3, 1, 2, 5, 3, 1, 2, 3, 5, 1, 5, 0, 2, 4],
    "one_pass": [3, 1, 3, 1, 5, 2, 2, 5, 0, 4, 0, 4, 5, 0, 2, 4],
}


@st.composite
def curricula(draw: st.DrawFn) -> CurriculumDraws:
    difficulties = draw(st.lists(st.integers(0, 5).map(float), min_size=1, max_size=40))
    curriculum = CurriculumConfig(
        column="level",
        kind=draw(st.sampled_from(["baby_steps", "one_pass"])),
        stages=draw(st.integers(1, len(difficulties))),
        until=draw(st.floats(0.01, 1.0)),
    )
    return CurriculumDraws(difficulties, draw(st.integers(1, 200)), curriculum, (3, 1), draw(st.booleans()))


passes = st.builds(PassDraws, st.integers(1, 30), st.tuples(st.integers(0, 9)), st.booleans())


@given(passes | curricula(), st.lists(st.integers(0, 60), min_size=3, max_size=3).map(sorted))
def test_a_draw_does_not_depend_on_how_draws_are_asked_for(draws: Draws, cuts: list[int]) -> None:
    low, middle, high = cuts
    whole = draws.rows(low, high).tolist()
    assert draws.rows(low, middle).tolist() + draws.rows(middle, high).tolist() == whole
    assert [int(draws.rows(draw, draw + 1)[0]) for draw in range(low, high)] == whole


@given(passes)
def test_every_pass_has_each_row_once(draws: PassDraws) -> None:
    for number in range(3):
        rows = draws.rows(number * draws.num_rows, (number + 1) * draws.num_rows)
        assert sorted(rows.tolist()) == list(range(draws.num_rows))


def test_draws_never_change_between_releases() -> None:
    assert PassDraws(6, (7, 1)).rows(0, 12).tolist() == PASSES
    levels = [2.0, 0.0, 1.0, 0.0, 2.0, 1.0]
    for kind, rows in CURRICULA.items():
        curriculum = CurriculumConfig(column="level", kind=kind, stages=3, until=0.75)
        assert CurriculumDraws(levels, 16, curriculum, (7, 1)).rows(0, 16).tolist() == rows


def test_without_shuffling_one_stage_is_the_rows_sorted() -> None:
    curriculum = CurriculumConfig(column="level", kind="one_pass", stages=1)
    draws = CurriculumDraws([3.0, 1.0, 2.0, 1.0], 4, curriculum, (0, 1), shuffle=False)
    assert draws.rows(0, 4).tolist() == [1, 3, 2, 0]


@given(curricula())
def test_the_pool_of_a_draw_is_what_the_formula_says(draws: CurriculumDraws) -> None:
    n, big_d, curriculum = len(draws.difficulties), draws.num_draws, draws.curriculum
    ranked = sorted(draws.difficulties)
    for d in range(big_d):
        k = math.floor(round(d * curriculum.stages / (curriculum.until * big_d), 9))
        low = math.ceil(n * k / curriculum.stages) if curriculum.kind == "one_pass" else 0
        pool = ranked[low : math.ceil(n * (k + 1) / curriculum.stages)] if k < curriculum.stages else ranked
        assert draws.difficulties[int(draws.rows(d, d + 1)[0])] in pool


def test_rows_of_equal_difficulty_do_not_keep_their_order() -> None:
    curriculum = CurriculumConfig(column="level", kind="baby_steps", stages=2)
    draws = CurriculumDraws([1.0] * 100, 1000, curriculum, (0, 1))
    assert set(draws.rows(0, 500).tolist()) != set(range(50))


def test_more_stages_than_rows_are_refused() -> None:
    with raises(DataError, "invalid_config", "set data.curriculum.stages=3"):
        CurriculumDraws([1.0] * 3, 10, CurriculumConfig(column="level"), (0, 1))


@pytest.mark.parametrize(
    ("value", "order", "difficulty"),
    [
        (3, [], 3.0),
        (-0.5, [], -0.5),
        ("3", [], 3.0),
        (" 1e2 ", [], 100.0),
        (math.inf, [], math.inf),
        (np.int64(2), [], 2.0),
        ("easy", ["easy", "hard"], 0.0),
        ("hard", ["easy", "hard"], 1.0),
        (5, [9, 5], 1.0),
        ("5", [9, 5], 1.0),
        (None, [None, "hard"], 0.0),
    ],
)
def test_difficulty_is_a_number_or_a_place_in_the_order(value: Any, order: list[Any], difficulty: float) -> None:
    assert read_difficulty({"level": value}, CurriculumConfig(column="level", order=order)) == difficulty


UNREAD = "column 'level' is not a number, and data.curriculum.order is empty"
UNLISTED = "column 'level' is not in data.curriculum.order"


@pytest.mark.parametrize(
    ("columns", "order", "reason"),
    [
        ({"other": 1}, [], "no column 'level'"),
        *(({"level": value}, [], UNREAD) for value in (None, True, math.nan, "nan", "hard", [1], 10**400)),
        *(({"level": value}, ["easy", "hard"], UNLISTED) for value in ("medium", "Easy")),
    ],
)
def test_a_row_without_a_difficulty_is_told(columns: dict[str, Any], order: list[Any], reason: str) -> None:
    with pytest.raises(RowError) as caught:
        read_difficulty(columns, CurriculumConfig(column="level", order=order))
    assert caught.value.reason == reason
