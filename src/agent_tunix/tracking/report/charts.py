"""The charts of a run, built once from its metrics and drawn twice, in the browser and as PNG.

A chart without values is left out, and so is a section without charts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.rewards import Outcome
from agent_tunix.tracking.report.curves import Curve, Curves, Rows
from agent_tunix.tracking.report.heat import heat_maps
from agent_tunix.tracking.report.pictures import Chart, Pictures, PlotLine, Section
from agent_tunix.tracking.summary import components_of

MAX_COMPONENTS = 40
MAX_PAIRS = 60
LAST_ROWS_SHARE = 0.25
_CONFLICTS = "rewards/conflicts/"


# Key → title, and the question that the section answers.
SECTIONS = {
    "rewards": ("Reward", "The reward of the policy, and its accuracy on held-out problems."),
    "components": (
        "Components",
        "Each component on its own scale: the mean of each step and, where logged, a band with the"
        " middle 80\u00a0% of its completions.",
    ),
    "gradient": (
        "What drove the gradient",
        "A component only moves the policy if it distinguishes between completions of the same prompt.",
    ),
    "distributions": (
        "Distributions over time",
        "Each column is the histogram of a step: a stronger colour means more completions with that value.",
    ),
    "policy": ("Policy", "Size of the updates, and distance from the reference policy."),
    "completions": ("Completions", "Length and variety of the completions."),
    "outcomes": ("Outcomes", "Completions that could not be scored, and groups without a learning signal."),
    "logged": ("Logged by rewards", "Metrics that the rewards reported."),
    "time": ("Time", "Time of each step by phase."),
}


def draw_up(rows: Rows, order: Sequence[str] = ()) -> Pictures:
    """Return all charts of a run.

    Args:
        rows: Returns the metrics of the run row by row; called several times.
        order: Order of the components; those it does not name come last.
    """
    first = next((row for row in rows() if components_of(row)), {})
    curves = curves_for(first)
    for row in rows():
        curves.add(row)
    return draw_curves(curves, order, lambda charted: heat_maps(rows, curves, charted))


def curves_for(row: Mapping[str, Any]) -> Curves:
    """Return empty curves for a run; `row` is one of its rows that has components.

    With very many components each gets fewer points, so that the report stays small.
    """
    return Curves(num_points=max(30, min(200, 40_000 // (10 * len(components_of(row)) + 40))))


def draw_curves(
    curves: Curves,
    order: Sequence[str] = (),
    heats_of: Callable[[Sequence[str]], Mapping[str, Chart]] = lambda charted: {},
) -> Pictures:
    """Return the charts of a run's curves.

    Args:
        curves: Curves filled with the run's rows.
        order: Order of the components; those it does not name come last.
        heats_of: Returns heat maps of components, by name.
    """
    found = components_of(dict.fromkeys(curves.names()))
    places = {name: place for place, name in enumerate(order)}
    components = sorted(found, key=lambda name: places.get(name, len(places)))
    charted = components[:MAX_COMPONENTS]
    shop = _Shop(curves, charted)
    heats = heats_of(charted)
    charts = {
        "rewards": _reward_charts(shop, heats),
        "components": [shop.banded(name, f"rewards/{name}", index) for index, name in enumerate(charted)],
        "gradient": _gradient_charts(shop),
        "distributions": [heats[name] for name in charted if name in heats],
        "policy": _policy_charts(shop),
        "completions": _completion_charts(shop),
        "outcomes": _outcome_charts(shop),
        "logged": _logged_charts(shop),
        "time": _time_charts(shop),
    }
    sections = [Section(key, title, note, _present(charts[key])) for key, (title, note) in SECTIONS.items()]
    return Pictures(
        [section for section in sections if section.charts],
        components,
        len(components) - len(charted),
        _conflicts(curves, components),
        curves.rows_per_point,
    )


@dataclass
class _Shop:
    """Builder of the charts' lines from curves."""

    curves: Curves
    components: Sequence[str]
    _x: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._x = self.curves.steps

    def line(self, label: str, metric: str, colour: int = 0, *, spread: bool = False) -> list[PlotLine]:
        """Return a list with one line, or empty without values; `spread` adds the range of merged steps as a band."""
        curve = self.curves.get(metric)
        if curve is None:
            return []
        merged = spread and self.curves.rows_per_point > 1
        return self._without_gaps(label, curve, curve.low if merged else (), curve.high if merged else (), colour)

    def lines(self, metrics: Mapping[str, str], *, spread: bool = False) -> list[PlotLine]:
        """Return a line for each label and metric that has values, each in its own colour."""
        return [
            line
            for colour, (label, metric) in enumerate(metrics.items())
            for line in self.line(label, metric, colour, spread=spread)
        ]

    def banded(self, title: str, prefix: str, colour: int, *, note: str = "", wide: bool = False) -> Chart:
        """Return a chart of the mean, with a band between the 10th and 90th percentile if they are known."""
        mean = self.curves.get(f"{prefix}/mean")
        if mean is None:
            return Chart(title)
        low, high = self.curves.get(f"{prefix}/p10"), self.curves.get(f"{prefix}/p90")
        lines = self._without_gaps("mean", mean, low.y if low else (), high.y if high else (), colour)
        return Chart(title, note, lines=lines, wide=wide)

    def each(self, leaf: str) -> list[PlotLine]:
        """Return one line per component for the same metric."""
        return self.lines({name: f"rewards/{name}/{leaf}" for name in self.components})

    def _without_gaps(
        self,
        label: str,
        curve: Curve,
        low: Sequence[float | None],
        high: Sequence[float | None],
        colour: int,
    ) -> list[PlotLine]:
        """Leave out points without a value, so that a metric recorded every tenth step still makes a line."""
        there = [index for index, value in enumerate(curve.y) if value is not None]

        def pick(values: Sequence[Any]) -> list[Any]:
            return [values[index] for index in there] if len(values) else []

        return [PlotLine(label, pick(self._x), pick(curve.y), pick(low), pick(high), colour)]


def _reward_charts(shop: _Shop, heats: Mapping[str, Chart]) -> list[Chart]:
    accuracy = shop.lines(
        {
            "accuracy": "eval/accuracy",
            "partial accuracy": "eval/partial_accuracy",
            "format accuracy": "eval/format_accuracy",
            "pass@k": "eval/pass_at_k",
        }
    )
    held_out = shop.lines({name: f"eval/rewards/{name}/mean" for name in ("total", *shop.components)})
    return [
        shop.banded(
            "Total reward",
            "rewards/total",
            0,
            note="Mean of each step; the band, where logged, contains the middle 80\u00a0% of completions.",
            wide=True,
        ),
        Chart("Held-out accuracy", "Share of held-out problems answered correctly.", unit="percent", lines=accuracy),
        Chart("Held-out reward", "Reward of completions of held-out problems.", lines=held_out),
        Chart(
            "Supervised loss",
            "Nats per target token.",
            lines=shop.lines({"training": "sft/loss", "held out": "eval/sft/loss"}),
        ),
        Chart(
            "Preference accuracy",
            "Share of pairs whose chosen response has the higher reward.",
            unit="percent",
            lines=shop.lines({"training": "prefer/accuracy", "held out": "eval/prefer/accuracy"}),
        ),
        Chart(
            "Preference loss",
            "Mean over pairs.",
            lines=shop.lines({"training": "prefer/loss", "held out": "eval/prefer/loss"}),
        ),
        heats.get("total", Chart("")),
    ]


def _gradient_charts(shop: _Shop) -> list[Chart]:
    return [
        Chart(
            "Share of the advantage",
            "Share of the advantages' variance within groups that comes from each component. The shares sum to"
            " 100\u00a0%; a component with a negative share works against the total.",
            kind="stack",
            unit="percent",
            lines=shop.each("advantage_share"),
            wide=True,
        ),
        Chart("Effective weights", "Factor of each component in the total.", lines=shop.each("weight")),
        Chart(
            "Conflict with the rest",
            "Share of completions on which a component opposes the rest of the total.",
            unit="percent",
            lines=shop.each("conflict_share"),
        ),
        Chart(
            "Correlation with length",
            "+1: longer responses have higher values; -1: shorter ones.",
            lines=shop.each("length_correlation"),
        ),
        Chart(
            "Gate shut",
            "Completions that did not meet a component's requirement.",
            lines=[line for line in shop.each("gate_shut") if any(line.y)],
        ),
    ]


def _policy_charts(shop: _Shop) -> list[Chart]:
    return [
        Chart("KL from the reference", lines=shop.line("KL", "policy/kl", 0, spread=True)),
        Chart(
            "Entropy",
            "Nats per token; near zero, the policy no longer explores.",
            lines=shop.line("entropy", "policy/entropy", 1, spread=True),
        ),
        Chart(
            "Gradient norm", "Before clipping.", lines=shop.line("gradient norm", "policy/grad_norm", 2, spread=True)
        ),
        Chart(
            "Clipped ratios",
            "Share of tokens whose importance ratio was clipped.",
            unit="percent",
            lines=shop.line("clipped", "policy/clip_share", 3, spread=True),
        ),
        Chart("Loss", lines=shop.line("loss", "policy/loss", 4, spread=True)),
        Chart("Learning rate", lines=shop.line("learning rate", "policy/learning_rate", 5)),
    ]


def _completion_charts(shop: _Shop) -> list[Chart]:
    lengths = [
        *shop.line("mean", "completions/length_mean", 0, spread=True),
        *shop.line("longest", "completions/length_max", 1),
    ]
    shares = [
        *shop.line("cut at the limit", "completions/clipped_share", 1),
        *shop.line("distinct", "completions/distinct_share", 2),
        *shop.line("duplicates", "completions/duplicate_share", 3),
    ]
    noise = shop.line("std", "completions/duplicate_score_std", 4)
    return [
        Chart("Length", "Tokens.", lines=lengths),
        Chart("Cut, distinct, duplicate", "Shares of a step's completions.", unit="percent", lines=shares),
        Chart(
            "Noise of the reward", "Standard deviation of the totals of identical responses to one prompt.", lines=noise
        ),
    ]


def _outcome_charts(shop: _Shop) -> list[Chart]:
    metrics = {outcome.replace("_", " "): f"rewards/outcomes/{outcome}" for outcome in Outcome}
    outcomes = [line for line in shop.lines(metrics) if line.name != Outcome.SCORED and any(line.y)]
    kinds = {"all_highest": "all highest", "all_lowest": "all lowest", "tied": "tied between", "unscored": "unscored"}
    dead = shop.lines({label: f"rewards/groups/{leaf}" for leaf, label in kinds.items()}) or shop.line(
        "dead", "rewards/dead_groups"
    )
    rows = shop.lines({leaf: f"sampling/rows/{leaf}" for leaf in ("useful", "easy", "hopeless", "unseen")})
    return [
        Chart(
            "Rows by pass rate",
            "Training rows that the policy always solves (easy), never solves (hopeless) or solves sometimes (useful),"
            " and rows not drawn yet.",
            kind="stack",
            unit="percent",
            lines=rows,
        ),
        Chart("Not scored", "Completions per step, by outcome.", kind="stack", lines=outcomes),
        Chart(
            "Dead groups",
            "Groups whose completions all have the same total and therefore give no learning signal.",
            kind="stack",
            unit="percent",
            lines=dead,
        ),
    ]


def _logged_charts(shop: _Shop) -> list[Chart]:
    charts = []
    for index, component in enumerate(shop.components):
        for inner in ("components", "logged"):
            prefix = f"rewards/{component}/{inner}/"
            for name in [name for name in shop.curves.names() if name.startswith(prefix)][:MAX_COMPONENTS]:
                title = f"{component}: {name.removeprefix(prefix)}"
                charts.append(Chart(title, lines=shop.line("mean", name, index, spread=True)))
    return charts[:MAX_COMPONENTS]


def _time_charts(shop: _Shop) -> list[Chart]:
    parts = shop.lines({part: f"time/{part}_s" for part in ("rollout", "reward", "update")})
    return [
        Chart("Seconds per step", kind="stack", unit="seconds", lines=parts),
        Chart("Tokens per second", lines=shop.line("tokens", "throughput/tokens_per_s", 3)),
    ]


def _present(charts: Iterable[Chart]) -> list[Chart]:
    """Return the charts that have something to show."""
    return [chart for chart in charts if chart.heat is not None or any(line.y for line in chart.lines)]


def _conflicts(curves: Curves, components: Sequence[str]) -> list[tuple[str, str, float]]:
    """Return every pair's mean share of conflicts over the last quarter of the run, largest first."""
    known = set(components)
    pairs = []
    for name in curves.names():
        both = name.removeprefix(_CONFLICTS).split("/") if name.startswith(_CONFLICTS) else []
        # A component's name may contain a slash, so the metric's name alone does not determine the pair.
        for place in range(1, len(both)):
            first, second = "/".join(both[:place]), "/".join(both[place:])
            if first not in known or second not in known or (curve := curves.get(name)) is None:
                continue
            last = [value for value in curve.y[int(len(curve.y) * (1 - LAST_ROWS_SHARE)) :] if value is not None]
            if last:
                pairs.append((first, second, sum(last) / len(last)))
    return sorted(pairs, key=lambda pair: -pair[2])[:MAX_PAIRS]
