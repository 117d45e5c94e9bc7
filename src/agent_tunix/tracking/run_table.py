"""A table of runs, one row each: settings, results and status.

Reading never fails: a run that is unfinished or damaged has a row that says so.
"""

import contextlib
import csv
import hashlib
import io
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.tracking.metrics_file import is_number, iterate_rows
from agent_tunix.tracking.outcome import RunStatus, is_run, read_outcome
from agent_tunix.tracking.progress import format_duration
from agent_tunix.tracking.summary import MEASURES, compare_ends
from agent_tunix.visible_text import align, one_line

FORMATS = ("table", "json", "csv")
ORDERS = ("name", "final", "best", "seconds")

# Settings that differ for every run and do not affect its result.
_OWN_KEYS = re.compile(r"(hydra\.|training\.(resume|checkpoint_dir|log_dir)$)")

# The worked examples. A run stores those that it drew.
_EXAMPLES = "prompt.few_shot"

# Longest error detail in a table; other formats show all of it.
_DETAIL_LENGTH = 240

# Most settings that the table of a single run shows.
_FEW_KEYS = 4


@dataclass(frozen=True)
class RunRow:
    """The row of one run."""

    name: str  # directory of the run, relative to the directory that was searched
    status: RunStatus
    settings: Mapping[str, str] = field(default_factory=dict)
    steps: int | None = None  # last step taken; None if there is none
    final: float | None = None  # last value of the metric; None if there is none
    best: float | None = None
    best_step: int | None = None  # step of the best value
    reward_before: float | None = None  # mean total reward of the first steps
    reward_after: float | None = None
    seconds: float | None = None
    detail: str = ""  # the error, if there was one


def find_runs(directory: Path) -> list[Path]:
    """Return the runs in a directory, which may itself be one, sorted by name with numbers by value.

    Raises:
        RunDirectoryError: It is not a directory, or holds no run.
    """
    if not directory.is_dir():
        raise RunDirectoryError(
            f"{directory} must be a directory of runs, such as multirun/…, but is not a directory; give another",
            code="missing_run",
        )
    runs = list(iterate_runs(directory))
    if not runs:
        raise RunDirectoryError(
            f"{directory} must contain the directory of a run, with a config.yaml and a metrics.jsonl, but contains "
            "none; give another",
            code="missing_run",
        )
    return sorted(runs, key=lambda run: _natural(str(run)))


def iterate_runs(directory: Path, depth: int | None = None) -> Iterator[Path]:
    """Yield the runs in a directory, which may itself be one, down to a depth, without following links."""
    for root, names, _ in os.walk(directory):
        path = Path(root)
        if is_run(path):
            yield path
            names.clear()  # do not look for runs inside a run
        elif depth is not None and len(path.relative_to(directory).parts) >= depth:
            names.clear()


def read_table(runs: Sequence[tuple[str, Path]], metric: str, mode: str = "max") -> list[RunRow]:
    """Return a row for each run, with the settings in which the runs differ.

    Args:
        runs: Name and directory of each run.
        metric: Metric whose final and best values are shown.
        mode: max if higher is better, min if lower is.
    """
    read = [_read_row(name, root, metric, min if mode == "min" else max) for name, root in runs]
    overridden = dict.fromkeys(key for row, overrides in read for key in overrides)
    settings = [overrides or _pick(row.settings, overridden) for row, overrides in read]
    shown = overridden or dict.fromkeys(key for row, _ in read for key in row.settings)
    if len(read) > 1:
        shown = dict.fromkeys(key for key in shown if _differs(key, [row for row, _ in read], settings))
    return [
        replace(row, settings={key: value for key, value in values.items() if key in shown})
        for (row, _), values in zip(read, settings, strict=True)
    ]


def metric_names(runs: Iterable[tuple[str, Path]]) -> list[str]:
    """Return the names of all metrics that any run has, sorted; unreadable runs are skipped."""
    names: set[str] = set()
    for _, root in runs:
        for row in _rows(root):
            names |= row.keys()
    return sorted(names - {"step"})


def _rows(root: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a run as far as they can be read."""
    with contextlib.suppress(RunDirectoryError):
        yield from iterate_rows(root / "metrics.jsonl")


def default_metric(runs: Iterable[tuple[str, Path]]) -> str:
    """Return the first of `MEASURES` that any run has a value of: accuracy, or else the reward of held-out problems."""
    known: set[str] = set()
    for _, root in runs:
        for row in _rows(root):
            known |= {name for name in MEASURES if _has_number(row, name)}
    return next((name for name in MEASURES if name in known), MEASURES[0])


def _pick(configured: Mapping[str, str], keys: Mapping[str, None]) -> dict[str, str]:
    """Return the configured keys that other runs override; all of them if no run overrides any."""
    return {key: value for key, value in configured.items() if not keys or key in keys}


def _differs(key: str, rows: Sequence[RunRow], settings: Sequence[Mapping[str, str]]) -> bool:
    """Return True if a setting differs between runs; runs whose setting is unknown do not count."""
    known = (
        _comparable(values.get(key))
        for row, values in zip(rows, settings, strict=True)
        if key in values or (row.settings and row.status is not RunStatus.UNREADABLE)
    )
    return len(set(known)) > 1


def _comparable(text: str | None) -> object:
    """Return an equal value for different spellings: `0` and `0.0`, `[1,1]` and `[1, 1]`."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        plain = text.replace(" ", "").lower()  # Python's True is YAML's true
        return "null" if plain == "none" else plain


def sort_table(rows: Iterable[RunRow], order: str, mode: str = "max") -> list[RunRow]:
    """Sort rows by `name`, `final`, `best` (better first) or `seconds`; rows without a value come last."""
    if order == "name":
        return sorted(rows, key=lambda row: _natural(row.name))
    sign = -1.0 if mode == "max" and order != "seconds" else 1.0

    def place(row: RunRow) -> tuple[bool, float]:
        value = getattr(row, order)
        return value is None, 0.0 if value is None else sign * value

    return sorted(rows, key=place)


def format_table(rows: Sequence[RunRow], metric: str, form: str, width: int | None = None) -> str:
    """Format the rows as text.

    Args:
        rows: Rows in output order.
        metric: Metric that the rows show.
        form: table (for a terminal), json (a list of objects) or csv.
        width: Characters of a line; the settings of a wider table follow below it. None for no limit.
    """
    if form == "json":
        return json.dumps([{**vars(row), "metric": metric} for row in rows], ensure_ascii=False, indent=2)
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    if form == "table" and len(rows) == 1 and len(keys) > _FEW_KEYS:
        keys = []  # there is no other run to compare with
    if form == "csv":
        text = io.StringIO()
        names = [name for name in RunRow.__dataclass_fields__ if name != "settings"]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*keys, *names])
        writer.writerows(
            [[*(row.settings.get(key, "") for key in keys), *(getattr(row, n) for n in names)] for row in rows]
        )
        return text.getvalue().rstrip("\n")
    table = _draw(rows, keys, metric)
    if width is None or not keys or max(map(len, table.splitlines())) <= width:
        return table
    lines = []
    for key in keys:
        values = (f"{row.name} {row.settings[key]}" for row in rows if key in row.settings)
        lines.append(f"{key}: {', '.join(values)}")
    wrapper = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    wrapped = [part for line in lines for part in wrapper.wrap(line)]
    return "\n".join([_draw(rows, [], metric), "settings", *wrapped])


def _draw(rows: Sequence[RunRow], keys: Sequence[str], metric: str) -> str:
    head = ["run", *map(one_line, keys), "status", "steps", metric, "best", "at step", "reward before", "after", "time"]
    lines = [head]
    for row in rows:
        time = "" if row.seconds is None else format_duration(row.seconds)
        numbers = [row.steps, row.final, row.best, row.best_step, row.reward_before, row.reward_after]
        cells = [*map(_cell, numbers)]
        if row.steps is not None and row.final is None:
            cells[1] = "n/a"
        texts_of_row = map(one_line, (row.name, *(row.settings.get(key, "") for key in keys)))
        lines.append([*texts_of_row, row.status, *cells, time])
    details = [one_line(f"{row.name}: {_cut(' '.join(row.detail.split()))}") for row in rows if row.detail]
    return "\n".join(align(lines, left=2 + len(keys)) + details)


def _cut(text: str) -> str:
    return text if len(text) <= _DETAIL_LENGTH else f"{text[: _DETAIL_LENGTH - 1]}…"


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _read_row(name: str, root: Path, metric: str, better: Callable[..., float]) -> tuple[RunRow, Mapping[str, str]]:
    """Return a run's row, whose settings are the overrides or else the whole configuration; and the overrides alone."""
    outcome = read_outcome(root)
    status, detail = outcome.status, outcome.detail
    needed = ("step", metric, "rewards/total/mean", "time/step_s")
    rows: list[dict[str, Any]] = []
    problems = []
    try:
        # Keep only the metrics that are shown: a long run has many.
        is_there = status is RunStatus.FINISHED or (root / "metrics.jsonl").exists()
        stored = iterate_rows(root / "metrics.jsonl") if is_there else iter(())
        rows.extend({key: row[key] for key in needed if key in row} for row in stored)
    except RunDirectoryError as error:
        problems.append(str(error))
    overrides = _split(outcome.overrides)
    settings: Mapping[str, str] = overrides
    try:
        from agent_tunix.config.compose import check_yaml

        # A run that failed at startup has no config.yaml.
        if status is RunStatus.FINISHED or (root / "config.yaml").exists():
            if overrides:
                overrides |= _describe_examples(check_yaml(root / "config.yaml"))
            settings = overrides or _read_config(root / "config.yaml")
    except ConfigError as error:
        problems.append(str(error))
    if problems:
        status, detail = RunStatus.UNREADABLE, problems[0].splitlines()[0]
    values = {row["step"]: float(row[metric]) for row in rows if _has_number(row, metric)}
    best = better(values.values()) if values else None
    before, after = compare_ends(
        [{"rewards/total/mean": row["rewards/total/mean"]} for row in rows if _has_number(row, "rewards/total/mean")]
    )
    row = RunRow(
        name,
        status,
        settings,
        steps=rows[-1]["step"] if rows else None,
        final=values[max(values)] if values else None,
        best=best,
        best_step=next((step for step, value in values.items() if value == best), None),
        reward_before=next(iter(before.values())),
        reward_after=next(iter(after.values())),
        seconds=sum(row["time/step_s"] for row in rows if _has_number(row, "time/step_s")) if rows else None,
        detail=detail,
    )
    return row, overrides


def _has_number(row: Mapping[str, Any], name: str) -> bool:
    return is_number(row.get(name))


def _read_config(path: Path) -> dict[str, str]:
    """Return the whole configuration of a run; raise ConfigError if the file is missing or damaged."""
    from agent_tunix.config.compose import from_yaml

    config = from_yaml(path)
    settings = {key: str(value) for key, value in flatten(vars(config)) if not _OWN_KEYS.match(key)}
    del settings[_EXAMPLES]
    return settings | _describe_examples({"prompt": {"few_shot": config.prompt.few_shot}})


def _describe_examples(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the worked examples as a setting: their number and a short hash. They depend on the seed if drawn."""
    prompt = config.get("prompt")
    examples = prompt.get("few_shot") if isinstance(prompt, Mapping) else None
    if not isinstance(examples, list) or not examples:
        return {}
    digest = hashlib.sha256(json.dumps(examples, sort_keys=True, default=str).encode()).hexdigest()
    return {_EXAMPLES: f"{len(examples)} ({digest[:6]})"}


def _split(overrides: Sequence[str]) -> dict[str, str]:
    pairs = (override.partition("=") for override in overrides)
    return {key.lstrip("+~"): value for key, _, value in pairs if not _OWN_KEYS.match(key.lstrip("+~"))}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of nested mappings and dataclasses; an empty mapping is a value."""
    for name, value in values.items():
        inner = vars(value) if hasattr(value, "__dataclass_fields__") else value
        if isinstance(inner, Mapping) and inner:
            yield from flatten(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which 2 comes before 10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
