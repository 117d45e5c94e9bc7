"""The processes in which math-verify runs: their limits hold, and nothing of them is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample, Score, get_reward_function, resolve_reward
from agent_tunix.rewards.answers import Question, Verdict, set_thorough_runner
from agent_tunix.rewards.answers.verifiers import PATIENCE, Verifiers
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.execution.local import LocalExecutor
from tests.rewards.execution.leftovers import check_nothing_left, take_stock, workers_and_descendants

ENDLESS = [
    r"9^{9^{9^{9}}}",
    r"10^{10^{10}}",
    r"\sum_{k=1}^{10^9} \sin(k)",
    r"\prod_{k=1}^{10^8} (1 + \frac{1}{k^2 + \sin k})",
    r"(10^{10})!",
]
QUICK = Question(r"\sin\frac{\pi}{6}", "0.5")


@pytest.fixture
def verifiers() -> Iterator[Verifiers]:
    """Processes of this test's own, to which all questions go."""
    own = Verifiers(timeout_s=1.5)
    previous = set_thorough_runner(own.rule)
    yield own
    set_thorough_runner(previous)
    own.close()


def score(*answers: str, name: str = "math") -> list[Score]:
    samples = [Sample(rf"\boxed{{{answer}}}", columns={"answer": "0.5"}) for answer in answers]
    return get_reward_function(name).score(samples)


def run(code: str) -> "subprocess.CompletedProcess[str]":
    program = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ENDLESS)
def test_what_never_ends_is_a_timeout_and_the_next_answer_is_judged(verifiers: Verifiers, text: str) -> None:
    endless, quick = score(text, QUICK.answer)
    assert (endless.value, endless.outcome) == (None, Outcome.TIMEOUT)
    assert "math-verify took longer than 1.5 s" in endless.detail
    assert quick.value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        r"\frac{1}{" * 150 + "2" + "}" * 150,
        r"\sqrt{" * 250 + "2" + "}" * 250,
        "(" * 900 + "1" + ")" * 900,
        r"\begin{pmatrix}" + " & ".join(["x"] * 200) + r"\end{pmatrix}",
        r"\int_0^{\infty} e^{-x^{\sin x}} \cos(x^x) dx",
        "x" * 1999,
        r"\left" * 300,
        "\\\x00\ud800{",
    ],
)
def test_hostile_latex_has_an_outcome(verifiers: Verifiers, text: str) -> None:
    hostile, quick = score(text, QUICK.answer)
    assert hostile.value == 0.0 or hostile.outcome in (Outcome.TIMEOUT, Outcome.ERROR)
    assert quick.value == 1.0


def test_the_processes_hold_at_their_number_and_leave_nothing_behind(verifiers: Verifiers) -> None:
    before = take_stock()
    score(*ENDLESS, QUICK.answer)
    assert 1 <= len(workers_and_descendants()) <= 3  # two that verify, and the one that keeps them
    verifiers.close()
    check_nothing_left(before)


def test_after_many_time_outs_the_rest_of_a_batch_is_not_tried() -> None:
    impatient = Verifiers(timeout_s=0.05)
    questions = [Question(f"9^{{9^{{9^{{{number}}}}}}}", "5") for number in range(10, 50)]
    rulings = impatient.rule(questions)
    impatient.close()
    assert PATIENCE <= sum(ruling.timed_out for ruling in rulings) < len(questions)
    assert "not tried" in rulings[-1].reason
    assert all(ruling.verdict is Verdict.UNDECIDED for ruling in rulings)


def test_a_process_that_is_killed_in_the_middle_is_replaced(verifiers: Verifiers) -> None:
    assert score(QUICK.answer)[0].value == 1.0
    for pid in workers_and_descendants():
        os.kill(int(pid), signal.SIGKILL)
    assert score(r"\cos\frac{\pi}{3}")[0].value == 1.0


# --- where and when they run -----------------------------------------------------------------------------------------


def test_none_is_started_where_exact_reading_is_enough(verifiers: Verifiers) -> None:
    assert [found.value for found in score("0.5", "1/2", "7", "no idea")] == [1.0, 1.0, 0.0, 0.0]
    assert workers_and_descendants() == []


def test_several_threads_share_them(verifiers: Verifiers) -> None:
    found: list[float | None] = []
    answers = [rf"\sin\frac{{\pi}}{{6}} + \cos {number} - \cos {number}" for number in range(4)]
    threads = [threading.Thread(target=lambda a=answer: found.append(score(a)[0].value)) for answer in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1.0] * 4


def test_they_end_with_the_last_runner() -> None:
    before = take_stock()
    samples = [Sample(rf"\boxed{{{QUICK.answer}}}", columns={"answer": QUICK.reference})]
    with make_runner(resolve_reward("math")) as outer:
        with make_runner(resolve_reward("math")) as inner:
            assert inner.reward.score(samples)[0].value == 1.0
        assert workers_and_descendants() != []
        assert outer.reward.score(samples)[0].value == 1.0
    check_nothing_left(before)


def test_in_a_worker_it_runs_in_that_worker_under_its_limit() -> None:
    texts = [QUICK.answer, r"9^{9^{9^{9}}}"]
    samples = [Sample(rf"\boxed{{{text}}}", columns={"answer": QUICK.reference}) for text in texts]
    with make_runner(resolve_reward("math"), "process", num_workers=1, timeout_s=3.0) as runner:
        quick, endless = runner.reward.score(samples)
        assert len(workers_and_descendants()) <= 2
    assert quick.value == 1.0
    assert "(math-verify)" in quick.detail
    assert endless.outcome is Outcome.TIMEOUT


def test_a_fork_of_the_process_has_its_own() -> None:
    done = run(
        r"""
        import multiprocessing
        from agent_tunix.rewards.answers import Question
        from agent_tunix.rewards.answers.verifiers import VERIFIERS

        def ask(answers):
            answers.send(VERIFIERS.rule([QUICK])[0].verdict)
            VERIFIERS.close()

        print(VERIFIERS.rule([QUICK])[0].verdict)
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        child = context.Process(target=ask, args=(there,))
        child.start()
        assert here.poll(60)
        print(here.recv())
        child.join()
        VERIFIERS.close()
        """.replace("QUICK", repr(QUICK))
    )
    assert (done.stdout.split(), done.stderr, done.returncode) == (["equal", "equal"], "", 0)


def test_a_program_that_never_closes_them_ends_and_so_do_they() -> None:
    done = run(
        r"""
        import os
        from agent_tunix.rewards import get_reward_function
        print(os.getpid(), get_reward_function("math")(r"\boxed{\sin\frac{\pi}{6}}", answer="0.5"))
        """
    )
    pid, value = done.stdout.split()
    assert (value, done.stderr, done.returncode) == ("1.0", "", 0)
    assert workers_and_descendants(int(pid)) == []


def test_the_trainers_process_does_not_load_math_verify() -> None:
    done = run(
        r"""
        import sys
        from agent_tunix.rewards import get_reward_function
        get_reward_function("math")(r"\boxed{\sin\frac{\pi}{6}}", answer="0.5")
        print(*{"math_verify", "sympy", "jax"} & set(sys.modules))
        """
    )
    assert done.stdout.split() == [], done.stdout


def test_where_no_process_can_be_started_an_answer_is_an_error_and_the_next_is_judged(
    verifiers: Verifiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RewardError("no more processes")

    with monkeypatch.context() as patched:
        patched.setattr(LocalExecutor, "submit", refuse)
        (found,) = score(QUICK.answer)
    assert (found.value, found.outcome) == (None, Outcome.ERROR)
    assert "no more processes" in found.detail
    assert score(QUICK.answer)[0].value == 1.0
