"""Agreement of processes over the real service, each process a thread."""

import pytest

from agent_tunix.distributed import Processes
from agent_tunix.errors import CheckpointError, LostProcessError, RewardError
from tests.distributed.conftest import Together

PLAIN = {"number": 0.1 + 0.2, "nothing": None, "text": "ä\n", "bytes": b"\0", "list": [1, (2.5, True)], "nan": 1e308}


def test_a_single_process_agrees_with_itself() -> None:
    alone = Processes()
    assert alone.gather(3) == [3]
    assert alone.from_first(lambda: "made") == "made"
    assert alone.each(lambda: 1) == [1]
    with pytest.raises(ZeroDivisionError):
        Processes().each(lambda: 1 // 0)


@pytest.mark.parametrize("count", [2, 4])
def test_all_have_the_values_of_all_in_their_order(together: Together, count: int) -> None:
    found = together(count, lambda processes: processes.gather((processes.index, PLAIN)))
    assert found == [[(index, PLAIN) for index in range(count)]] * count


def test_a_large_value_arrives_whole(together: Together) -> None:
    large = bytes(range(256)) * 40_000
    assert together(2, lambda processes: processes.gather(large if processes.index else b"")) == [[b"", large]] * 2


def test_what_the_first_makes_is_everyones_and_the_others_make_nothing(together: Together) -> None:
    made = []

    def work(processes: Processes) -> object:
        return processes.from_first(lambda: made.append(processes.index) or len(made))  # type: ignore[func-returns-value]

    assert together(3, work) == [1, 1, 1]
    assert made == [0]


def test_many_rounds_leave_nothing_behind_but_the_last(together: Together) -> None:
    left: list[str] = []

    def work(processes: Processes) -> None:
        for number in range(50):
            assert processes.gather(number) == [number] * 2
        if processes.is_first:
            assert processes._store is not None
            left.extend(name for name, _ in processes._store._client.key_value_dir_get_bytes("agent_tunix/round"))

    assert together(2, work) == [None, None]
    assert {name.split("/")[2] for name in left} == {"50"}


@pytest.mark.parametrize("culprit", [0, 2])
def test_an_error_of_one_is_the_error_of_all(together: Together, culprit: int) -> None:
    def work(processes: Processes) -> object:
        def score() -> int:
            if processes.index == culprit:
                raise RewardError("the reward is broken")
            return 1

        return processes.each(score)

    found = together(3, work)
    assert [(type(error), str(error)) for error in found] == [(RewardError, "the reward is broken")] * 3


def test_of_several_errors_all_have_that_of_the_first_process(together: Together) -> None:
    def work(processes: Processes) -> object:
        def fail() -> None:
            raise CheckpointError(f"of process {processes.index}")

        return processes.each(fail)

    assert [str(error) for error in together(2, work)] == ["of process 0", "of process 0"]


def test_a_foreign_error_keeps_its_kind_where_it_arose_and_names_its_process_elsewhere(together: Together) -> None:
    def work(processes: Processes) -> object:
        return processes.each(lambda: 1 // processes.index)

    first, other = together(2, work)
    assert isinstance(first, ZeroDivisionError)
    assert isinstance(other, LostProcessError)
    assert "process 0 failed: ZeroDivisionError" in str(other)


def test_who_waits_for_one_that_has_failed_hears_why(together: Together) -> None:
    def work(processes: Processes) -> object:
        processes.remember("go on with: this")
        if processes.index == 1:
            assert processes._store is not None
            processes._store.put_failure(1, "RunDirectoryError: the disk is full")
            return None
        return processes.gather(None)

    found = together(2, work)[0]
    assert isinstance(found, LostProcessError)
    assert "process 1 failed: RunDirectoryError: the disk is full\ngo on with: this" in str(found)


class Foreign:
    """A type that is not plain data."""


def test_a_value_that_others_could_not_read_is_an_error_of_all(together: Together) -> None:
    found = together(2, lambda processes: processes.each(lambda: Foreign() if processes.index else None))
    assert ["Foreign is not plain data" in str(error) for error in found] == [True, True]
