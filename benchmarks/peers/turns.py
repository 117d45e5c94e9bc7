"""Control of a peer: a line for each step it is to take, answered by a line of JSON.

Answers use a separate descriptor, so that output of libraries does not mix with them.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.scenario import Scenario


class Peer:
    """A program, the module `name` of `benchmarks.peers`, that takes one step at a time on request."""

    def __init__(self, name: str, python: str, scenario: Scenario, log: Path) -> None:
        """Start the program with an interpreter; its output goes to `log`."""
        self.name = name
        self.log = log
        reading, writing = os.pipe()
        root = Path(__file__).parents[2]
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "HF_HUB_OFFLINE": "1"}
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [python, "-m", f"benchmarks.peers.{name}", str(writing)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writing],
                cwd=root,
                env=environment,
                text=True,
            )
        os.close(writing)
        self._answers = os.fdopen(reading)
        self._send(scenario.to_json())

    def ready(self) -> dict[str, Any]:
        """Wait until the program has loaded everything."""
        return self._receive()

    def step(self) -> dict[str, Any]:
        """Let the program take a step, and return `seconds`, `cpu_seconds`, `reward` and its other figures."""
        self._send("step")
        return self._receive()

    def close(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.wait()
        self._answers.close()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _receive(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            self._fail()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self) -> None:
        sys.exit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")


class Turns:
    """The program's side of the control."""

    def __init__(self) -> None:
        """Open the descriptor of the command line and read the scenario from the input."""
        self._answers = os.fdopen(int(sys.argv[1]), "w")
        self.scenario = Scenario.from_json(sys.stdin.readline())
        self._began = time.process_time()

    def wait(self) -> None:
        """Wait for the request of a step; exit if the input ends."""
        if not sys.stdin.readline():
            os._exit(0)
        self._began = time.process_time()

    def answer(self, **facts: Any) -> None:
        """Report a step, or that everything is loaded, with the processor time that it took."""
        self._answers.write(json.dumps({**facts, "cpu_seconds": time.process_time() - self._began}) + "\n")
        self._answers.flush()
