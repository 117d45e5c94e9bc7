"""Top of a report: the run's identity, progress and improvement."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.config.data_sets import data_name
from agent_tunix.config.schema import Config
from agent_tunix.tracking.progress import format_duration
from agent_tunix.tracking.report.conversation import as_text
from agent_tunix.tracking.report.cutting import cut
from agent_tunix.tracking.summary import EVALUATED, ROW_LOSSES, STEPS_AVERAGED, compare_ends, unknown_figures

TITLE_COMPONENTS = 6
_LONGEST_PROMPT = 20_000
_FIRST_AND_LAST = (*EVALUATED.values(), "rewards/total/mean", *ROW_LOSSES)


@dataclass(frozen=True)
class Tile:
    """A figure in large type."""

    label: str
    value: str
    note: str = ""  # the value to compare it with; "" without one
    tone: str = ""  # `good`, `bad`, or ""


@dataclass(frozen=True)
class Heading:
    """The top of the page."""

    place: str
    reward: str  # the components, in short
    composition: Sequence[str]  # description of the reward, one line per component
    facts: Sequence[tuple[str, str]]
    tiles: Sequence[Tile]
    no_findings: str  # text to show if there are no findings
    prompt: str = ""  # the first prompt as the model saw it
    prompt_title: str = ""


class Ends:
    """Summary of the rows for a heading: first and last figures, steps and time."""

    def __init__(self) -> None:
        self._first: dict[str, list[dict[str, Any]]] = {name: [] for name in _FIRST_AND_LAST}
        self._last: dict[str, list[dict[str, Any]]] = {name: [] for name in _FIRST_AND_LAST}
        self._evaluation: Mapping[str, Any] = {}  # row of the last evaluation
        self.num_steps = 0
        self.seconds = 0.0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the next row."""
        self.num_steps = max(self.num_steps, row["step"])
        self.seconds += row.get("time/step_s") or 0.0
        self._evaluation = row if "eval/num_problems" in row else self._evaluation
        for name in _FIRST_AND_LAST:
            if row.get(name) is not None:
                only = {name: row[name]}
                if len(self._first[name]) < STEPS_AVERAGED:
                    self._first[name].append(only)
                else:
                    self._last[name] = [*self._last[name], only][-STEPS_AVERAGED:]

    def compare(self) -> tuple[dict[str, float | None], dict[str, float | None]]:
        """Return the values before and after, as `compare_ends` does."""
        return compare_ends([row for name in _FIRST_AND_LAST for row in (*self._first[name], *self._last[name])])

    def unknown(self, template: str) -> dict[str, str]:
        """Return label → reason of the figures that the last evaluation could not give."""
        return unknown_figures([self._evaluation], template)


def make_heading(
    place: str,
    config: Config,
    environment: Mapping[str, Any],
    fingerprint: str,
    components: Sequence[str],
    ends: Ends,
    planned_steps: int | None,
    num_completions: int,
    failed_share: float,
) -> Heading:
    """Return the heading of a run.

    Args:
        place: Directory of the run.
        config: The run's configuration.
        environment: Content of environment.json; empty if it is missing.
        fingerprint: Short hash of the reward; "" if unknown.
        components: Names of the reward's components.
        ends: Summary of the run's rows.
        planned_steps: Planned number of steps; None if unknown.
        num_completions: Number of stored completions.
        failed_share: Share of the completions read that were not scored.
    """
    of = f"of {planned_steps:,}" if planned_steps and planned_steps != ends.num_steps else ""
    tiles = [*_compared(ends, ends.unknown(config.prompt.format)), Tile("Steps", f"{ends.num_steps:,}", of)]
    if ends.num_steps and ends.seconds:
        took = f"{ends.seconds / ends.num_steps:.2g} s per step"
        tiles.append(Tile("Time in steps", format_duration(ends.seconds), took))
    if num_completions:
        failed = f"{100 * failed_share:.1f}\u00a0% not scored"
        note, tone = (failed, "bad") if failed_share else ("all scored", "")
        tiles.append(Tile("Completions stored", f"{num_completions:,}", note, tone))
    no_findings = "No findings were recorded during this run." if ends.num_steps else "No step has been recorded yet."
    facts = _facts(config, environment, fingerprint)
    composition = str(environment.get("reward") or config.training.reward_function).splitlines()
    shown = " + ".join(components[:TITLE_COMPONENTS]) + (" + …" if len(components) > TITLE_COMPONENTS else "")
    prompt, title = _prompt(environment)
    return Heading(place, shown or "No reward yet", composition, facts, tiles, no_findings, prompt, title)


def _prompt(environment: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first prompt as the model saw it, and its title; two empty texts without one."""
    stored = environment.get("first_prompt")
    if not isinstance(stored, Mapping) or not stored.get("text"):
        return "", ""
    title = f"A prompt as the model sees it: row {stored.get('row')}, {stored.get('num_tokens')} tokens"
    return cut(as_text(stored["text"]), _LONGEST_PROMPT), title


def _facts(config: Config, environment: Mapping[str, Any], fingerprint: str) -> list[tuple[str, str]]:
    facts = [
        ("Model", config.model.path or f"{config.model.model_family or ''} {config.model.model_size}".strip()),
        ("Data", data_name(config)),
        ("Batch", f"{config.training.batch_size} prompts × {config.grpo.num_generations} completions"),
        ("Advantages", config.grpo.advantage_scaling),
        ("Seed", str(config.seed)),
        ("Reward fingerprint", fingerprint),
        ("Started", str(environment.get("started", "")).replace("T", " ")),
        ("Devices", ", ".join(_counted(environment.get("devices", [])))),
    ]
    return [(label, value) for label, value in facts if value]


def _counted(devices: Iterable[Any]) -> list[str]:
    """Group equal devices: `8 × TPU v5`."""
    names = [str(device) for device in devices]
    return [f"{names.count(name)} × {name}" if names.count(name) > 1 else name for name in dict.fromkeys(names)]


def _compared(ends: Ends, unknown: Mapping[str, str]) -> list[Tile]:
    before, after = ends.compare()
    tiles = [Tile(_title(label), "n/a", reason) for label, reason in unknown.items() if label != "partial accuracy"]
    for label, first in before.items():
        last = after[label]
        if first is None or last is None or label in ("partial accuracy", *unknown):
            continue
        is_share = "accuracy" in label
        change = last - first
        tone = "good" if change > 0 else "bad" if change < 0 else ""
        by = f"{100 * change:+.1f} points" if is_share else f"{change:+.3g}"
        note = f"{by} from {_figure(first, is_share)}".replace("-", "−")
        tiles.append(Tile(_title(label), _figure(last, is_share), note, tone))
    return tiles


def _title(label: str) -> str:
    return "Mean reward" if label.startswith("reward,") else label[0].upper() + label[1:]


def _figure(value: float, is_share: bool) -> str:
    return (f"{100 * value:.1f}\u00a0%" if is_share else f"{value:.3g}").replace("-", "−")
