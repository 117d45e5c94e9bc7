"""Faults of users' rewards, the outcome in which each ends, and rewards of every convention that do them.

Workers load this file as they load a user's own. A reward calls `act` once for each completion: a response that names
a fault has it done, any other is scored with its length.
"""

import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from agent_tunix.rewards import BadReferenceError, BaseReward, Mixture, Outcome, Sample, Score, resolve_reward

MEMORY_MB = 256

Act = Callable[[], Any]
Outcomes = tuple[Outcome, ...]

SCORED, ERROR, TIMEOUT = (Outcome.SCORED,), (Outcome.ERROR,), (Outcome.TIMEOUT,)
DIED_OR_LATE, BAD_REFERENCE = (Outcome.ERROR, Outcome.TIMEOUT), (Outcome.BAD_REFERENCE,)

_kept: list[Any] = []


@dataclass(frozen=True)
class Fault:
    """One row of the table.

    Attributes:
        act: The fault itself.
        outcomes: Those that are right; where there is more than one, which it is depends on the machine.
        detail: Pattern that must be found in the detail.
        in_convention: Other outcomes, where a convention documents another.
    """

    act: Act
    outcomes: Outcomes
    detail: str
    in_convention: Mapping[str, Outcomes]

    @property
    def never_ends(self) -> bool:
        """True if only the time limit ends it."""
        return Outcome.TIMEOUT in self.outcomes


FAULTS: dict[str, Fault] = {}


def fault(name: str, outcomes: Outcomes, detail: str = "", **other: Outcomes) -> Callable[[Act], Act]:
    """Enter a function into the table; `other` are outcomes in a convention that documents another."""

    def enter(act: Act) -> Act:
        FAULTS[name] = Fault(act, outcomes, detail, other)
        return act

    return enter


def then_score(do: Act) -> Act:
    """Return a fault that does something and scores as if nothing had been."""

    def act() -> float:
        do()
        return 1.0

    return act


def raising(make: Callable[[], BaseException]) -> Act:
    """Return a fault that raises an error."""

    def act() -> NoReturn:
        raise make()

    return act


# --- what raises or returns nonsense ---------------------------------------------------------------------------------


class OddError(BaseException):
    """No Exception, and not even printable."""

    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


def recurse() -> float:
    return recurse() + 1


fault("raises", ERROR, r"ValueError: no good \(.*faults\.py:\d+: raise ")(raising(lambda: ValueError("no good")))
fault("raises what cannot be printed", ERROR, "OddError")(raising(OddError))
fault("raises a message without end", ERROR, "ValueError: xxx")(raising(lambda: ValueError("x" * 10_000_000)))
fault("raises KeyboardInterrupt", ERROR, "KeyboardInterrupt")(raising(KeyboardInterrupt))
fault("recurses without end", ERROR, "RecursionError")(recurse)
fault("bad reference", BAD_REFERENCE, "the row has no answer")(
    raising(lambda: BadReferenceError("the row has no answer"))
)
fault("sys.exit", ERROR, "SystemExit")(sys.exit)
fault("None", (Outcome.NOT_APPLICABLE,))(lambda: None)
fault("NaN", ERROR, "nan")(lambda: float("nan"))
fault("an object", ERROR, "object")(object)
fault("extras that cannot be pickled", SCORED, environment=ERROR)(  # a component is a number
    lambda: Score(1.0, extras={"lock": threading.Lock(), "itself": act, "text": "\ud800"})
)


# --- what never ends -------------------------------------------------------------------------------------------------


@fault("loops for ever", TIMEOUT, r"took longer than \S+ s .*faults\.py")
def loop() -> NoReturn:
    while True:
        pass


@fault("loops and swallows every exception", TIMEOUT)
def swallow() -> NoReturn:
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(1)


@fault("deadlocks", TIMEOUT)
def deadlock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@fault("kills its parent", DIED_OR_LATE)
def kill_parent() -> float:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)
    return 1.0


fault("sleeps for ever", TIMEOUT, r"took longer than \S+ s")(lambda: time.sleep(1000))
fault("stops itself", TIMEOUT)(then_score(lambda: os.kill(os.getpid(), signal.SIGSTOP)))
fault("an exploding regular expression", TIMEOUT, r"took longer than \S+ s .*faults\.py")(
    lambda: re.match(r"(a+)+$", "a" * 40 + "b")
)


# --- what takes too much or dies -------------------------------------------------------------------------------------


@fault("allocates bit by bit", ERROR)
def allocate_bit_by_bit() -> NoReturn:
    pieces = []
    while True:
        pieces.append(bytearray(32 << 20))


@fault("forks without end", ERROR, "processes")
def fork_many() -> NoReturn:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(1000)
    time.sleep(1000)
    os._exit(0)


@fault("overflows the stack", ERROR, "SIGSEGV|RecursionError")
def overflow_stack() -> float:
    sys.setrecursionlimit(10**9)
    resource.setrlimit(resource.RLIMIT_STACK, (2**20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
    return float(len(json.loads("[" * 10**6)))


@fault("kills its process group", ERROR, "SIGTERM")
def kill_group() -> float:
    os.killpg(0, signal.SIGTERM)
    time.sleep(1000)
    return 1.0


fault("allocates 8 GB", ERROR, r"MemoryError.*rewards\.memory_mb")(lambda: len(bytearray(8 << 30)))
fault("kills itself", ERROR, "SIGKILL|closed its connection")(lambda: os.kill(os.getpid(), signal.SIGKILL))
fault("os._exit", ERROR, "exited with status 7")(lambda: os._exit(7))
fault("os.abort", ERROR, "SIGABRT")(os.abort)
fault("segmentation fault", ERROR, "SIGSEGV")(lambda: ctypes.string_at(0))


# --- what is left behind or broken -----------------------------------------------------------------------------------


@fault("closes stdout", SCORED)
def close_stdout() -> float:
    sys.stdout.close()
    sys.stderr.close()
    return 1.0


@fault("closes the descriptors of its output", SCORED)
def close_output_descriptors() -> float:
    for number in (1, 2):
        with contextlib.suppress(OSError):  # a convention that is tried out first calls twice
            os.close(number)
    return 1.0


@fault("replaces stdout", SCORED)
def replace_stdout() -> float:
    sys.stdout = sys.stderr = None
    return 1.0


@fault("writes to every descriptor", ERROR, "connection")
def write_everywhere() -> float:
    for number in range(1024):
        with contextlib.suppress(OSError):
            os.write(number, b"nonsense " * 10)
    return 1.0


@fault("a busy thread left behind", SCORED)
def leave_busy_thread() -> float:
    stop = time.monotonic() + 5
    threading.Thread(target=lambda: [None for _ in iter(time.monotonic, stop) if time.monotonic() > stop]).start()
    return 1.0


fault("closes every descriptor", ERROR, "connection|exited")(then_score(lambda: os.closerange(0, 65536)))
fault("prints much", SCORED)(then_score(lambda: print("much\n" * 20_000, os.urandom(1000), "\x00")))
fault("changes the directory", SCORED)(then_score(lambda: os.chdir("/")))
fault("an alarm left behind", SCORED)(then_score(lambda: signal.setitimer(signal.ITIMER_REAL, 0.02)))
fault("a thread left behind", SCORED)(then_score(lambda: threading.Thread(target=time.sleep, args=(1000,)).start()))
fault("a child process left behind", SCORED)(then_score(lambda: _kept.append(subprocess.Popen(["sleep", "1000"]))))
fault("a daemon left behind", SCORED)(
    then_score(lambda: subprocess.run(["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 &"], check=True))
)
fault("forks and returns", SCORED)(then_score(os.fork))


# --- the rewards -----------------------------------------------------------------------------------------------------


def act(response: str) -> Any:
    """Return the score of a response: its length, or whatever the fault that it names returns."""
    if response in FAULTS:
        return FAULTS[response].act()
    print("scored", len(response))
    return float(len(response))


def plain(response: str) -> Any:
    return act(response)


def trl(completions: list[str], **kwargs: Any) -> Any:
    return [act(completion) for completion in completions]


async def miles(args: Any, sample: Any, **kwargs: Any) -> Any:
    return act(sample.response)


async def miles_group(args: Any, samples: Any, **kwargs: Any) -> Any:
    return [act(sample.response) for sample in samples]


class environment:  # noqa: N801
    async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
        return {"score": act(messages[-1]["content"])}


class base_reward(BaseReward):  # noqa: N801
    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> Any:
        return [act(completion[-1]["content"]) for completion in completions]


CONVENTIONS = ("plain", "trl", "miles", "miles_group", "environment", "base_reward")


def resolve_faulty(convention: str = "plain") -> Mixture:
    """Return the reward of a convention."""
    return resolve_reward(f"{__file__}:{convention}")


def samples_of(responses: Sequence[str]) -> list[Sample]:
    """Return one completion a group: where a call takes a group, each completion still answers for itself."""
    return [
        Sample(
            response,
            prompt="p",
            messages=({"role": "user", "content": "p"}, {"role": "assistant", "content": response}),
            columns={"answer": "4"},
            step=1,
            max_steps=1,
            group_id=number,
            rollout_id=f"1_{number}_0",
        )
        for number, response in enumerate(responses)
    ]


def check_score(score: Score, response: str, convention: str = "plain") -> None:
    """Fail unless a response has the outcome of the fault that it names, or the score that it deserves."""
    fault = FAULTS.get(response)
    if fault is None:
        assert (score.outcome, score.value) == (Outcome.SCORED, len(response)), f"{response}: {score.detail}"
        return
    expected = fault.in_convention.get(convention, fault.outcomes)
    assert score.outcome in expected, f"{response}: {score.outcome}: {score.detail}"
    if convention not in fault.in_convention:
        assert re.search(fault.detail, score.detail), f"{response}: {score.detail}"
    assert len(score.detail) < 5000, f"{response}: a detail of {len(score.detail)} characters"
