"""What a report draws, as plain values: a chart knows its lines, and not whether a browser or Matplotlib draws it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SIGNIFICANT = 5


@dataclass(frozen=True)
class PlotLine:
    """One curve of a chart.

    Attributes:
        name: What it shows.
        x: Steps, of shape [n].
        y: Values, of shape [n]; None where there is none.
        low: Lower edge of the band around it, of shape [n]; empty: no band.
        high: Upper edge.
        colour: Number of its colour, so that a component has the same one in every chart.
    """

    name: str
    x: Sequence[int]
    y: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    colour: int = 0


@dataclass(frozen=True)
class Heat:
    """Histograms side by side.

    Attributes:
        x: The last step of each column, of shape [n].
        edges: Of the bins, of shape [m + 1].
        shares: Share of the completions of a column that lie in a bin, of shape [n, m]; None where there is none.
    """

    x: Sequence[int]
    edges: Sequence[float]
    shares: Sequence[Sequence[float] | None]


@dataclass(frozen=True)
class Chart:
    """A picture with one axis of steps.

    Attributes:
        title: What it shows.
        note: How to read it, in a sentence or two; "" where the title says all.
        kind: `line`, `stack` (areas upon each other) or `heat`.
        unit: `number`, `percent` (values are shares) or `seconds`.
        wide: Whether it takes a row of its own.
    """

    title: str
    note: str = ""
    kind: Literal["line", "stack", "heat"] = "line"
    unit: Literal["number", "percent", "seconds"] = "number"
    lines: Sequence[PlotLine] = ()
    heat: Heat | None = None
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """Charts under one heading.

    Attributes:
        key: For links and for the PNG's name.
        title: The heading.
        note: What the section answers.
        charts: At least one.
    """

    key: str
    title: str
    note: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Pictures:
    """All that is drawn of a run.

    Attributes:
        sections: In the order of the page.
        components: Names, in the mixture's order.
        components_left_out: How many components have no chart of their own, there being too many.
        conflicts: Pairs of components and the share of completions on which they pull apart, greatest first.
        rows_per_point: How many steps a point of a curve stands for, at most.
    """

    sections: Sequence[Section]
    components: Sequence[str]
    components_left_out: int
    conflicts: Sequence[tuple[str, str, float]]
    rows_per_point: int


def chart_to_data(chart: Chart) -> dict[str, Any]:
    """A chart as JSON says it to `charts.js`."""
    return {
        "title": chart.title,
        "note": chart.note,
        "kind": chart.kind,
        "unit": chart.unit,
        "wide": chart.wide,
        "lines": [_line(line) for line in chart.lines],
        "heat": None if chart.heat is None else _heat(chart.heat),
    }


def _line(line: PlotLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "x": list(line.x),
        "y": _rounded(line.y),
        "low": _rounded(line.low),
        "high": _rounded(line.high),
        "colour": line.colour,
    }


def _heat(heat: Heat) -> dict[str, Any]:
    shares = [None if column is None else [round(share, 3) for share in column] for column in heat.shares]
    return {"x": list(heat.x), "edges": _rounded(heat.edges), "shares": shares}


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    """As exact as anyone can see, and half as long."""
    return [None if value is None else float(f"{value:.{SIGNIFICANT}g}") for value in values]
