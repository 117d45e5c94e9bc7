"""Charts of a report as plain values, independent of what draws them: a browser or Matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SIGNIFICANT = 5


@dataclass(frozen=True)
class PlotLine:
    """One curve of a chart.

    Attributes:
        x: [n] steps.
        y: [n] values; None where there is none.
        low: [n] lower edge of the band around it; empty for no band.
        high: [n] upper edge.
        colour: Index of its colour; a component has the same one in every chart.
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
        x: [n] last step of each column.
        edges: [m + 1] edges of the bins.
        shares: [n, m] share of a column's completions in each bin; None for a column without data.
    """

    x: Sequence[int]
    edges: Sequence[float]
    shares: Sequence[Sequence[float] | None]


@dataclass(frozen=True)
class Chart:
    """A picture with steps on its x axis.

    Attributes:
        note: How to read it, in a sentence or two; "" if the title is enough.
        unit: `number`, `percent` (values are shares) or `seconds`.
        wide: True if it has a row of its own.
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
        note: The question that the section answers.
    """

    key: str
    title: str
    note: str
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Pictures:
    """All charts of a run.

    Attributes:
        components: Names in the mixture's order.
        components_left_out: Number of components beyond the limit, which have no chart of their own.
        conflicts: Pairs of components and the share of completions on which they pull apart, largest first.
        rows_per_point: Maximum number of steps behind a point of a curve.
    """

    sections: Sequence[Section]
    components: Sequence[str]
    components_left_out: int
    conflicts: Sequence[tuple[str, str, float]]
    rows_per_point: int


def chart_to_data(chart: Chart) -> dict[str, Any]:
    """Return a chart as JSON data for `charts.js`."""
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
    """Round to the precision that a chart can show, which halves the size."""
    return [None if value is None else float(f"{value:.{SIGNIFICANT}g}") for value in values]
