from typing import Any

from agent_tunix.config.schema import Config, CurriculumConfig, DataConfig, TrainingConfig
from agent_tunix.data.batches import BatchOrder, Order
from agent_tunix.data.examples import Example
from agent_tunix.data.orders import make_order
from agent_tunix.errors import DataError
from tests.raising import raises


def examples(count: int, name: str | None = None) -> list[Example]:
    column = {} if name is None else {"data_source": name}
    return [Example(f"{name} {n}", {"level": n % 4, **column}, n + 1) for n in range(count)]


def config_for(num_batches: int | None = 20, **data: Any) -> Config:
    return Config(seed=7, data=DataConfig(**data), training=TrainingConfig(batch_size=4, num_batches=num_batches))


def batches(order: Order) -> list[list[int]]:
    return [order.batch_indices(step).tolist() for step in range(1, order.num_steps + 1)]


def test_a_single_set_is_drawn_as_it_ever_was() -> None:
    order = make_order(examples(10), config_for(num_batches=None))
    assert order == BatchOrder(num_rows=10, batch_size=4, seed=7)
    assert batches(order) == [[6, 3, 4, 9], [0, 2, 8, 7]]


MIXTURE = {"large": {"weight": 3.0}, "small": {"weight": 1.0}}


def drawn(order: Order, low: int, high: int) -> list[int]:
    return [row for batch in batches(order) for row in batch if low <= row < high]


def test_a_mixture_draws_by_weight_from_rows_wherever_they_stand() -> None:
    order = make_order([*examples(5, "small"), *examples(40, "large")], config_for(mixture=MIXTURE))
    assert [sum(row < 5 for row in batch) for batch in batches(order)] == [1] * 20
    passes = [drawn(order, 0, 5)[start : start + 5] for start in range(0, 20, 5)]
    assert all(sorted(rows) == list(range(5)) for rows in passes)  # A small set is repeated, and shuffled anew.
    assert len(set(map(tuple, passes))) > 1
    large = drawn(order, 5, 45)[:40]
    assert len(large) == len(set(large))


def test_a_longer_run_of_a_mixture_begins_as_a_shorter_one() -> None:
    rows = [*examples(5, "small"), *examples(40, "large")]
    short, long = (make_order(rows, config_for(count, mixture=MIXTURE)) for count in (10, 30))
    assert batches(long)[:10] == batches(short)
    assert [long.batch_indices(step).tolist() for step in (9, 2)] == [batches(long)[8], batches(long)[1]]
    assert make_order(rows, config_for(None, mixture=MIXTURE)).num_steps == 45 // 4


def test_sets_of_equal_size_are_not_shuffled_alike() -> None:
    rows = [*examples(20, "a"), *examples(20, "b")]
    order = make_order(rows, config_for(10, mixture={"a": {}, "b": {}}))
    assert drawn(order, 0, 20) != [row - 20 for row in drawn(order, 20, 40)]


def test_a_set_that_lost_all_its_rows_is_refused_with_its_name() -> None:
    with raises(DataError, "no_rows", "data.mixture.small"):
        make_order(examples(40, "large"), config_for(mixture=MIXTURE))


def level_of(example: Example) -> Any:
    return example.columns["level"]


def test_a_curriculum_begins_with_the_easy_rows() -> None:
    rows = examples(40)
    order = make_order(rows, config_for(curriculum=CurriculumConfig(column="level", stages=4)))
    levels = [{level_of(rows[row]) for row in batch} for batch in batches(order)]
    assert set().union(*levels[:5]) == {0}
    assert set().union(*levels[5:10]) == {0, 1}
    assert set().union(*levels[15:]) == {0, 1, 2, 3}


def test_each_set_of_a_mixture_has_its_own_curriculum() -> None:
    sets = {"large": {"weight": 1.0, "curriculum": {"column": "level", "kind": "one_pass"}}, "small": {"weight": 1.0}}
    rows = [*examples(40, "large"), *examples(8, "small")]
    found = [[rows[row] for row in batch] for batch in batches(make_order(rows, config_for(mixture=sets)))]
    levels = [{level_of(example) for example in batch if "large" in example.prompt} for batch in found]
    assert levels == [{stage} for stage in range(4) for _ in range(5)]
    assert {level_of(example) for batch in found[:5] for example in batch if "small" in example.prompt} == {0, 1, 2, 3}


def test_fewer_rows_than_a_batch_are_refused() -> None:
    with raises(DataError, "no_rows"):
        make_order([*examples(2, "large"), *examples(1, "small")], config_for(mixture=MIXTURE))
