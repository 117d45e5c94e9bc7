"""The order of rows by pass rate."""

import json

import numpy as np
import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, CurriculumConfig, DataConfig, GrpoConfig
from agent_tunix.data.mixing import Interleaving
from agent_tunix.data.pass_rates import PassRateOrder
from agent_tunix.errors import ConfigError
from tests.raising import raises

NUM_ROWS, BATCH = 90, 8
# A third of the rows is useful; the others are easy or hopeless.
RATES = {row: (0.5, 1.0, 0.0)[row % 3] for row in range(NUM_ROWS)}


def make_order(seed: int = 0, num_steps: int = 400, **sets: float) -> PassRateOrder:
    parts = np.array_split(np.arange(NUM_ROWS), len(sets) or 1)
    return PassRateOrder(parts, Interleaving(tuple(sets.values()) or (1.0,)), BATCH, num_steps, seed)


def draw(order: PassRateOrder, first: int, last: int) -> list[list[int]]:
    """Return the batches of some steps, of which each is observed."""
    batches = []
    for step in range(first, last + 1):
        batches.append(order.batch_indices(step).tolist())
        order.observe(step, {row: RATES[row] for row in batches[-1]})
    return batches


@pytest.mark.parametrize("seed", range(3))
def test_useful_rows_come_more_often_and_every_row_returns(seed: int) -> None:
    batches = draw(make_order(seed), 1, 400)
    late = [row for batch in batches[100:] for row in batch]
    counts = np.bincount(late, minlength=NUM_ROWS)
    assert sum(counts[0::3]) > 0.85 * len(late)
    assert counts.min() >= 1
    assert max(counts[0::3]) < 2 * min(counts[0::3])
    assert all(len(set(batch)) == BATCH for batch in batches)


def test_new_rows_come_until_all_were_drawn() -> None:
    batches = draw(make_order(), 1, NUM_ROWS)
    assert {row for batch in batches for row in batch} == set(range(NUM_ROWS))


def test_a_resumed_order_is_that_of_an_unbroken_one() -> None:
    unbroken = draw(make_order(), 1, 60)
    broken = make_order()
    draw(broken, 1, 30)
    resumed = make_order()
    resumed.load_state_dict(json.loads(json.dumps(broken.state_dict())), 30)
    assert draw(resumed, 31, 60) == unbroken[30:]
    assert draw(make_order(seed=1), 1, 60) != unbroken


def test_later_batches_hold_other_rows() -> None:
    order = make_order()
    draw(order, 1, 5)
    rows = [row for step in (6, 7, 8) for row in order.batch_indices(step)]
    assert len(set(rows)) == 3 * BATCH


def test_each_set_keeps_its_share() -> None:
    batches = draw(make_order(large=3.0, small=1.0), 1, 40)
    assert {sum(row >= NUM_ROWS // 2 for row in batch) for batch in batches} == {BATCH // 4}


def test_an_unscored_row_keeps_its_rate() -> None:
    order = make_order()
    order.observe(1, {0: 0.25, 1: float("nan")})
    metrics = order.observe(2, {0: float("nan")})
    assert metrics["sampling/rows/useful"] == 1 / NUM_ROWS
    assert metrics["sampling/rows/unseen"] == 1 - 2 / NUM_ROWS
    assert order.state_dict()["rates"] == [0.25, None]


@pytest.mark.parametrize(
    "config",
    [
        Config(data=DataConfig(sampling="pass_rate", streaming=True)),
        Config(data=DataConfig(sampling="pass_rate", curriculum=CurriculumConfig(column="level"))),
        Config(data=DataConfig(sampling="sometimes")),
        Config(grpo=GrpoConfig(filter_by="math")),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: Config) -> None:
    with raises(ConfigError, "invalid_config"):
        check(config)
