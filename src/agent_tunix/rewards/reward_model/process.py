"""The trainer's side of the process that holds a reward model."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.reward_model.settings import ModelSettings

_PROGRAM = Path(__file__).with_name("program.py")
_CLOSE_S = 2.0
_MOST_STDERR = 2000


class ProcessGoneError(RewardError):
    """The process died, or was killed because it took too long.

    Attributes:
        results: Results that it returned before.
    """

    def __init__(self, text: str, *, timed_out: bool) -> None:
        super().__init__(text)
        self.timed_out = timed_out
        self.results: list[dict[str, Any]] = []


class ModelProcess:
    """A process that holds a model, for use by one thread at a time. It ends with `close`, or with this process.

    Attributes:
        facts: Facts about the loaded model: `architecture`, `label`, `max_length`, `batch_size`, `chat_template`.

    Raises:
        ProcessGoneError: The process ended while loading, or took too long.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings
        self._buffer = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        # The process has its own session: Ctrl-C must reach only the trainer, which saves before it ends.
        self._process = subprocess.Popen(
            [settings.python or sys.executable, "-P", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=_environment(settings),
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, self._process, self._errors)
        try:
            self.facts = self._load()
        except BaseException:
            self.close()
            raise

    def score(self, conversations: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the model's results for conversations, in any order. A ProcessGoneError holds the results so far."""
        results: list[dict[str, Any]] = []
        try:
            self._send(conversations)
            while (said := self._receive(self._settings.timeout_s, "scoring a batch", "timeout_s")) != "done":
                results += said
        except ProcessGoneError as error:
            error.results = results
            self.close()
            raise
        except BaseException:  # after an interrupt, the rest of this answer must not be read as the next one
            self.close()
            raise
        return results

    def close(self) -> None:
        """End the process."""
        self._end()

    def _load(self) -> dict[str, Any]:
        self._send(self._settings.model_dump())
        said = self._receive(self._settings.start_timeout_s, "loading the model", "start_timeout_s")
        if "refused" in said:
            where = "" if self._settings.is_local else "; there is no such directory, so it was looked up on the hub"
            raise RewardError(
                f"the reward model {self._settings.path} cannot be loaded: {said['refused']}{where}",
                code="invalid_reward_model",
            )
        facts: dict[str, Any] = said["loaded"]
        return facts

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._gone() from None

    def _receive(self, timeout_s: float, doing: str, key: str) -> Any:
        """Return the next message, or raise an error after the time limit."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                text = f"the reward model took longer than {timeout_s:g} s for {doing} (`{key}`)"
                raise ProcessGoneError(text, timed_out=True)
            piece = os.read(descriptor, 2**16)
            if not piece:
                raise self._gone()
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _gone(self) -> ProcessGoneError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_S)
        status = self._process.returncode
        how = f"was killed by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        if status == -9:
            how += ", most likely because memory ran out; lower batch_size or max_length, or set dtype=bfloat16"
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _MOST_STDERR))
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1].strip()}" if lines else ""
        return ProcessGoneError(f"the process of the reward model {how}{last}", timed_out=False)


def _environment(settings: ModelSettings) -> dict[str, str]:
    quiet = {"TOKENIZERS_PARALLELISM": "false", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    # If torch sees no accelerator, it leaves the accelerator's memory to the trainer.
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if settings.device == "cpu" else {}
    return {**os.environ, **quiet, **hidden}


def _end(process: "subprocess.Popen[bytes]", errors: Any) -> None:
    """Kill the process, which has nothing to save."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
    errors.close()
