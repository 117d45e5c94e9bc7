import itertools

from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.data.draws import endless, shuffle_within

SHUFFLED = [1, 0, 2, 3, 5, 6, 8, 4, 7, 9]


@given(st.integers(0, 200), st.integers(1, 50), st.integers(0, 9))
def test_every_item_comes_once_and_at_most_a_buffer_early(count: int, size: int, seed: int) -> None:
    shuffled = list(shuffle_within(iter(range(count)), size, (seed,)))
    assert sorted(shuffled) == list(range(count))
    assert all(item - place < size for place, item in enumerate(shuffled))


def test_the_order_never_changes_between_releases() -> None:
    assert list(shuffle_within(iter(range(10)), 4, (7, 1, 0))) == SHUFFLED


def test_no_more_is_read_than_is_held() -> None:
    numbers = itertools.count()
    drawn = list(itertools.islice(shuffle_within(numbers, 8, (0,)), 5))
    assert len(drawn) == 5
    assert next(numbers) == 8 + 5


def test_passes_follow_one_another_and_know_their_number() -> None:
    items = endless(lambda number: iter([(number, "a"), (number, "b")]))
    assert list(itertools.islice(items, 5)) == [(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a")]
