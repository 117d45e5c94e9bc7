"""Programs that a model wrote, run in a process that can do nothing but compute.

Each program gets a Python of its own, isolated from this environment (`-I -S`: the standard library alone). Before its
first line runs, the process locks itself in (`agent_tunix.execution.isolation`), and ends if any part of that is
refused. It has no network, no other process or thread, no file to write to, none to read but the standard library's,
and limits on memory and processor time; from outside, a limit on time.

Tests run in a second such process and call the program's functions from there (`checker`, `program`): the program sees
the arguments of the calls and nothing of what is expected of them, and cannot say itself that a test passed.

What a program prints is cut at a megabyte. Both processes end with the one that started them, and leave no file.
"""

import marshal
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent_tunix.execution.isolation import require_isolation, standard_paths
from agent_tunix.execution.isolation.requirements import unavailable
from agent_tunix.execution.sandbox.child import LOCKED
from agent_tunix.visible_text import one_line

__all__ = ["ProgramRun", "run_program"]

# The modules of this package are imported without the packages around them, which would load much.
BOOT = """
import sys
for name in ("", ".execution", ".execution.isolation", ".execution.sandbox"):
    package = sys.modules["agent_tunix" + name] = type(sys)("agent_tunix" + name)
    package.__path__ = [sys.argv[1] + "/agent_tunix" + name.replace(".", "/")]
from agent_tunix.execution.sandbox.child import main
main(int(sys.argv[2]), [int(number) for number in sys.argv[3:]])
"""
_PACKAGE_ROOT = str(Path(__file__).parents[3])
_WHAT = "a program's code"
_MOST_OUTPUT = 1_000_000


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """Result of a program.

    Attributes:
        ended: It came to its own end, without an exception, within its limits.
        output: Its standard output, up to a megabyte.
        passed: For each check, True if it passed; one that was not reached did not.
        problem: The reason why it did not end, or what the first check that failed raised; "" if all went well.
    """

    ended: bool
    output: str
    passed: tuple[bool, ...]
    problem: str


def run_program(
    code: str, *, stdin: str = "", checks: Sequence[str] = (), timeout_s: float = 5.0, memory_mb: int = 256
) -> ProgramRun:
    """Run a Python program and then, in another process that can call its functions, some checks.

    Args:
        code: The program.
        stdin: What it may read.
        checks: Statements such as `assert f(2) == 4`; each passes if it raises nothing.
        timeout_s: For the program and all checks together.
        memory_mb: Memory it may use, its interpreter included.

    Raises:
        SandboxUnavailableError: This system cannot isolate it; nothing was run.
    """
    require_isolation(_WHAT)
    limits = {
        "cpu_s": max(1, round(timeout_s + 0.5)),
        "memory_bytes": memory_mb * 2**20,
        "output_bytes": _MOST_OUTPUT,
        "readable": standard_paths(),
        "parent": os.getpid(),
    }
    deadline = time.monotonic() + timeout_s
    program_job = {**limits, "code": code, "stdin": stdin}
    if not checks:
        with _Child({**program_job, "role": "dialogue"}) as program:
            timed_out = program.wait_until(deadline)
        return _judge(program, program, 0, timed_out)
    with ExitStack() as ends:
        asked, answered = os.pipe(), os.pipe()
        for end in (*asked, *answered):
            ends.callback(os.close, end)
        with _Child({**program_job, "role": "program"}, (asked[0], answered[1])) as program:
            tests_job = {**limits, "stdin": "", "role": "tests", "checks": list(checks)}
            with _Child(tests_job, (answered[0], asked[1])) as tests:
                ends.close()  # so that each notices when the other has ended
                timed_out = tests.wait_until(deadline)
    return _judge(program, tests, len(checks), timed_out)


class _Child:
    """A process at its job. Leaving the context ends it and all that it started; what it said is then known.

    Args:
        job: What `child` is to do.
        line: Descriptors of the line to another such process, to read from and to write to.

    Attributes:
        said: What it reported.
        printed: What it printed.
        status: How it ended; None if it was still at it.
    """

    def __init__(self, job: dict[str, Any], line: tuple[int, ...] = ()) -> None:
        self.said: list[str] = []
        self.printed = ""
        self.status: int | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the child has ended)
        reading, writing = os.pipe()
        try:
            with tempfile.TemporaryFile() as given:
                marshal.dump(job, given)
                given.seek(0)
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", BOOT, _PACKAGE_ROOT, str(writing)]
                    + [str(end) for end in line],
                    stdin=given,
                    stdout=self._output,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={"PYTHONHASHSEED": "0"},
                    pass_fds=(writing, *line),
                    start_new_session=True,
                )
        except BaseException:
            os.close(reading)
            self._output.close()
            raise
        finally:
            os.close(writing)
        self._report = os.fdopen(reading, "rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        with suppress(ProcessLookupError):  # not waited for yet, so the number is still its own
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self.status = status if ended else None
        with self._report, self._output:
            self.said = self._report.read(_MOST_OUTPUT).decode(errors="replace").splitlines()
            with suppress(OSError):  # whatever the program has done to its file is not the trainer's fault
                self._output.seek(0)
                self.printed = self._output.read(_MOST_OUTPUT).decode(errors="replace")

    def wait_until(self, deadline: float) -> bool:
        """Wait for its end; return True if time ran out before."""
        watched = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            return not poll.poll(1000 * max(0.0, deadline - time.monotonic()))
        finally:
            os.close(watched)

    def reports(self, timed_out: bool) -> list[str]:
        """Return what it reported after it was isolated.

        Raises:
            SandboxUnavailableError: It could not be isolated, and did nothing.
        """
        first, *rest = self.said or [""]
        if first != LOCKED.decode().strip() and not (timed_out and not first):
            raise unavailable(_WHAT, first or f"the process ended with {self.status}")
        return rest


def _judge(program: _Child, tests: _Child, num_checks: int, timed_out: bool) -> ProgramRun:
    program.reports(timed_out)
    reported = tests.reports(timed_out)
    passed = {int(line.split()[1]) for line in reported if num_checks and line.startswith("passed ")}
    problem = next((line.partition(" ")[2] for line in reported if line.startswith("problem ")), "")
    ended = "ended" in reported if num_checks else program.status == 0
    if timed_out or program.status == -signal.SIGXCPU:
        problem = "it ran out of time"
    elif program is not tests and program.status and len(passed) < num_checks:
        problem = f"it was ended ({program.status})"
    elif not ended and not problem:
        problem = f"it was ended ({tests.status})"
    return ProgramRun(
        ended and not timed_out, program.printed, tuple(i in passed for i in range(num_checks)), one_line(problem)
    )
