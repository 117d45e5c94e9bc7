"""How a run ended: `status.json` of its directory, for whoever looks at many runs.

It is written as a run starts, and again as it ends; a run that was killed leaves the first, and its lock is free.
"""

import contextlib
import enum
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_tunix.errors import Interrupted
from agent_tunix.regular_files import open_regular
from agent_tunix.tracking.durable import write_new

_NAME = "status.json"
_MAX_BYTES = 2**20


class RunStatus(enum.StrEnum):
    """What became of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"  # by a signal, or killed: it can be resumed
    FAILED = "failed"
    UNREADABLE = "unreadable"  # what lies there is damaged


@dataclass(frozen=True)
class RunOutcome:
    """What a run's directory says of its end.

    Attributes:
        status: As a type.
        overrides: What was asked of it on the command line; empty where that is not known.
        detail: Why it failed or stopped; "" where it did not.
    """

    status: RunStatus
    overrides: tuple[str, ...] = ()
    detail: str = ""


class RunAttempt:
    """To begin a run, or to go on with one.

    Attributes:
        begun: Whether it has come as far as to change the run.
    """

    def __init__(self) -> None:
        self.begun = False

    def begin(self) -> None:
        """From here on, how the attempt ends is how the run ends."""
        self.begun = True


@contextlib.contextmanager
def recorded_outcome(root: Path, overrides: Sequence[str] = ()) -> Iterator[RunAttempt]:
    """Keep what becomes of the run in this block.

    An attempt to go on with a run that ends before it has begun, as a resume that is refused, leaves what was kept.
    """
    earlier = _stored(root) if (root / "config.yaml").exists() else None
    attempt = RunAttempt()
    _write(root, RunOutcome(RunStatus.RUNNING, tuple(overrides)))
    try:
        yield attempt
    except BaseException as error:
        if earlier is not None and not attempt.begun:
            _write_bytes(root, earlier)
        else:
            asked = isinstance(error, Interrupted | KeyboardInterrupt)
            record_failure(root, error, overrides, RunStatus.STOPPED if asked else RunStatus.FAILED)
        raise
    _write(root, RunOutcome(RunStatus.FINISHED, tuple(overrides)))


def record_failure(
    root: Path, error: BaseException, overrides: Sequence[str] = (), status: RunStatus = RunStatus.FAILED
) -> None:
    """Keep that a run ended by an error."""
    first_line = (str(error).strip().splitlines() or [""])[0]
    _write(root, RunOutcome(status, tuple(overrides), f"{type(error).__name__}: {first_line}"[:500]))


def read_outcome(root: Path, open_file: Callable[[Path], BinaryIO] = open_regular) -> RunOutcome:
    """Return how the run of a directory ended, or that it goes on.

    Args:
        root: The directory.
        open_file: Opens a file of it for reading; raises OSError where it cannot.
    """
    try:
        with open_file(root / _NAME) as file:
            stored = json.loads(file.read(_MAX_BYTES))
        outcome = RunOutcome(RunStatus(stored["status"]), tuple(map(str, stored["overrides"])), str(stored["detail"]))
    except FileNotFoundError:  # of a run from before there was such a file
        outcome = RunOutcome(RunStatus.RUNNING)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return RunOutcome(RunStatus.UNREADABLE, detail=f"{_NAME}: {error}")
    if outcome.status is RunStatus.RUNNING and not _is_held(root, open_file):
        return RunOutcome(RunStatus.STOPPED, outcome.overrides, "it ended without a word, as when killed")
    return outcome


def is_run(root: Path) -> bool:
    """Whether a directory holds a run, or what is left of one that failed as it started."""
    names = ("metrics.jsonl", "environment.json", ".lock")
    return (root / _NAME).exists() or (
        (root / "config.yaml").exists() and any((root / name).exists() for name in names)
    )


def _stored(root: Path) -> bytes | None:
    """What is kept of a run, as it is; None where nothing is."""
    with contextlib.suppress(OSError):
        return (root / _NAME).read_bytes()
    return None


def _write(root: Path, outcome: RunOutcome) -> None:
    stored = {"status": outcome.status, "overrides": outcome.overrides, "detail": outcome.detail}
    _write_bytes(root, json.dumps(stored).encode())


def _write_bytes(root: Path, content: bytes) -> None:
    # What is said of a run must not decide it: a full disk is told by what trains.
    partial = root / f".{_NAME}.partial"
    with contextlib.suppress(OSError):
        write_new(partial, content)
        os.replace(partial, root / _NAME)


def _is_held(root: Path, open_file: Callable[[Path], BinaryIO]) -> bool:
    """Whether a process is at work in the directory.

    There is no asking without taking the lock for a moment; a run that starts in that moment tries again.
    """
    try:
        with open_file(root / ".lock") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
