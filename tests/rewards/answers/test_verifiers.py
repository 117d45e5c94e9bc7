"""The processes in which math-verify runs: their limits hold, and nothing of them is left behind."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_tunix.execution.workers.pool import WorkerPool
from agent_tunix.execution.workers.worker import WorkerDiedError
from agent_tunix.rewards import Outcome, Sample, Score, get_reward_function, resolve_reward
from agent_tunix.rewards.answers import Question, Verdict, set_thorough_runner
from agent_tunix.rewards.answers.verifiers import PATIENCE, Verifiers
from agent_tunix.rewards.execution import make_runner
from tests.rewards.execution.leftovers import check_nothing_left, take_stock, workers_and_descendants

# Expressions that keep an interpreter of C, and one of Python, busy.
ENDLESS = [r"\sum_{k=1}^{2} 9^{9^{9^{9}}}", r"\sum_{k=1}^{10^9} \sin(k)"]
QUICK = Question(r"\sum_{k=1}^{2} \frac{k}{6}", r"\int_0^1 x\,dx")
# Long beside what a quick answer takes, so that a machine that halts for a moment makes none of them late.
LIMIT_S = 6.0

_numbers = itertools.count(2)


def quick() -> str:
    """Return an expression that is 0.5, as the integral, and that no test has asked about: rulings are remembered."""
    number = next(_numbers)
    return rf"{QUICK.answer} + \cos {number} - \cos {number}"


@pytest.fixture(scope="module")
def shared() -> Iterator[Verifiers]:
    own = Verifiers(timeout_s=LIMIT_S)
    yield own
    own.close()


@pytest.fixture
def verifiers(shared: Verifiers) -> Iterator[Verifiers]:
    """Processes of this module's own, to which all questions go."""
    previous = set_thorough_runner(shared.rule)
    yield shared
    set_thorough_runner(previous)


def score(*answers: str, reference: str = QUICK.reference) -> list[Score]:
    samples = [Sample(rf"\boxed{{{answer}}}", columns={"answer": reference}) for answer in answers]
    return get_reward_function("math").score(samples)


def run(code: str) -> "subprocess.CompletedProcess[str]":
    program = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_never_ends_is_a_timeout_and_the_next_answer_is_judged_and_nothing_is_left(verifiers: Verifiers) -> None:
    verifiers.close()
    before = take_stock()
    *endless, last = score(*ENDLESS, quick())
    assert {(found.value, found.outcome) for found in endless} == {(None, Outcome.TIMEOUT)}
    assert all(f"math-verify took longer than {LIMIT_S:g} s" in found.detail for found in endless)
    assert last.value == 1.0
    assert 1 <= len(workers_and_descendants()) <= 3  # two that verify, and the one that keeps them
    verifiers.close()
    check_nothing_left(before)


@pytest.mark.slow
def test_hostile_latex_has_an_outcome(verifiers: Verifiers) -> None:
    hostile = [
        r"\frac{1}{" * 150 + "2" + "}" * 150,
        r"\sqrt{" * 250 + "2" + "}" * 250,
        "(" * 900 + "1" + ")" * 900,
        r"\begin{pmatrix}" + " & ".join(["x"] * 200) + r"\end{pmatrix}",
        r"\int_0^{\infty} e^{-x^{\sin x}} \cos(x^x) dx",
        "x" * 1999,
        r"\left" * 300,
        "\\\x00\ud800{",
    ]
    *found, last = score(*hostile, quick())
    assert all(each.value == 0.0 or each.outcome in (Outcome.TIMEOUT, Outcome.ERROR) for each in found)
    assert last.value == 1.0


def test_after_many_time_outs_the_rest_of_a_batch_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def time_out(self: WorkerPool, request: object, limit_s: float) -> None:
        asked.append(1)
        raise WorkerDiedError("was killed", timed_out=True)

    monkeypatch.setattr(WorkerPool, "ask", time_out)
    own = Verifiers()
    rulings = own.rule([Question(str(number), "5") for number in range(40)])
    own.close()
    assert PATIENCE <= sum(asked) < len(rulings) == 40
    assert [ruling.timed_out for ruling in rulings] == [True] * sum(asked) + [False] * (40 - sum(asked))
    assert "not tried" in rulings[-1].reason
    assert {ruling.verdict for ruling in rulings} == {Verdict.UNDECIDED}


@pytest.mark.slow
def test_a_process_that_is_killed_in_the_middle_is_replaced(verifiers: Verifiers) -> None:
    assert score(quick())[0].value == 1.0
    for pid in workers_and_descendants():
        os.kill(int(pid), signal.SIGKILL)
    assert score(quick())[0].value == 1.0


# --- where and when they run -----------------------------------------------------------------------------------------


def test_none_is_started_where_exact_reading_is_enough(verifiers: Verifiers) -> None:
    verifiers.close()
    before = workers_and_descendants()
    assert [found.value for found in score("0.5", "1/2", "7", "no idea", reference="0.5")] == [1.0, 1.0, 0.0, 0.0]
    assert workers_and_descendants() == before


def test_several_threads_share_them(verifiers: Verifiers) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda answer: score(answer)[0].value, [quick() for _ in range(4)]))
    assert found == [1.0] * 4


@pytest.mark.slow
def test_they_end_with_the_last_runner() -> None:
    before = take_stock()
    samples = [Sample(rf"\boxed{{{QUICK.answer}}}", columns={"answer": QUICK.reference})]
    with make_runner(resolve_reward("math")) as outer:
        with make_runner(resolve_reward("math")) as inner:
            assert inner.reward.score(samples)[0].value == 1.0
        assert workers_and_descendants() != []
        assert outer.reward.score(samples)[0].value == 1.0
    check_nothing_left(before)


@pytest.mark.slow
def test_in_a_worker_it_runs_in_that_worker_under_its_limit() -> None:
    before = workers_and_descendants()

    def score_in_worker(text: str, timeout_s: float) -> Score:
        sample = Sample(rf"\boxed{{{text}}}", columns={"answer": QUICK.reference})
        with make_runner(resolve_reward("math"), "process", num_workers=1, timeout_s=timeout_s) as runner:
            (found,) = runner.reward.score([sample])
            assert len(workers_and_descendants()) - len(before) <= 2
        return found

    right = score_in_worker(QUICK.answer, 60.0)  # in which it loads math-verify
    assert right.value == 1.0
    assert "(math-verify)" in right.detail
    assert score_in_worker(ENDLESS[0], 2.0).outcome is Outcome.TIMEOUT


@pytest.mark.slow
def test_a_program_that_never_closes_them_ends_and_so_do_they_and_it_has_not_loaded_math_verify() -> None:
    done = run(
        r"""
        import os, sys
        from agent_tunix.rewards import get_reward_function
        print(os.getpid(), get_reward_function("math")(r"\boxed{\sin\frac{\pi}{6}}", answer="0.5"))
        assert not {"math_verify", "sympy", "jax"} & set(sys.modules)
        """
    )
    pid, value = done.stdout.split()
    assert (value, done.stderr, done.returncode) == ("1.0", "", 0)
    assert workers_and_descendants(int(pid)) == []


def test_where_no_process_can_be_started_an_answer_is_an_error_and_the_next_is_judged(
    verifiers: Verifiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(WorkerPool, "ask", refuse)
        (found,) = score(quick())
    assert (found.value, found.outcome) == (None, Outcome.ERROR)
    assert "no more processes" in found.detail
    assert score(quick())[0].value == 1.0
