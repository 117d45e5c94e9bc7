"""The runs under the directories of the service; their ids contain no path.

A run is read again only if its files have changed. A thousand runs cost a few system calls each.
"""

import base64
import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_tunix.tracking.live_run import LiveRun, read_plain_config
from agent_tunix.tracking.metrics_file import is_number
from agent_tunix.tracking.metrics_tail import read_last_rows
from agent_tunix.tracking.outcome import read_outcome
from agent_tunix.tracking.run_table import iterate_runs
from agent_tunix.web.problems import Problem

MAX_LIMIT = 100
_DEPTH = 6
_LOOK_AGAIN_S = 2.0
_OPENED = 64
_LONGEST_TEXT = 500
_SUMMARISED = ("config.yaml", "metrics.jsonl", "status.json")


@dataclass(frozen=True)
class IndexedRun:
    """Directory of a run."""

    id: str  # `run_` and 24 letters and digits, derived from the path
    name: str  # path within the directory of runs, or that directory's own name
    root: Path
    started_ns: int  # time at which its configuration was written


@dataclass(frozen=True)
class RunSummary:
    """Entry of a run in a list."""

    id: str
    name: str  # path within the directory of runs
    state: str  # `running`, `finished`, `stopped`, `failed` or `unreadable`
    detail: str  # why it failed or stopped; "" if it did not
    started_at: int  # Unix time of its configuration, in seconds
    step: int | None  # the last step with a row; None if there is none
    reward: float | None  # mean total reward of the last step that has one
    method: str | None  # `grpo.loss` of its configuration; None if unreadable
    model: str | None  # last part of `model.path`, or else `model.model_size`; None if unreadable

    def to_data(self) -> dict[str, Any]:
        """Return the JSON object of the API."""
        return {"object": "run", **asdict(self)}


@dataclass(frozen=True)
class RunPage:
    """Page of runs, newest first; `has_more` if there are older ones."""

    data: list[RunSummary]
    has_more: bool


class RunIndex:
    """Index of the runs under directories, searched to a depth of six; thread-safe."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root.resolve() for root in roots]
        self._lock = threading.Lock()
        self._runs: dict[str, IndexedRun] = {}
        self._looked_at = -_LOOK_AGAIN_S
        self._summaries: dict[str, tuple[object, RunSummary]] = {}
        self._opened: OrderedDict[str, LiveRun] = OrderedDict()

    def list(self, limit: int = 20, after: str | None = None) -> RunPage:
        """Return a page of 1 to 100 runs, newest first; with `after`, only those older than the run of that id.

        Raises:
            Problem: There is no run of that id.
        """
        runs = self._look()
        first = 0
        if after is not None:
            if after not in runs:
                raise Problem(400, "invalid_cursor", "after must be the id of a run in the list", "after")
            first = list(runs).index(after) + 1
        page = list(runs.values())[first : first + limit]
        return RunPage([self._summary(run) for run in page], first + limit < len(runs))

    def get(self, id: str) -> LiveRun:
        """Return a run; raise Problem if there is no run of that id."""
        run = self.find(id)
        with self._lock:
            opened = self._opened.pop(id, None) or LiveRun(run.root)
            self._opened[id] = opened
            while len(self._opened) > _OPENED:
                self._opened.popitem(last=False)
        return opened

    def summary(self, id: str) -> RunSummary:
        """Return a run's entry in a list; raise Problem if there is no run of that id."""
        return self._summary(self.find(id))

    def find(self, id: str) -> IndexedRun:
        """Return the directory of a run; raise Problem if there is no run of that id."""
        run = self._look().get(id)
        if run is None or not (run.root / "config.yaml").is_file():
            raise Problem(404, "run_not_found", "there is no run with this id", "id")
        return run

    def _summary(self, run: IndexedRun) -> RunSummary:
        statuses = [_status(run.root / name) for name in _SUMMARISED]
        key = [status and (status.st_ino, status.st_size, status.st_mtime_ns) for status in statuses]
        known = self._summaries.get(run.id)
        # Only the lock of a run tells whether it is still running.
        if known is None or known[0] != key or known[1].state == "running":
            known = (key, summarise_run(run))
            self._summaries[run.id] = known
        return known[1]

    def _look(self) -> dict[str, IndexedRun]:
        """Return id → run, newest first, at most two seconds old."""
        with self._lock:
            if time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
                runs = {run.id: run for root in self._roots for run in _runs_in(root)}
                self._runs = dict(sorted(runs.items(), key=lambda item: (-item[1].started_ns, item[0])))
                for gone in self._summaries.keys() - runs.keys():
                    del self._summaries[gone]
                for gone in self._opened.keys() - runs.keys():
                    del self._opened[gone]
                self._looked_at = time.monotonic()
            return self._runs


def _runs_in(root: Path) -> Iterator[IndexedRun]:
    for path in iterate_runs(root, _DEPTH):
        status = _status(path / "config.yaml")
        if status is not None:  # a run that failed at startup has none
            digest = hashlib.sha256(os.fsencode(path)).digest()[:15]
            name = root.name if path == root else path.relative_to(root).as_posix()
            yield IndexedRun(f"run_{base64.b32encode(digest).decode().lower()}", name, path, status.st_mtime_ns)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def summarise_run(run: IndexedRun) -> RunSummary:
    """Return the summary of a run; damaged files do not raise errors."""
    outcome = read_outcome(run.root)
    rows = read_last_rows(run.root / "metrics.jsonl")
    rewards = (row.get("rewards/total/mean") for row in reversed(rows))
    config = read_plain_config(run.root)
    path = _setting(config, "model", "path")
    return RunSummary(
        id=run.id,
        name=_shown(run.name),
        state=outcome.status.value,
        detail=_shown(outcome.detail.replace(f"{run.root}/", "")),
        started_at=max(run.started_ns // 10**9, 0),
        step=rows[-1]["step"] if rows else None,
        reward=next((reward for reward in rewards if is_number(reward)), None),
        method=_setting(config, "grpo", "loss"),
        model=path.rstrip("/").rpartition("/")[2] if path else _setting(config, "model", "model_size"),
    )


def _setting(config: dict[str, Any] | None, group: str, key: str) -> str | None:
    values = (config or {}).get(group)
    value = values.get(key) if isinstance(values, dict) else None
    return _shown(value) if isinstance(value, str) else None


def _shown(text: str) -> str:
    """Return text without lone surrogates, which file names may have, cut to a length that can be shown."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)[:_LONGEST_TEXT]
