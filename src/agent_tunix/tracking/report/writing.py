"""Writing of a run's report: `report.html`, `plots/*.png`, and the data behind them.

Rows and rollouts are read one step at a time, so memory does not grow with the length of the run. A run that is in
progress or was killed has a report of its steps so far.
"""

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.atomic_files import replacing, write_atomically
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.rewards import RewardAnalysis
from agent_tunix.tracking.findings_file import read_findings
from agent_tunix.tracking.metrics_file import iterate_rows
from agent_tunix.tracking.report.charts import draw_up
from agent_tunix.tracking.report.curves import Rows
from agent_tunix.tracking.report.heading import Ends, make_heading
from agent_tunix.tracking.report.page import render_page
from agent_tunix.tracking.report.pictures import Pictures
from agent_tunix.tracking.report.sampling import Chooser, Chosen
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.tracking.summary import components_of

# Most rollouts that are read: more would take longer than a minute.
MAX_READ = 200_000


def write_report(run: StoredRun, directory: Path, *, plots: bool = True, config: Config | None = None) -> Path:
    """Write `report.html` and `plots/`, each file atomically.

    Args:
        run: The run, as it is on disk now.
        directory: Output directory; created if it does not exist.
        plots: True to draw the charts as PNG too, which takes most of the time.
        config: The run's configuration; None to read it from disk.

    Returns:
        Path of the page.
    """
    config, rows = config or run.config, _rows_of(run)
    findings = _latest_findings(run)
    ends = Ends()
    spans: dict[str, tuple[float, float]] = {}
    for row in rows():
        ends.add(row)
        _widen(spans, row)
    rollouts = RolloutReader(run.rollouts.directory, skips_damaged=True)
    first = next(rollouts.iterate(), None)
    # Rows name the components in alphabetical order; scores keep the mixture's order.
    order = list(first.scores[0].terms) if first and first.scores else []
    pictures = draw_up(rows, order)
    wanted = {str(name) for finding in findings for name in finding["rollout_ids"]}
    chooser = Chooser(pictures.components, spans, wanted)
    planned_steps = None
    num_stored = rollouts.num_completions()
    for stored in rollouts.iterate(_steps_to_read(rollouts, num_stored, wanted)):
        chooser.add(stored.samples, stored.scores, stored.advantages, stored.turn_advantages, stored.step)
        planned_steps = stored.samples[0].max_steps if stored.samples else planned_steps
    chosen = chooser.choose()
    heading = make_heading(
        str(run.root),
        config,
        _or_empty(lambda: run.environment),
        str(_or_empty(lambda: run.fingerprint).get("hash", "")),
        pictures.components or order,
        ends,
        planned_steps,
        num_stored,
        chosen.num_failed / max(1, chosen.num_seen),
    )
    described = _describe_choice(chosen, num_stored, config.rollouts.share) + _describe_damage(rollouts.damaged)
    html = render_page(heading, findings, pictures, chosen, described)
    page = directory / "report.html"
    write_whole(page, html.encode())
    if plots:
        _write_plots(pictures, directory / "plots")
    return page


def write_analysis(run: StoredRun, directory: Path) -> Path:
    """Write the data behind the report: `reward_analysis.json` and `curves.csv`.

    The first has mean, variance and skew of the total and each component over every stored rollout of the run, the
    rollouts with the highest and lowest rewards, failures by outcome, the findings, and `covers`, the number of
    completions behind all this. The second has every number of metrics.jsonl, one row per step.

    Args:
        run: The run, as it is on disk now.
        directory: Output directory; created if it does not exist.

    Returns:
        Path of the JSON file.

    Raises:
        RunDirectoryError: The run cannot be read or has too many metrics, or the directory cannot be written.
    """
    analysis = RewardAnalysis()
    steps = completions = 0
    rollouts = RolloutReader(run.rollouts.directory, skips_damaged=True)
    for stored in rollouts.iterate():
        analysis.add(stored.samples, stored.scores, stored.step)
        steps += 1
        completions += len(stored.samples)
    covers: dict[str, Any] = {"steps": steps, "completions": completions, "share_stored": run.config.rollouts.share}
    if rollouts.damaged:
        covers["damaged_files"] = [file.name for file in rollouts.damaged]
    report = analysis.report() | {"covers": covers, "findings": _latest_findings(run)}
    path = directory / "reward_analysis.json"
    write_whole(path, (json.dumps(report, indent=1, default=str) + "\n").encode("utf-8", "replace"))
    _write_curves(_rows_of(run), directory / "curves.csv")
    return path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically; its directory is created if it does not exist.

    Raises:
        RunDirectoryError: The disk is full or the directory cannot be written.
    """
    try:
        write_atomically(path, content)
    except OSError as error:
        remedy = "free some space, correct the permissions, or choose another directory with --to"
        raise RunDirectoryError(
            f"{path} cannot be written: {error.strerror}; {remedy}", code="unwritable_directory"
        ) from error


def _rows_of(run: StoredRun) -> Rows:
    path = run.root / "metrics.jsonl"
    return lambda: iterate_rows(path) if path.exists() else iter(())


def _or_empty(read: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the value of `read`, or an empty dict if a run killed early did not write its file."""
    try:
        return read()
    except (RunDirectoryError, ConfigError):
        return {}


def _widen(spans: dict[str, tuple[float, float]], row: Mapping[str, Any]) -> None:
    """Extend the minimum and maximum of each component by a row."""
    for component in components_of(row):
        low, high = row.get(f"rewards/{component}/min"), row.get(f"rewards/{component}/max")
        if low is not None and high is not None:
            least, most = spans.get(component, (low, high))
            spans[component] = (min(least, low), max(most, high))


def _steps_to_read(rollouts: RolloutReader, num_stored: int, wanted: Iterable[str]) -> set[int] | None:
    """Return the steps to read of a very long run: every n-th, those of wanted rollouts, and the last; else None."""
    if num_stored <= MAX_READ:
        return None
    steps = rollouts.steps()
    named = {int(first) for first in (name.partition("_")[0] for name in wanted) if first.isdecimal()}
    return {*steps[:: -(-num_stored // MAX_READ)], *named, steps[-1]}


def _describe_damage(files: Sequence[Path]) -> str:
    if not files:
        return ""
    return f" Left out, because they cannot be read: {', '.join(file.name for file in files)}."


def _describe_choice(chosen: Chosen, num_stored: int, share: float) -> str:
    if not chosen.num_seen:
        return "No rollouts are stored." if share else "No rollouts are stored: rollouts.share is 0."
    stored = f" The run stored {share:.0%} of its groups." if share < 1 else ""
    if len(chosen.records) == num_stored:
        return f"All {num_stored:,} stored rollouts.{stored}"
    passed_over = ""
    if chosen.num_seen < num_stored:
        passed_over = f" They were chosen among {chosen.num_seen:,}, from steps spread evenly over the run."
    share_shown = f"{100 * len(chosen.records) / num_stored:.2g}\u00a0%"
    return (
        f"{len(chosen.records):,} of {num_stored:,} stored rollouts ({share_shown}): those named by findings, the"
        " highest, the lowest, the newest, those on which components disagree most, the newest failures, and whole"
        f" groups drawn at random.{passed_over}{stored}"
    )


def _write_plots(pictures: Pictures, directory: Path) -> None:
    from agent_tunix.tracking.report.plots import draw_section

    written = set()
    for section in pictures.sections:
        path = directory / f"{section.key}.png"
        write_whole(path, draw_section(section))
        written.add(path)
    with contextlib.suppress(OSError):  # remove plots of an earlier report
        for stale in set(directory.glob("*.png")) - written:
            stale.unlink()


def _write_curves(rows: Rows, path: Path) -> None:
    """Write every number of the rows, one column per metric."""
    names: dict[str, None] = {}
    for row in rows():
        names.update(dict.fromkeys(name for name, value in row.items() if _is_number(value)))
    try:
        with replacing(path) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
            writer = csv.DictWriter(text, list(names), extrasaction="ignore")
            writer.writeheader()
            writer.writerows({name: row[name] for name in names if _is_number(row.get(name))} for row in rows())
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be written: {error.strerror}; free some space or correct the permissions",
            code="unwritable_directory",
        ) from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _latest_findings(run: StoredRun) -> list[dict[str, Any]]:
    """Return the latest version of each finding of the run, most urgent first, then earliest first."""
    latest = {(finding.name, finding.subject): finding for finding in read_findings(run.root / "findings.jsonl")}
    order = sorted(latest.values(), key=lambda finding: (finding.urgency, finding.step))
    return [finding.to_data() for finding in order]
