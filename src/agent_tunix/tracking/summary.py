"""Summary of a run: values before and after, in a short table."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_tunix.tracking.progress import format_duration
from agent_tunix.visible_text import align

STEPS_AVERAGED = 10

# Metrics of the quality of a policy, in the order of preference.
MEASURES = ("eval/accuracy", "eval/rewards/total/mean")

EVALUATED = {
    "accuracy": "eval/accuracy",
    "partial accuracy": "eval/partial_accuracy",
    "format accuracy": "eval/format_accuracy",
    "held-out reward": "eval/rewards/total/mean",
    "held-out loss of targets": "eval/sft/loss",
    "preference accuracy": "eval/prefer/accuracy",
}

# Losses of the methods that train by no reward.
ROW_LOSSES = ("sft/loss", "prefer/loss")


def compare_ends(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Compare the beginning and the end of a run.

    Args:
        rows: Metrics of the run, from `read_rows`.

    Returns:
        Two mappings from the same labels to values: the results of the first and last evaluation, and the mean reward
        over the first and last ten steps (the mean loss, if no reward trains). An unknown value is None, such as the
        result of an evaluation that could judge no completion.
    """
    before: dict[str, float | None] = {}
    after: dict[str, float | None] = {}
    for label, name in EVALUATED.items():
        if shares := [row[name] for row in rows if name in row]:
            before[label], after[label] = shares[0], shares[-1]
    losses = [leaf for leaf in ROW_LOSSES if any(leaf in row for row in rows)]
    name, leaf = ("loss", losses[0]) if losses else ("reward", "rewards/total/mean")
    values = [row[leaf] for row in rows if row.get(leaf) is not None]
    averaged = min(STEPS_AVERAGED, (len(values) + 1) // 2)
    # With other weights, the same completions earn something else.
    label = f"{name}, {averaged}-step mean{' (weights changed)' if _weights_changed(rows) else ''}"
    before[label] = statistics.fmean(values[:averaged]) if values else None
    after[label] = statistics.fmean(values[-averaged:]) if values else None
    return before, after


def reason_unknown(name: str, row: Mapping[str, Any], template: str) -> str:
    """Return the reason why a figure of an evaluation is null.

    Args:
        name: Metric, such as `eval/accuracy`.
        row: The row of the evaluation.
        template: The run's `prompt.format`.
    """
    from agent_tunix.rewards.builtin.form import has_tags  # commands that need no reason start faster

    if name.startswith(("eval/sft/", "eval/prefer/")):
        return "no held-out row can be used"
    if name.startswith("eval/format_accuracy") and not has_tags(template):
        return "prompt.format has no tags"
    counted = "eval/rewards/num_unscored" if name.startswith("eval/rewards/") else "eval/num_unscored"
    return f"{row.get(counted)} completions of {row.get('eval/num_problems')} problems have no score"


def unknown_figures(rows: Iterable[Mapping[str, Any]], template: str) -> dict[str, str]:
    """Return label → reason for each figure of `EVALUATED` that the last evaluation could not give."""
    last: Mapping[str, Any] = {}
    for row in rows:
        last = row if any(name.startswith("eval/") for name in row) else last
    return {
        label: reason_unknown(name, last, template)
        for label, name in EVALUATED.items()
        if name in last and last[name] is None
    }


def explain_unknown(unknown: Mapping[str, str]) -> list[str]:
    """Return one line for each reason of `unknown_figures`."""
    labels: dict[str, list[str]] = {}
    for label, reason in unknown.items():
        labels.setdefault(reason, []).append(label)
    return [f"{' and '.join(of_reason)}: n/a, because {reason}" for reason, of_reason in labels.items()]


def components_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the reward's components that a row has metrics of."""
    found = [
        name.removeprefix("rewards/").removesuffix("/weight")
        for name in row
        if name.startswith("rewards/") and name.endswith("/weight")
    ]
    # A reward chooses the names of what it logs, and may choose `weight`.
    return [name for name in found if "/logged/" not in f"{name}/" and "/components/" not in f"{name}/"]


def _weights_changed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a component's weight is not the same at both ends of a run."""
    weights = [{name: row[f"rewards/{name}/weight"] for name in components_of(row)} for row in rows]
    trained = [one for one in weights if one]
    return bool(trained) and trained[0] != trained[-1]


def summary_table(
    before: Mapping[str, float | None],
    after: Mapping[str, float | None],
    places: Mapping[str, Any],
    *,
    num_steps: int,
    seconds: float,
    resumed_after: int = 0,
    unknown: Mapping[str, str] | None = None,
) -> str:
    """Return the table printed at the end of a run.

    Args:
        before: Values by label, from `compare_ends`; labels with "accuracy" are shown in percent.
        after: Values at the end, by the same labels.
        places: Paths of the run's files, by label.
        num_steps: Number of the last step.
        seconds: Duration of the steps of this attempt.
        resumed_after: Step after which this attempt began.
        unknown: Label → reason of figures that are n/a, from `unknown_figures`.
    """
    lines = [("", "before", "after", "change")]
    for label, first in before.items():
        last = after[label]
        change = None if first is None or last is None else last - first
        percent = "accuracy" in label
        lines.append((label, _number(first, percent), _number(last, percent), _number(change, percent, sign="+")))
    duration = f"{num_steps - resumed_after} steps in {format_duration(seconds)}"
    if resumed_after:
        duration += f", resumed after step {resumed_after}"
    where = align([(label, str(place)) for label, place in places.items()])
    return "\n".join([*align(lines, left=1), *explain_unknown(unknown or {}), "", duration, *where])


def _number(value: float | None, percent: bool, sign: str = "") -> str:
    if value is None:
        return "n/a"
    return f"{100 * value:{sign}.1f} %" if percent else f"{value:{sign}.3f}"
