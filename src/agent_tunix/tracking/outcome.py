"""The outcome of a run, in `status.json` of its directory.

The file is written when a run starts and when it ends. A killed run leaves the first version, and its lock is free.
"""

import contextlib
import enum
import fcntl
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.atomic_files import write_atomically
from agent_tunix.errors import Interrupted

_NAME = "status.json"


class RunStatus(enum.StrEnum):
    """Status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"  # by a signal, a kill or `training.max_hours`; the run can be resumed
    FAILED = "failed"
    UNREADABLE = "unreadable"  # the run's files are damaged


@dataclass(frozen=True)
class RunOutcome:
    """The outcome recorded in a run's directory."""

    status: RunStatus
    overrides: tuple[str, ...] = ()  # overrides from the command line; empty if unknown
    detail: str = ""  # reason for a failure or stop; "" without one


class RunAttempt:
    """An attempt to start or resume a run.

    Args:
        was_finished: True if an earlier attempt finished the run.

    Attributes:
        begun: True once the attempt may have changed the run.
        stopped: Reason why the attempt ended as planned before the last step; "" if it did not.
    """

    def __init__(self, was_finished: bool = False) -> None:
        self.was_finished = was_finished
        self.begun = False
        self.stopped = ""

    def begin(self) -> None:
        """Mark the attempt as begun: its outcome is now the outcome of the run."""
        self.begun = True


@contextlib.contextmanager
def recorded_outcome(root: Path, overrides: Sequence[str] = ()) -> Iterator[RunAttempt]:
    """Record the outcome of the run in this block.

    If a resume ends before it has begun, because it is refused or no step is left, the earlier record is restored.
    """
    earlier = _stored(root) if (root / "config.yaml").exists() else None
    attempt = RunAttempt(earlier is not None and read_outcome(root).status is RunStatus.FINISHED)
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
    if earlier is not None and not attempt.begun:
        _write_bytes(root, earlier)
    else:
        status = RunStatus.STOPPED if attempt.stopped else RunStatus.FINISHED
        _write(root, RunOutcome(status, tuple(overrides), attempt.stopped))


def record_failure(
    root: Path, error: BaseException, overrides: Sequence[str] = (), status: RunStatus = RunStatus.FAILED
) -> None:
    """Record that a run ended with an error."""
    # The second line is often the first of several reasons.
    beginning = " ".join(map(str.strip, str(error).strip().splitlines()[:2]))
    _write(root, RunOutcome(status, tuple(overrides), f"{type(error).__name__}: {beginning}"[:500]))


def read_outcome(root: Path) -> RunOutcome:
    """Return the outcome of a run from its directory; RUNNING if it is in progress."""
    try:
        stored = json.loads((root / _NAME).read_bytes())
        outcome = RunOutcome(RunStatus(stored["status"]), tuple(map(str, stored["overrides"])), str(stored["detail"]))
    except FileNotFoundError:  # a run from a version that wrote no status.json
        outcome = RunOutcome(RunStatus.RUNNING)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return RunOutcome(RunStatus.UNREADABLE, detail=f"{_NAME}: {error}")
    if outcome.status is RunStatus.RUNNING and not _is_held(root):
        return RunOutcome(RunStatus.STOPPED, outcome.overrides, "it ended without a report, probably killed")
    return outcome


def is_run(root: Path) -> bool:
    """Return True if a directory holds a run, or the remains of one that failed at startup."""
    names = ("metrics.jsonl", "environment.json", ".lock")
    return (root / _NAME).exists() or (
        (root / "config.yaml").exists() and any((root / name).exists() for name in names)
    )


def _stored(root: Path) -> bytes | None:
    """Return the content of status.json; None if it cannot be read."""
    with contextlib.suppress(OSError):
        return (root / _NAME).read_bytes()
    return None


def _write(root: Path, outcome: RunOutcome) -> None:
    stored = {"status": outcome.status, "overrides": outcome.overrides, "detail": outcome.detail}
    _write_bytes(root, json.dumps(stored).encode())


def _write_bytes(root: Path, content: bytes) -> None:
    # A failure to write the status must not stop the run; the training itself reports a full disk.
    with contextlib.suppress(OSError):
        write_atomically(root / _NAME, content)


def _is_held(root: Path) -> bool:
    """Return True if a process is running in the directory.

    The lock can only be tested by taking it briefly; a run that starts at that moment tries again.
    """
    try:
        with (root / ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
