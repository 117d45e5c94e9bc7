"""Writing of rollouts in a background thread.

As with all background work (`background.py`), writing starts a moment after it is submitted. The thread holds a bounded
number of steps; if the disk is slower than the run, the run waits. Rollouts are not needed to resume: if they cannot be
written, the run continues, logs one error and counts the lost completions.
"""

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent_tunix.closing import Closing
from agent_tunix.config.schema import RolloutsConfig
from agent_tunix.tracking.background import MOMENT_S
from agent_tunix.tracking.rollouts.files import FileInProgress
from agent_tunix.tracking.rollouts.rows import to_table
from agent_tunix.tracking.rollouts.schema import StoredStep

_LOGGER = logging.getLogger("agent_tunix.rollouts")
_STEPS_WAITING = 2


class RolloutWriter(Closing):
    """A writer of the rollouts of a run.

    Args:
        directory: Directory of the files; created when there is something to write.
        config: Configures the share of groups to keep and the size of a file.
        seed: The run's seed, which decides the choice of groups.
    """

    def __init__(self, directory: Path, config: RolloutsConfig, seed: int) -> None:
        self._directory = directory
        self._config = config
        self._seed = seed
        self._dropped = 0
        self._told = False
        self._file: FileInProgress | None = None
        self._waiting: queue.Queue[tuple[StoredStep, float] | threading.Event | None] = queue.Queue(_STEPS_WAITING)
        self._thread: threading.Thread | None = None

    @property
    def dropped(self) -> int:
        """Number of completions that could not be stored since this process started."""
        return self._dropped

    def write(self, stored: StoredStep) -> None:
        """Submit all completions of a step; wait while too many earlier steps are unwritten.

        The samples and scores must not be changed afterwards.
        """
        rows = choose_rows([sample.group_id for sample in stored.samples], self._seed, stored.step, self._config.share)
        if not rows:
            return
        if self._thread is None:
            # A daemon thread, because an idle writer must not keep a failing process alive.
            self._thread = threading.Thread(target=self._work, name="rollouts", daemon=True)
            self._thread.start()
        chosen = stored if len(rows) == len(stored.samples) else stored.select(rows)
        self._waiting.put((chosen, time.monotonic() + MOMENT_S))

    def barrier(self) -> Callable[[], object]:
        """Return a function that waits, in any thread, until every step so far is in a complete file or dropped."""
        done = threading.Event()
        if self._thread is None:
            done.set()
        else:
            self._waiting.put(done)
        return done.wait

    def flush(self) -> None:
        """Wait until every step so far is in a complete file, or counted as dropped."""
        self.barrier()()

    def close(self) -> None:
        """Write the waiting steps and end the thread; another call does nothing."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None
            if self._dropped:
                _LOGGER.error("%d completions are missing from %s", self._dropped, self._directory)

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            item = self._waiting.get()
            if isinstance(item, tuple):
                stored, begin_at = item
                time.sleep(max(0.0, begin_at - time.monotonic()))
                self._add(stored)
            else:
                self._finish()
                if item is None:
                    return
                item.set()

    def _add(self, stored: StoredStep) -> None:
        try:
            table = to_table(stored)
        except Exception as error:  # no error in rollouts may stop the run
            self._count(len(stored.samples), error)
            return
        try:
            if self._file is None:
                self._file = FileInProgress(self._directory, table.schema, stored.step)
            self._file.add(stored.step, table)
        except Exception as error:
            # The earlier steps in the file are lost too: an incomplete file cannot be read.
            file, self._file = self._file, None
            lost = 0 if file is None else file.num_rows
            if file is not None:
                file.discard()
            self._count(lost + len(stored.samples), error)
            return
        if self._file.num_bytes >= self._config.max_file_mb * 2**20:
            self._finish()

    def _finish(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.finish()
            except Exception as error:
                self._count(file.num_rows, error)

    def _count(self, num_rows: int, error: Exception) -> None:
        self._dropped += num_rows
        if not self._told:
            self._told = True
            _LOGGER.error(
                "rollouts could not be written to %s (%s: %s); the run continues without them, and rollouts/dropped"
                " counts the completions that are missing. Free some space or correct the permissions.",
                self._directory,
                type(error).__name__,
                error,
            )


def choose_rows(groups: Sequence[int], seed: int, step: int, share: float) -> list[int]:
    """Return the rows to store: whole groups, the same ones for the same seed and step.

    Args:
        groups: Group of each row.
        seed: The run's seed.
        step: Step of the rows.
        share: Expected share of groups, 0 to 1. A larger share keeps all that a smaller one does, and more.
    """
    kept = {group: _draw(seed, step, group) < share for group in set(groups)}
    return [row for row, group in enumerate(groups) if kept[group]]


def _draw(seed: int, step: int, group: int) -> float:
    """Return a number in [0, 1) that depends only on the arguments."""
    digest = hashlib.blake2b(f"{seed}/{step}/{group}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 11) / 2**53
