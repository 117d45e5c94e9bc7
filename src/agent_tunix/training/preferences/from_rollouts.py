"""Pairs from the completions of a run: the best against the worst of each group, by their reward.

`prefer.from_rollouts=RUN` writes them to `pairs.jsonl` in the directory of the new run, with all columns of the row,
and what was left out to `pairs.json`. The new run reads that file like any other data, so it resumes without the other
run. No code of the other run is used. Importing this module loads no JAX.
"""

import collections
import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tunix.atomic_files import write_atomically
from agent_tunix.config.schema import Config, CurriculumConfig, PreferConfig
from agent_tunix.data.pair_layout import CHOSEN, REJECTED
from agent_tunix.errors import DataError
from agent_tunix.rewards import Outcome
from agent_tunix.runs.found_run import find_run
from agent_tunix.tracking.rollouts import StoredStep
from agent_tunix.tracking.stored_run import StoredRun

_FILE, _RECORD = "pairs.jsonl", "pairs.json"
_KEY = "prefer.from_rollouts"
# Share of the problems that train, if neither key of the evaluation's rows is set.
_TRAIN_FRACTION = 0.9


@dataclass
class RolloutPairs:
    """Rows with pairs, and counts of what gave none."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    # Reason → number of completions, or of groups, that were left out.
    completions_left_out: collections.Counter[str] = field(default_factory=collections.Counter)
    groups_left_out: collections.Counter[str] = field(default_factory=collections.Counter)

    def add(self, stored: StoredStep, min_margin: float) -> None:
        """Add the pairs of a step."""
        groups: dict[int, list[tuple[float, int]]] = collections.defaultdict(list)
        for place, (sample, score) in enumerate(zip(stored.samples, stored.scores, strict=True)):
            group = groups[sample.group_id]  # a group without scored completions is counted too
            if score.outcome is not Outcome.SCORED or score.value is None:
                self.completions_left_out["not scored"] += 1
            elif sample.episode is not None:
                self.completions_left_out["an episode of several turns"] += 1
            elif not sample.ended:
                self.completions_left_out["cut at the length limit"] += 1
            elif not sample.response.strip():
                self.completions_left_out["empty"] += 1
            else:
                group.append((score.value, place))
        for group in groups.values():
            if len(group) < 2:
                self.groups_left_out["fewer than two usable completions"] += 1
                continue
            # Of equal rewards, the first completion counts.
            best, worst = max(group, key=lambda one: one[0]), min(group, key=lambda one: one[0])
            if best[0] - worst[0] < min_margin:
                self.groups_left_out[f"rewards closer than prefer.min_margin={min_margin:g}"] += 1
                continue
            chosen, rejected = stored.samples[best[1]], stored.samples[worst[1]]
            responses = {CHOSEN: chosen.response, REJECTED: rejected.response}
            rewards = {"chosen_reward": best[0], "rejected_reward": worst[0]}
            self.rows.append({**chosen.columns, **responses, **rewards})

    def to_data(self, run: Path) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            "run": str(run),
            "num_pairs": len(self.rows),
            "completions_left_out": dict(self.completions_left_out),
            "groups_left_out": dict(self.groups_left_out),
        }


def write_pairs(config: Config, root: Path, earlier: Path | None = None) -> Config:
    """Write the pairs of `prefer.from_rollouts` into the directory of a new run; return the configuration of its data.

    A run that is resumed or continued keeps its pairs. Without the key, nothing changes.

    Args:
        config: The composed configuration.
        root: Directory of the run.
        earlier: Directory of the run that it continues; None for a new run.

    Raises:
        ConfigError: The key does not name a run.
        DataError: The run has no completions that make a pair, or the pairs of a resumed run are missing.
        RunDirectoryError: The rollouts are damaged.
    """
    prefer = config.prefer
    if prefer.from_rollouts is None:
        return config
    run, path = find_run(prefer.from_rollouts, _KEY), root / _FILE
    if earlier is not None and earlier != root and (earlier / _FILE).is_file() and not path.exists():
        for name in (_RECORD, _FILE):
            write_atomically(root / name, (earlier / name).read_bytes())
    elif not (root / "config.yaml").exists():
        pairs = _read_pairs(run.root, prefer)
        write_atomically(root / _RECORD, json.dumps(pairs.to_data(run.root), indent=1).encode())
        write_atomically(path, "".join(json.dumps(row, default=str) + "\n" for row in pairs.rows).encode())
    if not path.is_file():
        raise DataError(f"a run with {_KEY} reads its pairs from {path}, which is missing; restore it", code="no_rows")
    longest = max(map(len, path.read_bytes().splitlines(keepends=True)))
    data = dataclasses.replace(
        config.data,
        source="jsonl",
        path=str(path.absolute()),
        prompt_column=run.config.data.prompt_column,
        answer_column=None if run.config.data.answer_column is None else "answer",
        answer_mark="none",
        columns={},
        mixture={},
        curriculum=CurriculumConfig(),
        streaming=False,
        max_row_bytes=max(config.data.max_row_bytes, longest),
    )
    training = dataclasses.replace(config.training, train_data_dir=None, data_source=None)
    if training.test_data_dir is None and training.train_fraction == 1.0 and config.evaluation.num_samples > 0:
        training = dataclasses.replace(training, train_fraction=_TRAIN_FRACTION)
    prefer = dataclasses.replace(prefer, from_rollouts=str(run.root))
    return dataclasses.replace(config, data=data, training=training, prefer=prefer)


def _read_pairs(root: Path, prefer: PreferConfig) -> RolloutPairs:
    pairs = RolloutPairs()
    for stored in StoredRun(root).rollouts.iterate():
        pairs.add(stored, prefer.min_margin)
    if not pairs.rows:
        counts = "; ".join(_describe(pairs.to_data(root))) or "it has no stored completions (rollouts.share)"
        raise DataError(
            f"{_KEY}={root} must have a group with two scored completions whose rewards differ by at least "
            f"prefer.min_margin={prefer.min_margin:g}, but has none: {counts}; lower prefer.min_margin, or choose "
            "another run",
            code="no_rows",
        )
    return pairs


def describe_pairs(root: Path) -> str:
    """Return a line about the pairs of a run and what was left out."""
    record = json.loads((root / _RECORD).read_bytes())
    return "; ".join([f"{record['num_pairs']} pairs from the completions of {record['run']}", *_describe(record)])


def _describe(record: dict[str, Any]) -> Iterator[str]:
    for unit in ("completions", "groups"):
        counts: dict[str, int] = record[f"{unit}_left_out"]
        if counts:
            yield f"{unit} left out: " + ", ".join(f"{count} × {reason}" for reason, count in counts.items())
