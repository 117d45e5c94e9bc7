"""Index of the runs under the directories of the service; their ids contain no path.

A run is read again only if its files have changed. A thousand runs cost a few system calls each.
"""

import base64
import hashlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.service.problems import Problem
from agent_tunix.service.runs.files import opened_directory, plain_status, status_in
from agent_tunix.service.runs.view import RunSummary, RunView, summarise_run

MAX_LIMIT = 100
_DEEPEST = 6
_MOST_DIRECTORIES = 20_000
_LOOK_AGAIN_S = 2.0
_VIEWS = 64


@dataclass(frozen=True)
class IndexedRun:
    """Directory of a run."""

    id: str  # `run_` and 24 letters and digits, derived from the path
    name: str  # path within the directory of runs, or that directory's own name
    root: Path
    started_ns: int  # time at which its configuration was written


@dataclass(frozen=True)
class RunPage:
    """Page of runs, newest first; `has_more` if there are older ones."""

    data: list[RunSummary]
    has_more: bool


class RunIndex:
    """Index of the runs under directories, searched to a depth of six without following links; thread-safe."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._lock = threading.Lock()
        self._found: dict[str, IndexedRun] = {}
        self._looked_at = -_LOOK_AGAIN_S
        self._summaries: dict[str, tuple[object, RunSummary]] = {}
        self._views: OrderedDict[str, RunView] = OrderedDict()

    def list(self, limit: int = 20, after: str | None = None) -> RunPage:
        """Return a page of 1 to 100 runs, newest first; with `after`, only those older than the run of that id.

        Raises:
            Problem: There is no run of that id, or the limit is out of range.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise Problem(400, "invalid_limit", f"limit must be 1 to {MAX_LIMIT}, not {limit}", "limit")
        found = self._look()
        first = 0
        if after is not None:
            if after not in found:
                raise Problem(400, "invalid_cursor", "after must be the id of a run in the list", "after")
            first = list(found).index(after) + 1
        chosen = list(found.values())[first : first + limit]
        return RunPage([self._summary(run) for run in chosen], first + limit < len(found))

    def get(self, id: str) -> RunView:
        """Return the view of a run; raise Problem if there is no run of that id."""
        run = self._find(id)
        with self._lock:
            view = self._views.pop(id, None) or RunView(run.id, run.name, run.root)
            self._views[id] = view
            while len(self._views) > _VIEWS:
                self._views.popitem(last=False)
        return view

    def summary(self, id: str) -> RunSummary:
        """Return a run's entry in a list; raise Problem if there is no run of that id."""
        return self._summary(self._find(id))

    def _find(self, id: str) -> IndexedRun:
        run = self._look().get(id)
        # A directory of its path may have been replaced by a link since it was found.
        if run is None or plain_status(run.root / "config.yaml") is None:
            raise Problem(404, "run_not_found", "there is no run with this id", "id")
        return run

    def _summary(self, run: IndexedRun) -> RunSummary:
        names = ("config.yaml", "metrics.jsonl", "status.json")
        try:
            with opened_directory(run.root) as directory:
                statuses = [status_in(directory, name) for name in names]
        except OSError:
            statuses = []
        key = [one and (one.st_ino, one.st_size, one.st_mtime_ns) for one in statuses]
        known = self._summaries.get(run.id)
        # Only the lock of a run tells whether it is still running.
        if known is None or known[0] != key or known[1].state == "running":
            known = (key, summarise_run(run.id, run.name, run.root, run.started_ns))
            self._summaries[run.id] = known
        return known[1]

    def _look(self) -> dict[str, IndexedRun]:
        """Return id → run, newest first, at most two seconds old."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                runs = {run.id: run for root in self._roots for run in _walk(root)}
                ordered = sorted(runs.values(), key=lambda run: (-run.started_ns, run.id))
                self._found = {run.id: run for run in ordered}
                for gone in self._summaries.keys() - self._found.keys():
                    del self._summaries[gone]
                for gone in self._views.keys() - self._found.keys():
                    del self._views[gone]
                self._looked_at = time.monotonic()
            return self._found


def _walk(root: Path) -> Iterator[IndexedRun]:
    """Yield the runs under a directory; the inside of a run is not searched."""
    waiting = [(root, 0)]
    looked_at = 0
    while waiting and looked_at < _MOST_DIRECTORIES:
        path, depth = waiting.pop()
        looked_at += 1
        try:
            with opened_directory(path) as directory:
                config = status_in(directory, "config.yaml")
                if config and (status_in(directory, "metrics.jsonl") or status_in(directory, "status.json")):
                    name = path.relative_to(root).as_posix()
                    yield IndexedRun(_id_of(path), root.name if name == "." else name, path, config.st_mtime_ns)
                elif depth < _DEEPEST:
                    with os.scandir(directory) as entries:
                        inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                    waiting += [(path / name, depth + 1) for name in inner]
        except OSError:  # it was removed, or cannot be read
            continue


def _id_of(directory: Path) -> str:
    digest = hashlib.sha256(os.fsencode(directory)).digest()[:15]
    return f"run_{base64.b32encode(digest).decode().lower()}"
