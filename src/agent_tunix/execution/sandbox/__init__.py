"""Programs written by a model, run in a process that can do nothing but compute.

Each program gets its own Python without this environment's packages (`-I -S`: the standard library alone). Before the
program's first line runs, the process isolates itself (`agent_tunix.execution.isolation`), or exits if any part of that
fails. It then has no network and no other process or thread. It can read no files but the standard library's, and write
none. The process limits its own memory and processor time. Its parent limits the wall time.

Tests run in a second such process and call the program's functions from there (`checker`, `program`). The program sees
the arguments of the calls but not the expected results, and cannot report itself that a test passed.

A program's output is cut at a megabyte. Both processes end with the process that started them, and leave no files.
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

# The modules of this package are imported without their parent packages, which would load much more.
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
    """The result of a program.

    Attributes:
        ended: True if it ended by itself, without an exception and within its limits.
        output: Standard output, up to a megabyte.
        passed: For each check, True if it passed; False if it failed or was not reached.
        problem: Why the program did not end, or the exception of the first failed check; "" without a problem.
    """

    ended: bool
    output: str
    passed: tuple[bool, ...]
    problem: str


def run_program(
    code: str, *, stdin: str = "", checks: Sequence[str] = (), timeout_s: float = 5.0, memory_mb: int = 256
) -> ProgramRun:
    """Run a Python program, then run checks in another process that can call its functions.

    Args:
        code: Source of the program.
        stdin: Text on its standard input.
        checks: Statements such as `assert f(2) == 4`; a check passes if it raises nothing.
        timeout_s: Wall time for the program and all checks together.
        memory_mb: Memory limit, including the interpreter.

    Raises:
        SandboxUnavailableError: This system cannot isolate the program; nothing was run.
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
                ends.close()  # so that each process notices if the other ends
                timed_out = tests.wait_until(deadline)
    return _judge(program, tests, len(checks), timed_out)


class _Child:
    """A process with a job. Leaving the context kills it and all that it started, and makes its output available.

    Args:
        job: The job for `child`.
        line: Descriptors for messages to another such process: one to read, one to write.

    Attributes:
        said: Lines that it reported.
        printed: Its standard output.
        status: Exit status; None if it was still running.
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
        with suppress(ProcessLookupError):  # the process is not reaped yet, so its id cannot be reused
            os.killpg(self._process.pid, signal.SIGKILL)
        status = self._process.wait()
        self.status = status if ended else None
        with self._report, self._output:
            self.said = self._report.read(_MOST_OUTPUT).decode(errors="replace").splitlines()
            with suppress(OSError):  # the program may have done anything to its output file
                self._output.seek(0)
                self.printed = self._output.read(_MOST_OUTPUT).decode(errors="replace")

    def wait_until(self, deadline: float) -> bool:
        """Wait for the process to end; return True if time ran out first."""
        watched = os.pidfd_open(self._process.pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            return not poll.poll(1000 * max(0.0, deadline - time.monotonic()))
        finally:
            os.close(watched)

    def reports(self, timed_out: bool) -> list[str]:
        """Return the lines that it reported after it was isolated.

        Raises:
            SandboxUnavailableError: The process could not be isolated, and did nothing.
        """
        first, *rest = self.said or [""]
        if first != LOCKED.decode().strip() and not (timed_out and not first):
            raise unavailable(_WHAT, first or f"the process ended with {self.status}")
        return rest


def _judge(program: _Child, tests: _Child, num_checks: int, timed_out: bool) -> ProgramRun:
    program.reports(timed_out)
    reported = tests.reports(timed_out)
    lines = set(reported)
    passed = {number for number in range(num_checks) if f"passed {number}" in lines}
    problem = next((line.partition(" ")[2] for line in reported if line.startswith("problem ")), "")
    ended = "ended" in lines if num_checks else program.status == 0
    if timed_out or program.status == -signal.SIGXCPU:
        problem = "it ran out of time"
    elif program is not tests and program.status and len(passed) < num_checks:
        problem = f"it was ended ({program.status})"
    elif not ended and not problem:
        problem = f"it was ended ({tests.status})"
    return ProgramRun(
        ended and not timed_out, program.printed, tuple(i in passed for i in range(num_checks)), one_line(problem)
    )
