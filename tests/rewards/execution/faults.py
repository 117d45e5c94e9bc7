"""The fault table: what may go wrong in a reward, and the outcome in which each ends; and rewards that do it.

The faults themselves are in `user_files/fault_actions.py`. To try a convention, add a file there that calls `act` for
each completion, and a line to `CONVENTIONS`; every test of the table then runs on it too.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_tunix.rewards import Mixture, Outcome, Sample, Score, resolve_reward

USER_FILES = Path(__file__).with_name("user_files")

# Convention → what is written in `training.reward_function`.
CONVENTIONS: dict[str, str] = {
    "plain": f"{USER_FILES}/plain.py:reward",
    "trl": f"{USER_FILES}/trl_style.py:reward",
    "miles": f"{USER_FILES}/miles_style.py:reward",
    "miles group": f"{USER_FILES}/miles_group.py:reward",
    "environment": f"{USER_FILES}/environment_style.py:Environment",
    "class": f"{USER_FILES}/class_style.py:Reward",
}

# Long beside what a well-behaved call takes, so that a machine that halts for a moment makes none of them late.
TIMEOUT_S = 0.5
MEMORY_MB = 256


@dataclass(frozen=True)
class Fault:
    """One row.

    Attributes:
        name: Of the action.
        outcomes: Those that are right; where there is more than one, which it is depends on the machine.
        detail: Pattern that must be found in the detail.
        in_convention: Other outcomes, where a convention documents another.
    """

    name: str
    outcomes: tuple[Outcome, ...]
    detail: str = ""
    in_convention: Mapping[str, tuple[Outcome, ...]] = field(default_factory=dict)

    def check(self, score: Score, convention: str) -> None:
        """Fail unless the score is what the table says."""
        expected = self.in_convention.get(convention, self.outcomes)
        assert score.outcome in expected, f"{self.name}: {score.outcome}: {score.detail}"
        if convention not in self.in_convention:
            assert re.search(self.detail, score.detail), f"{self.name}: {score.detail}"
        assert len(score.detail) < 5000, f"{self.name}: a detail of {len(score.detail)} characters"


SCORED, ERROR, TIMEOUT = (Outcome.SCORED,), (Outcome.ERROR,), (Outcome.TIMEOUT,)
DIED_OR_LATE = (Outcome.ERROR, Outcome.TIMEOUT)

FAULTS = [
    Fault("raises", ERROR, r"ValueError: no good \(.*fault_actions\.py:\d+: raise ValueError|ValueError: no good"),
    Fault("raises what cannot be printed", ERROR, "OddError"),
    Fault("raises a message without end", ERROR, "ValueError: xxx"),
    Fault("raises KeyboardInterrupt", ERROR, "KeyboardInterrupt"),
    Fault("sys.exit", ERROR, "SystemExit"),
    Fault("recurses without end", ERROR, "RecursionError"),
    Fault("bad reference", (Outcome.BAD_REFERENCE,), "the row has no answer"),
    Fault("None", (Outcome.NOT_APPLICABLE,)),
    Fault("NaN", ERROR, "nan"),
    Fault("infinity", ERROR, "inf"),
    Fault("a string", ERROR, "str"),
    Fault("an object", ERROR, "object"),
    Fault("two numbers", ERROR, "list"),
    Fault("a float that is none", ERROR),
    Fault("extras that cannot be pickled", SCORED, in_convention={"environment": ERROR}),  # a component is a number
    Fault("loops for ever", TIMEOUT, r"took longer than 0\.5 s .*fault_actions\.py"),
    Fault("sleeps for ever", TIMEOUT, r"took longer than 0\.5 s"),
    Fault("an exploding regular expression", TIMEOUT, r"took longer than 0\.5 s .*fault_actions\.py"),
    Fault("loops and swallows every exception", TIMEOUT),
    Fault("deadlocks", TIMEOUT),
    Fault("stops itself", TIMEOUT),
    Fault("allocates 8 GB", ERROR, r"MemoryError.*rewards\.memory_mb"),
    Fault("allocates bit by bit", DIED_OR_LATE),
    Fault("os._exit", ERROR, "exited with status 7"),
    Fault("os.abort", ERROR, "SIGABRT"),
    Fault("segmentation fault", ERROR, "SIGSEGV"),
    Fault("overflows the stack", ERROR, "SIGSEGV|RecursionError"),
    Fault("kills itself", ERROR, "SIGKILL|closed its connection"),
    Fault("kills its process group", ERROR, "SIGTERM"),
    Fault("kills its parent", DIED_OR_LATE),
    Fault("an alarm left behind", SCORED),
    Fault("closes stdout", SCORED),
    Fault("closes the descriptors of its output", SCORED),
    Fault("replaces stdout", SCORED),
    Fault("closes every descriptor", ERROR, "connection|exited"),
    Fault("writes to every descriptor", ERROR, "connection"),
    Fault("prints much", SCORED),
    Fault("changes the directory", SCORED),
    Fault("a thread left behind", SCORED),
    Fault("a busy thread left behind", SCORED),
    Fault("a child process left behind", SCORED),
    Fault("a daemon left behind", SCORED),
    Fault("forks and returns", SCORED),
    Fault("forks without end", DIED_OR_LATE, "processes|took longer"),
]


def resolve_faulty(convention: str) -> Mixture:
    """The reward that does what a response names, in a convention."""
    return resolve_reward(CONVENTIONS[convention])


def samples_of(responses: Sequence[str]) -> list[Sample]:
    """One completion a group, so that where a call takes a group each completion still answers for itself."""
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


def check_innocent(score: Score, response: str) -> None:
    """Fail unless a response that names no fault has the score that it deserves."""
    assert score.outcome is Outcome.SCORED, f"{response}: {score.outcome}: {score.detail}"
    assert score.value == len(response)
