"""The limit on the work of a comparison, which counts the same whatever was compared before."""

import sys

import pytest

from agent_tunix.rewards.answers import work
from agent_tunix.rewards.answers.tree import constant
from agent_tunix.rewards.answers.work import MOST_UNITS, TooMuchWorkError, charge, limited, remembered


@remembered(8)
def square(number: int) -> int:
    charge(number)
    return number * number


def twice(number: int) -> int:
    return square(number) + square(number)


@pytest.mark.parametrize("number", [MOST_UNITS // 2, MOST_UNITS // 2 + 1])
def test_what_is_remembered_counts_again(number: int) -> None:
    within = 2 * number <= MOST_UNITS
    for _ in range(3):
        assert limited(twice, number) == (2 * number * number if within else None)


def test_only_the_outermost_caller_hears_of_it_and_the_next_has_all_units_again() -> None:
    def fail() -> None:
        with pytest.raises(TooMuchWorkError):
            charge(MOST_UNITS + 1)
        charge(0)

    assert limited(fail) is None
    assert limited(square, MOST_UNITS) == MOST_UNITS**2
    charge(MOST_UNITS + 1)  # without a limit


def test_numbers_whose_hashes_are_equal_have_nodes_whose_hashes_differ() -> None:
    numbers = [7 + k * sys.hash_info.modulus for k in range(100)]
    assert len(set(map(hash, numbers))) == 1
    assert len({hash(constant(number)) for number in numbers}) == 100


def test_caches_are_emptied_before_they_hold_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_MOST_REMEMBERED_UNITS", 100)
    calls = []

    @remembered(1000)
    def costly(number: int) -> int:
        calls.append(number)
        charge(30)
        return number

    for _ in range(2):
        for number in range(3):
            costly(number)
    assert calls == [0, 1, 2]
    for number in (3, 4, 0):
        costly(number)
    assert calls == [0, 1, 2, 3, 4, 0]
