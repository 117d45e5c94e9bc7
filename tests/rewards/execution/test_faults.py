"""Every fault of the table ends in its documented outcome, costs no other completion its score, and leaves nothing."""

import importlib.util
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from agent_tunix.rewards import Mixture
from agent_tunix.rewards.execution import Runner, make_runner
from tests.rewards.execution.faults import CONVENTIONS, FAULTS, MEMORY_MB, check_score, resolve_faulty, samples_of
from tests.rewards.execution.leftovers import check_nothing_left, take_stock

pytestmark = pytest.mark.slow

NO_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'agent_tunix[ray]'"
)
# What each convention, and each place, is tried on beside the whole table in one of them.
REPRESENTATIVE = ("raises", "bad reference", "extras that cannot be pickled", "os._exit", "a child process left behind")
# Long beside what a well-behaved call takes, so that a machine that halts for a moment makes none of them late.
SHORT_S, LONG_S = 5.0, 60.0
KILLS_ALL = "kills its parent"


@contextmanager
def running(convention: str, place: str, timeout_s: float, num_workers: int = 2) -> Iterator[Runner[Mixture]]:
    before = take_stock()
    with make_runner(
        resolve_faulty(convention), place, timeout_s=timeout_s, memory_mb=MEMORY_MB, num_workers=num_workers
    ) as runner:
        yield runner
    check_nothing_left(before)


def check(runner: Runner[Mixture], responses: list[str], convention: str = "plain") -> None:
    for response, score in zip(responses, runner.reward.score(samples_of(responses)), strict=True):
        check_score(score, response, convention)


@pytest.fixture(scope="module")
def patient() -> Iterator[Runner[Mixture]]:
    with running("plain", "process", LONG_S) as runner:
        yield runner


# First, so that it has ended when `patient` takes stock.
def test_faults_that_never_end_are_ended_and_cost_nobody_else() -> None:
    """A worker for each, so that all limits pass at once."""
    never_ending = [name for name, fault in FAULTS.items() if fault.never_ends and name != KILLS_ALL]
    with running("plain", "process", SHORT_S, num_workers=len(never_ending)) as runner:
        check(runner, ["before", *never_ending, "after", "long after", "last of all"])


def test_a_fault_that_kills_all_workers_is_ended_and_costs_nobody_else() -> None:
    with running("plain", "process", SHORT_S) as runner:
        check(runner, ["before", KILLS_ALL, "after", "long after", "last of all"])


@pytest.mark.parametrize("fault", [name for name, fault in FAULTS.items() if not fault.never_ends])
def test_a_fault_ends_in_its_outcome_and_costs_nobody_else(fault: str, patient: Runner[Mixture]) -> None:
    check(patient, ["before", fault, "after", "long after", "last of all"])


def test_the_same_workers_score_on(patient: Runner[Mixture]) -> None:
    check(patient, ["x" * length for length in range(1, 100)])


def check_representative(runner: Runner[Mixture], convention: str) -> None:
    check(runner, ["before", *REPRESENTATIVE, "sleeps for ever", "after"], convention)


def test_other_conventions_have_the_same_outcomes() -> None:
    """All at once, so that their limits pass at once."""
    conventions = [name for name in CONVENTIONS if name != "plain"]
    before = take_stock()
    with ExitStack() as stack, ThreadPoolExecutor(len(conventions)) as pool:
        runners = [
            stack.enter_context(
                make_runner(
                    resolve_faulty(convention), "process", timeout_s=SHORT_S, memory_mb=MEMORY_MB, num_workers=1
                )
            )
            for convention in conventions
        ]
        list(pool.map(check_representative, runners, conventions))
    check_nothing_left(before)


@NO_RAY
def test_workers_of_ray_have_the_same_outcomes() -> None:
    with running("plain", "ray", SHORT_S) as runner:
        check_representative(runner, "plain")
