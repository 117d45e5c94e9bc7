"""Workers: what they see, what they may use, that they are replaced, and that nothing of them is left behind."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Mixture, Outcome, Sample, Score, resolve_reward
from agent_tunix.rewards.execution import Runner, make_runner
from tests.raising import raises
from tests.rewards.execution.faults import resolve_faulty, samples_of
from tests.rewards.execution.leftovers import wait_until, workers_and_descendants

Write = Callable[[str], str]


def score(spec: str, responses: Sequence[str], **options: float) -> list[Score]:
    with make_runner(resolve_reward(spec), "process", **{"num_workers": 1} | options) as runner:  # type: ignore[arg-type]
        return runner.reward.score([Sample(response) for response in responses])


# --- what a worker sees ----------------------------------------------------------------------------------------------


def test_a_worker_has_neither_jax_nor_a_device(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/nowhere")
    spec = write(
        """
        import os, sys
        def reward(response):
            assert not {"jax", "flax", "tunix"} & set(sys.modules)
            assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
            assert os.environ["JAX_PLATFORMS"] == "cpu"
            assert "XLA_FLAGS" not in os.environ
            return 1.0
        """
    )
    (scored,) = score(spec, ["x"])
    assert (scored.value, scored.detail) == (1.0, "")


@pytest.mark.slow
def test_a_call_finds_the_surroundings_of_the_first(write: Write) -> None:
    spec = write(
        """
        import os, sys
        def reward(response):
            found = os.getcwd(), sys.stdout.closed, os.fstat(1).st_ino
            os.chdir("/")
            sys.stdout.close()
            os.close(1)
            return float(hash(found) % 1000)
        """
    )
    assert len({each.value for each in score(spec, ["x"] * 5)}) == 1


@pytest.mark.slow
def test_workers_that_are_killed_just_before_a_call_cost_no_score(write: Write, tmp_path: Path) -> None:
    spec = write(
        f"""
        import os, pathlib
        if os.getpid() != {os.getpid()}:
            pathlib.Path("{tmp_path}", f"pid_{{os.getpid()}}").touch()
        def reward(response):
            return 1.0
        """
    )
    with make_runner(resolve_reward(spec), "process", num_workers=4) as runner:
        assert runner.reward.score([Sample("x")])[0].value == 1.0
        wait_until(lambda: len(list(tmp_path.glob("pid_*"))) == 4)
        for path in tmp_path.glob("pid_*"):
            os.kill(int(path.name[4:]), signal.SIGKILL)
        scores = runner.reward.score([Sample("x")] * 8)  # before anybody knows of their deaths
        assert [(one.value, one.detail) for one in scores] == [(1.0, "")] * 8


@pytest.mark.slow
def test_what_is_printed_is_logged_and_not_without_end(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    spec = write(
        """
        import os, sys
        def reward(response):
            print("to stdout", response)
            os.system("echo to a shell")
            print("to stderr\\n" * 1000, file=sys.stderr)
            return 1.0
        """
    )
    with caplog.at_level(logging.INFO, "agent_tunix"):
        score(spec, ["x"])
    lines = [record.getMessage() for record in caplog.records if "reward worker" in record.getMessage()]
    assert any("to stdout x" in line for line in lines)
    assert any("to a shell" in line for line in lines)
    assert any("more lines omitted" in line for line in lines)
    assert len(lines) < 30


@pytest.mark.slow
def test_random_numbers_differ_between_workers(write: Write) -> None:
    spec = write(
        """
        import random, time
        import numpy as np
        def reward(response):
            time.sleep(0.05)
            return random.random() + np.random.random()
        """
    )
    scores = score(spec, ["x"] * 8, num_workers=4)
    assert len({each.value for each in scores}) == 8


# --- what a worker may use -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_is_counted_beyond_what_the_file_itself_holds(write: Write) -> None:
    spec = write(
        """
        held = bytearray(300 << 20)
        def reward(response):
            return float(len(bytearray(int(response) << 20)) >> 20)
        """
    )
    small, large = score(spec, ["50", "200"], memory_mb=128)
    assert small.value == 50
    assert large.outcome is Outcome.ERROR
    assert "MemoryError" in large.detail


@pytest.mark.slow
def test_a_worker_that_starts_processes_without_end_is_killed_before_its_time_is_up(write: Write) -> None:
    spec = write(
        """
        import os, time
        def reward(response):
            if response == "bomb":
                for _ in range(300):
                    if os.fork() == 0:
                        time.sleep(1000)
                time.sleep(1000)
            return 1.0
        """
    )
    bomb, other = score(spec, ["bomb", "other"], timeout_s=60.0)
    assert "started more than 64 processes" in bomb.detail
    assert other.value == 1.0


@pytest.mark.slow
def test_a_worker_is_replaced_after_so_many_calls(write: Write) -> None:
    spec = write("import os\ndef reward(response): return float(os.getpid())\n")
    with make_runner(resolve_reward(spec), "process", num_workers=1, recycle_after=10) as runner:
        pids = [runner.reward.score([Sample("x")] * 4)[0].value for _ in range(6)]
    assert len(set(pids)) == 3


# --- a reward that cannot be loaded ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "reason", "start_timeout_s"),
    [
        ("raise ValueError('not here')", "not here", 60.0),
        ("os._exit(5)", "exited with status 5", 60.0),
        ("time.sleep(1000)", "took longer than", 0.5),
    ],
)
def test_a_file_that_fails_only_in_a_worker_is_an_error_of_each_completion(
    code: str, reason: str, start_timeout_s: float, write: Write
) -> None:
    main = os.getpid()
    spec = write(
        f"""
        import os, time
        if os.getpid() != {main}:
            {code}
        def reward(response): return 1.0
        """
    )
    scores = score(spec, ["x"] * 9, start_timeout_s=start_timeout_s)
    assert {each.outcome for each in scores} == {Outcome.ERROR}
    assert all("could not be loaded in a worker" in each.detail and reason in each.detail for each in scores)


def test_auto_runs_built_ins_here_and_users_code_in_workers(write: Write) -> None:
    spec = write("import os\ndef reward(response): return float(os.getpid())\n")
    with make_runner(resolve_reward({"length": "debug", "own": spec})) as runner:
        (total,) = runner.reward.score([Sample("4", columns={"answer": "4"})])
    assert total.components["own"] != os.getpid()
    assert total.parts["length"].outcome is Outcome.SCORED


# --- from any thread, at any time ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_share_the_workers() -> None:
    with make_runner(resolve_faulty(), "process", num_workers=2) as runner, ThreadPoolExecutor(4) as pool:

        def work(number: int) -> list[float | None]:
            responses = ["x" * (number + length) for length in range(20)]
            return [each.value for each in runner.reward.score(samples_of(responses))]

        totals = list(pool.map(work, range(4)))
    assert totals == [[float(number + length) for length in range(20)] for number in range(4)]


@pytest.mark.slow
def test_limits_hold_off_the_main_thread() -> None:
    with (
        make_runner(resolve_faulty(), "process", num_workers=1, timeout_s=0.2) as runner,
        ThreadPoolExecutor(1) as pool,
    ):
        (scored,) = pool.submit(runner.reward.score, samples_of(["loops for ever"])).result()
    assert scored.outcome is Outcome.TIMEOUT


def test_a_closed_runner_says_so() -> None:
    runner = make_runner(resolve_faulty(), "process", num_workers=1)
    runner.close()
    runner.close()
    with raises(RewardError, "workers_failed"):
        runner.reward.score(samples_of(["x"]))


@pytest.mark.slow
def test_a_sample_that_cannot_be_sent_is_an_error_of_its_own() -> None:
    with make_runner(resolve_faulty(), "process", num_workers=1) as runner:
        odd = Sample("x", columns={"lock": threading.Lock()})
        scores = runner.reward.score([Sample("x"), odd, Sample("xx")])
    assert [each.value for each in scores] == [1.0, None, 2.0]
    assert "cannot be sent" in scores[1].detail


# --- as inline -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def isolated() -> Iterator[Runner[Mixture]]:
    with make_runner(resolve_faulty(), "process", num_workers=3) as runner:
        yield runner


HARMLESS = ["raises", "bad reference", "None", "NaN", "an object", "sys.exit"]


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(responses=st.lists(st.one_of(st.sampled_from(HARMLESS), st.text(max_size=50)), max_size=100))
def test_scores_equal_those_of_inline_execution(responses: list[str], isolated: Runner[Mixture]) -> None:
    samples = samples_of([response.encode("utf-8", "replace").decode() for response in responses])
    with make_runner(resolve_faulty(), "inline") as inline:
        expected = inline.reward.score(samples)
    found = isolated.reward.score(samples)
    assert [(s.value, s.outcome, s.detail) for s in found] == [(s.value, s.outcome, s.detail) for s in expected]


# --- nothing left behind ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_process_outlives_a_trainer_that_is_killed(tmp_path: Path) -> None:
    program = """
import sys, threading, time
from agent_tunix.rewards.execution import make_runner
from tests.rewards.execution.faults import resolve_faulty, samples_of
runner = make_runner(resolve_faulty(), "process", num_workers=2, timeout_s=1000)
runner.reward.score(samples_of(["a daemon left behind", "a child process left behind", "a thread left behind"]))
threading.Thread(target=runner.reward.score, args=(samples_of(["loops for ever", "sleeps for ever"]),)).start()
print("ready", flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"ready\n"
        wait_until(lambda: len(workers_and_descendants(it.pid)) >= 5)
        it.send_signal(signal.SIGKILL)
    wait_until(lambda: workers_and_descendants(it.pid) == [])
    assert workers_and_descendants(it.pid) == []
