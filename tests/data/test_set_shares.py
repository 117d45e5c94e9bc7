"""Shares of sets that follow their pass rates."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.checks import check
from agent_tunix.config.schema import Config, CurriculumConfig, DataConfig, EngineConfig, TrainingConfig
from agent_tunix.data.batches import Order
from agent_tunix.data.examples import Example
from agent_tunix.data.orders import make_order
from agent_tunix.data.pass_rates import PassRateOrder
from agent_tunix.data.set_shares import SetShareOrder
from agent_tunix.errors import ConfigError
from tests.raising import raises

ROWS, BATCH = 60, 8
NAMES = ("easy", "middle", "hard")
WEIGHTS = (1.0, 1.0, 2.0)
Rate = Callable[[int, int], float]


def settings(*, seed: int = 0, **data: Any) -> Config:
    mixture = {name: {"weight": weight} for name, weight in zip(NAMES, WEIGHTS, strict=True)}
    return Config(
        seed=seed,
        data=DataConfig(mixture=mixture, **{"set_shares": "pass_rate", **data}),
        training=TrainingConfig(batch_size=BATCH, num_batches=400),
    )


def order_of(**data: Any) -> Any:
    """Return the order of three sets of 60 rows each; the set of a row is its number divided by 60."""
    examples = [Example(f"{n}?", {"data_source": NAMES[n // ROWS]}, n) for n in range(len(NAMES) * ROWS)]
    return make_order(examples, settings(**data))


def draw(order: Any, first: int, last: int, rate: Rate) -> list[list[int]]:
    batches = []
    for step in range(first, last + 1):
        batches.append(order.batch_indices(step).tolist())
        order.observe(step, {row: rate(row // ROWS, step) for row in batches[-1]})
    return batches


def counts(batch: list[int]) -> list[int]:
    return [sum(row // ROWS == number for row in batch) for number in range(len(NAMES))]


def noisy(number: int, step: int) -> float:
    return (1.0, 0.5, 0.0)[number] if step % 3 else (0.75, 0.25, 0.125)[number]


def learning(number: int, step: int) -> float:
    """Return the pass rate of a policy that first learns the easy set, then the middle one, then the hard one."""
    return float(1 / (1 + np.exp(-(step - (20, 100, 180)[number]) / 8)))


def expected_counts(num_steps: int, rate: Rate) -> list[list[int]]:
    """Return the rows of each set in each batch: an oracle that follows the equations set by set."""
    seen, learnability, credit = np.zeros(3), np.zeros(3), np.zeros(3)
    batches = []
    for step in range(1, num_steps + 1):
        values = np.where(seen > 0, np.maximum(0.05, 4 * learnability), 1.0)
        credit = credit + BATCH * np.array(WEIGHTS) * values / (np.array(WEIGHTS) @ values)
        batch = np.zeros(3, int)
        while batch.sum() < BATCH:
            number = int(np.argmax(credit - batch))
            batch[number] += 1
        credit = credit - batch
        for number in range(3):
            p, k = rate(number, step), batch[number]
            n = min(seen[number], 16)
            if k:
                learnability[number] = (n * learnability[number] + k * p * (1 - p)) / (n + k)
            seen[number] += k
        batches.append(batch.tolist())
    return batches


@pytest.mark.parametrize("sampling", ["uniform", "pass_rate"])
@pytest.mark.parametrize("rate", [noisy, learning])
def test_each_batch_takes_the_rows_that_the_equations_give(rate: Rate, sampling: str) -> None:
    order = order_of(sampling=sampling)
    assert isinstance(order, PassRateOrder if sampling == "pass_rate" else SetShareOrder)
    assert [counts(batch) for batch in draw(order, 1, 60, rate)] == expected_counts(60, rate)


@pytest.mark.parametrize("seed", range(3))
def test_training_moves_from_the_easy_set_to_the_hard_one_and_every_set_returns(seed: int) -> None:
    batches = [counts(batch) for batch in draw(order_of(seed=seed), 1, 240, learning)]
    shares = [np.mean(batches[step - 10 : step + 10], axis=0) / BATCH for step in (20, 100, 180)]
    assert [int(share.argmax()) for share in shares] == [0, 1, 2]
    assert all(share.max() > 0.6 for share in shares)
    assert np.sum(batches[200:], axis=0).min() > 0


def test_rows_of_a_set_come_in_passes() -> None:
    batches = draw(order_of(), 1, 100, noisy)
    middle = [row for batch in batches for row in batch if row // ROWS == 1]
    assert sorted(middle[:ROWS]) == list(range(ROWS, 2 * ROWS))
    assert sorted(middle[ROWS : 2 * ROWS]) == list(range(ROWS, 2 * ROWS))


@pytest.mark.parametrize("sampling", ["uniform", "pass_rate"])
def test_a_resumed_order_is_that_of_an_unbroken_one(sampling: str) -> None:
    unbroken = draw(order_of(sampling=sampling), 1, 60, noisy)
    broken, resumed = order_of(sampling=sampling), order_of(sampling=sampling)
    draw(broken, 1, 25, noisy)
    resumed.load_state_dict(json.loads(json.dumps(broken.state_dict())), 25)
    assert draw(resumed, 26, 60, noisy) == unbroken[25:]
    assert draw(order_of(sampling=sampling, seed=1), 1, 60, noisy) != unbroken


@pytest.mark.parametrize("sampling", ["uniform", "pass_rate"])
def test_later_batches_hold_other_rows_and_do_not_count_as_drawn(sampling: str) -> None:
    order: Order = order_of(sampling=sampling)
    draw(order, 1, 5, noisy)
    rows = [row for step in (6, 7, 8) for row in order.batch_indices(step)]
    assert len(set(rows)) == 3 * BATCH
    assert order.batch_indices(6).tolist() == rows[:BATCH]


def test_metrics_of_a_set_without_a_rate_are_null() -> None:
    order = order_of()
    first, second, last = (number * ROWS for number in range(3))
    metrics = order.observe(1, {first: 0.5, first + 1: 1.0, second: float("nan"), last: 0.0})
    values = np.array([0.5, (0.5 + 0.05) / 2, 0.05]) * WEIGHTS
    shares = dict(zip(NAMES, values / values.sum(), strict=True))
    rates = {"easy": 0.75, "middle": None, "hard": 0.0}
    assert metrics == {f"sampling/sets/{name}/share": pytest.approx(shares[name]) for name in NAMES} | {
        f"sampling/sets/{name}/pass_rate": rates[name] for name in NAMES
    }


SETS: dict[str, Any] = {"a": {"path": "a.jsonl"}, "b": {"path": "b.jsonl"}}


@pytest.mark.parametrize(
    "config",
    [
        Config(data=DataConfig(set_shares="pass_rate")),
        Config(data=DataConfig(set_shares="pass_rate", mixture={"a": {"path": "a.jsonl"}})),
        Config(
            data=DataConfig(set_shares="pass_rate", mixture=SETS, streaming=True),
            training=TrainingConfig(num_batches=3),
        ),
        Config(data=DataConfig(set_shares="pass_rate", mixture=SETS, curriculum=CurriculumConfig(column="level"))),
        Config(data=DataConfig(set_shares="pass_rate", mixture=SETS | {"c": {"curriculum": {"column": "level"}}})),
        Config(data=DataConfig(mixture=SETS | {"c": {"set_shares": "pass_rate"}})),
        Config(data=DataConfig(set_shares="pass_rate", mixture=SETS), engine=EngineConfig(max_staleness=1)),
        Config(data=DataConfig(set_shares="sometimes", mixture=SETS)),
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: Config) -> None:
    with raises(ConfigError, "invalid_config") as caught:
        check(config)
    assert "set_shares" in str(caught.value) or "curriculum" in str(caught.value)


def test_a_run_may_change_from_rates_of_rows_to_those_of_sets_and_back() -> None:
    rows, sets = order_of(set_shares="fixed", sampling="pass_rate"), order_of()
    draw(rows, 1, 5, noisy)
    sets.load_state_dict(rows.state_dict(), 5)
    assert counts(sets.batch_indices(6).tolist()) == [2, 2, 4]
    draw(sets, 6, 8, noisy)
    rows.load_state_dict(sets.state_dict(), 8)
    assert counts(rows.batch_indices(9).tolist()) == [2, 2, 4]
