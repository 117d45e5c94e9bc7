"""Sampling processes on this machine, which a run starts and ends: `agent-tunix serve-policy` with the run's model."""

import contextlib
import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.errors import EngineError
from agent_tunix.execution.workers.keeper import kept

_LOGGER = logging.getLogger("agent_tunix.engines")
_ANNOUNCED = re.compile(r"serves the policy at (http://\S+)")
_TICK_S = 0.2
_GRACE_S = 10.0
_SHOWN_LINES = 15


class SamplingProcesses(Closing):
    """Processes that serve a model, each at a port of its own.

    They end with `close`, and also if this process is killed.

    Args:
        model: Directory of the model.
        num_processes: Number of processes.
        options: Further options of `agent-tunix serve-policy`.
        directory: Directory of their logs, `sampler_0.log` and so on.
        variables: Environment variables of each, besides those of this process; none for equal ones.

    Attributes:
        key: Key that requests must carry.
    """

    def __init__(
        self,
        model: Path,
        num_processes: int,
        options: Sequence[str],
        directory: Path,
        variables: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.key = secrets.token_urlsafe(24)
        directory.mkdir(parents=True, exist_ok=True)
        self._logs = [directory / f"sampler_{number}.log" for number in range(num_processes)]
        self._processes: list[subprocess.Popen[bytes]] = []
        program = [sys.executable, "-m", "agent_tunix", "serve-policy", str(model)]
        with contextlib.ExitStack() as if_one_fails:
            if_one_fails.callback(self.close)
            for log, own in zip(self._logs, variables or [{}] * num_processes, strict=True):
                with log.open("wb") as output:
                    process = subprocess.Popen(
                        kept([*program, "--port", "0", *options]),
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        env={**os.environ, **own, "AGENT_TUNIX_API_KEY": self.key, "PYTHONUNBUFFERED": "1"},
                        start_new_session=True,  # Ctrl-C is for the run, which ends them afterwards
                    )
                self._processes.append(process)
            if_one_fails.pop_all()

    def urls(self, timeout_s: float) -> list[str]:
        """Wait until all of them listen, and return their URLs.

        Raises:
            EngineError: One has ended, or does not listen in time.
        """
        end = time.monotonic() + timeout_s
        urls = [self._url(log, process, end) for log, process in zip(self._logs, self._processes, strict=True)]
        _LOGGER.info("sampling processes: %s (logs in %s)", ", ".join(urls), self._logs[0].parent)
        return urls

    def _url(self, log: Path, process: subprocess.Popen[bytes], end: float) -> str:
        while (found := _ANNOUNCED.search(log.read_text(errors="replace"))) is None:
            status = process.poll()
            if status is None and time.monotonic() < end:
                time.sleep(_TICK_S)
                continue
            why = "does not listen in time" if status is None else f"ended with status {status}"
            raise EngineError(
                f"a sampling process must serve the policy, but it {why}; {_end_of(log)}",
                code="sampling_process_failed",
            )
        return found.group(1)

    def reason_gone(self) -> str | None:
        """Return that all of them have ended, and the end of a log; None while one runs."""
        states = [process.poll() for process in self._processes]
        if None in states or not states:
            return None
        return (
            f"the sampling processes must run until the run ends, but all have ended, with status "
            f"{', '.join(map(str, states))}; {_end_of(self._logs[-1])}"
        )

    def close(self) -> None:
        """End them; further calls do nothing."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
    return f"the log {log} ends with:\n" + "\n".join(lines)
