"""View of one run, while it runs or later, and its summary for lists."""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agent_tunix.plain_yaml import load_plain_yaml
from agent_tunix.service.runs.curves import LiveCurves
from agent_tunix.service.runs.files import is_step, open_plain, parse_object, plain_status
from agent_tunix.service.runs.metrics import MetricsPage, MetricsTail
from agent_tunix.service.runs.rollouts import StoredRollouts
from agent_tunix.tracking.outcome import RunOutcome, RunStatus, read_outcome
from agent_tunix.workbench.diagnosis import Finding

_COMPONENT = re.compile(r"rewards/([^/]+)/mean")
_MAX_FINDINGS_BYTES = 4 * 2**20
# A run has some dozens of findings of a few kilobytes.
_MOST_FINDINGS = 500
_LONGEST_FINDING = 2**16
_MAX_ENVIRONMENT_BYTES = 4 * 2**20


class RunView:
    """View of a run; thread-safe."""

    def __init__(self, id: str, name: str, root: Path) -> None:
        self.id = id
        self.name = name
        self._root = root
        self._metrics = MetricsTail(root / "metrics.jsonl")
        self.curves = LiveCurves(self._metrics)
        self.rollouts = StoredRollouts(root / "rollouts")

    @property
    def config(self) -> dict[str, Any] | None:
        """Configuration of the run; None if it cannot be read."""
        return read_config(self._root)

    @property
    def reward_components(self) -> dict[str, dict[str, Any]] | None:
        """Components of the reward from the fingerprint; None if it cannot be read."""
        try:
            with open_plain(self._root / "environment.json") as file:
                environment = parse_object(file.read(_MAX_ENVIRONMENT_BYTES)) or {}
        except OSError:
            return None
        stored = environment.get("reward_fingerprint")
        components = stored.get("components") if isinstance(stored, dict) else None
        if not isinstance(components, dict) or not all(isinstance(one, dict) for one in components.values()):
            return None
        return components

    def metrics(self, after: int | None = None, limit: int = 1000) -> MetricsPage:
        """Return rows of steps later than `after`, at most `limit`."""
        return self._metrics.page(after, limit)

    def components(self) -> list[str]:
        """Return the names of the reward's components, without the total, in the order of the last rows of metrics.

        Each has metrics `rewards/<component>/mean`, `/p10`, `/p50`, `/p90` and others.
        """
        found = (_COMPONENT.fullmatch(name) for row in self._metrics.last_rows(3) for name in row)
        return [name for name in dict.fromkeys(one[1] for one in found if one) if name != "total"]

    def evaluations(self) -> list[dict[str, Any]]:
        """Return step and metrics under `eval/` of rows with evaluations, in order; at most 5,000 and 8 MB."""
        return self._metrics.evaluations()

    def evaluations_left_out(self) -> int:
        """Return the number of evaluations that `evaluations` leaves out."""
        return self._metrics.evaluations_left_out()

    def findings(self) -> tuple[list[Finding], int]:
        """Return the findings, in order, and the number of lines left out: damaged, too long or after the 500th."""
        try:
            with open_plain(self._root / "findings.jsonl") as file:
                *lines, _ = file.read(_MAX_FINDINGS_BYTES).split(b"\n")  # the part after the last newline is incomplete
        except OSError:
            return [], 0
        found = []
        lines = [line for line in lines if line]
        for line in lines[:_MOST_FINDINGS]:
            try:
                if len(line) > _LONGEST_FINDING:
                    continue
                found.append(Finding.from_data(parse_object(line) or {}))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found, len(lines) - len(found)


# The end of metrics.jsonl that is read; it holds several rows.
_TAIL_BYTES = 256 * 1024
_MAX_CONFIG_BYTES = 2**20
_MAX_STATUS_BYTES = 2**20


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


def summarise_run(id: str, name: str, root: Path, started_ns: int) -> RunSummary:
    """Return the summary of a run; damaged files do not raise errors."""
    outcome = _outcome(root)
    rows = read_tail(root / "metrics.jsonl")
    rewards = (row.get("rewards/total/mean") for row in reversed(rows))
    reward = next((value for value in rewards if type(value) in (int, float)), None)
    step = next((row["step"] for row in reversed(rows) if is_step(row.get("step"))), None)
    config = read_config(root)
    detail = outcome.detail.replace(f"{root}/", "")
    return RunSummary(
        id=id,
        name=_text(name),
        state=outcome.status.value,
        detail=_text(detail),
        started_at=max(started_ns // 10**9, 0),
        step=step,
        reward=reward,
        method=_setting(config, "grpo", "loss"),
        model=_model(config),
    )


def read_tail(path: Path) -> list[dict[str, Any]]:
    """Return the complete rows in the last 256 KB of a JSON Lines file; empty if it cannot be read."""
    try:
        with open_plain(path) as file:
            start = max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    rows = [parse_object(line) for line in (lines[1:] if start else lines)]
    return [row for row in rows if row is not None]


def read_config(root: Path) -> dict[str, Any] | None:
    """Return a run's configuration as plain values; None if it is unreadable or invalid."""
    try:
        with open_plain(root / "config.yaml") as file:
            content = file.read(_MAX_CONFIG_BYTES)
        loaded = load_plain_yaml(content)
        return parse_object(json.dumps(loaded, default=str).encode())
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _outcome(root: Path) -> RunOutcome:
    for name in ("status.json", ".lock"):
        path = root / name
        status = plain_status(path)
        if status is None and os.path.lexists(path):
            return RunOutcome(RunStatus.UNREADABLE, detail=f"{name} is not a regular file")
        if status is not None and status.st_size > _MAX_STATUS_BYTES:
            return RunOutcome(RunStatus.UNREADABLE, detail=f"{name} has {status.st_size:,} bytes")
    return read_outcome(root, open_plain)


def _setting(config: dict[str, Any] | None, group: str, key: str) -> str | None:
    found = (config or {}).get(group)
    value = found.get(key) if isinstance(found, dict) else None
    return _text(value) if isinstance(value, str) else None


def _model(config: dict[str, Any] | None) -> str | None:
    path = _setting(config, "model", "path")
    return path.rstrip("/").rpartition("/")[2] if path else _setting(config, "model", "model_size")


def _text(text: str) -> str:
    """Return text without surrogates, cut to a length that can be shown."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)[:500]
