"""How a peer is driven: by a line for each step it is to take, answered by a line of JSON.

What libraries print must not mix with it, so the answers go over a descriptor of their own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.scenario import Scenario


class Peer:
    """A program that takes one step when it is told to, and waits otherwise."""

    def __init__(self, name: str, python: str, scenario: Scenario, log: Path) -> None:
        """Start it.

        Args:
            name: A module of `benchmarks.peers`.
            python: Its interpreter.
            scenario: What it trains.
            log: Where what it prints goes.
        """
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
        """Wait until it has loaded everything."""
        return self._receive()

    def step(self) -> dict[str, Any]:
        """Have it take a step: `seconds`, `reward` and what else it tells."""
        self._send("step")
        return self._receive()

    def close(self) -> None:
        """End it."""
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
    """The other side: what a peer's program holds."""

    def __init__(self) -> None:
        """Take the descriptor from the command line and the scenario from the input."""
        self._answers = os.fdopen(int(sys.argv[1]), "w")
        self.scenario = Scenario.from_json(sys.stdin.readline())

    def wait(self) -> None:
        """Until a step is wanted; ends the program where none ever will be."""
        if not sys.stdin.readline():
            os._exit(0)

    def answer(self, **facts: Any) -> None:
        """Tell of a step, or that all is loaded."""
        self._answers.write(json.dumps(facts) + "\n")
        self._answers.flush()
