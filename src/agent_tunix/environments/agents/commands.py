"""One run of a command as an agent: its variables, its limits, and the end of all that it started."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.environments.agents.results import read_result_file
from agent_tunix.execution.workers import linux
from agent_tunix.rewards.sample import Score
from agent_tunix.visible_text import one_line

ROW, RESULT, DIRECTORY = "AGENT_TUNIX_ROW", "AGENT_TUNIX_RESULT", "AGENT_TUNIX_DIRECTORY"
# Output of a run beyond which it is killed.
MOST_PRINTED_BYTES = 16 * 2**20
_TAIL_BYTES = 2_000
_READ_BYTES = 2**16
_TICK_S = 0.05


class AgentFault(Exception):
    """A run that ended without a result.

    Args:
        outcome: Kind of the fault in one word: `error`, `timeout`, `exited`, `flooded` or `invalid_result`.
        message: Description for a person.
    """

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def variables(base_url: str, key: str) -> dict[str, str]:
    """Return the variables by which a client of OpenAI's API finds the policy. No proxy stands before it."""
    return {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key, **without_proxy()}


def without_proxy() -> dict[str, str]:
    """Return the variables that keep clients from calling this machine through a proxy."""
    return {
        name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1,localhost"))) for name in ("no_proxy", "NO_PROXY")
    }


def run_command(
    command: Sequence[str],
    row: Mapping[str, Any],
    environment: Mapping[str, str],
    *,
    scratch: str,
    timeout_s: float,
    output: int = 1,
) -> Score | None:
    """Run a command in an empty directory, and return the score that it wrote.

    Args:
        command: Its words. One that names a file of the working directory is made absolute.
        row: Columns of the row, which the command finds as JSON in the file `AGENT_TUNIX_ROW`.
        environment: Further variables.
        scratch: Its working directory.
        timeout_s: Wall time that it may take.
        output: Descriptor that gets what it prints.

    Raises:
        AgentFault: It could not be started, took too long, printed too much, or exited with a status other than 0.
    """
    row_file, result_file = Path(scratch, "row.json"), Path(scratch, "result.json")
    row_file.write_text(json.dumps(dict(row), ensure_ascii=False, default=str), encoding="utf-8")
    here = os.getcwd()
    places = {ROW: str(row_file), RESULT: str(result_file), DIRECTORY: here, "TMPDIR": scratch}
    python_path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    words = [os.path.abspath(word) if os.path.isfile(word) else word for word in command]
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": python_path, **environment, **places},
        )
    except OSError as error:
        raise AgentFault("exited", f"the command {command[0]} could not be started: {error.strerror}") from error
    tail = _follow(process, time.monotonic() + timeout_s, timeout_s, output)
    if process.returncode:
        raise AgentFault("exited", f"the command {_how(process.returncode)}{_after(tail)}")
    return read_result_file(result_file)


def end_children(spared: Collection[int] = ()) -> None:
    """Kill every process that this process has started, in any session, but for `spared`."""
    while linux.has_children() and (left := [pid for pid in linux.children_of(os.getpid()) if pid not in spared]):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _follow(process: "subprocess.Popen[bytes]", deadline: float, timeout_s: float, output: int) -> bytes:
    """Pass on what a process prints until it ends, and return the end of it.

    A child that stays may hold the pipe open, so the process itself is watched too.
    """
    assert process.stdout is not None
    tail, size, is_open = b"", 0, True
    with process.stdout as pipe:
        os.set_blocking(pipe.fileno(), False)
        while True:
            has_ended = process.poll() is not None
            if is_open and select.select([pipe], [], [], 0 if has_ended else _TICK_S)[0]:
                data = os.read(pipe.fileno(), _READ_BYTES)
                is_open = bool(data)
                size += len(data)
                tail = (tail + data)[-_TAIL_BYTES:]
                with contextlib.suppress(OSError):
                    os.write(output, data)
            elif has_ended:
                return tail
            elif not is_open:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_TICK_S)
            if size > MOST_PRINTED_BYTES:
                raise AgentFault("flooded", f"the command printed more than {MOST_PRINTED_BYTES:,} bytes")
            if time.monotonic() >= deadline and process.poll() is None:
                raise AgentFault("timeout", f"the command took longer than {timeout_s:g} s{_after(tail)}")


def _how(status: int) -> str:
    if status > 0:
        return f"exited with status {status}"
    with contextlib.suppress(ValueError):
        return f"died of {signal.Signals(-status).name}"
    return f"died of signal {-status}"


def _after(tail: bytes) -> str:
    text = one_line(tail.decode("utf-8", "replace").strip()[-500:])
    return f"; it printed last: {text}" if text else ""
