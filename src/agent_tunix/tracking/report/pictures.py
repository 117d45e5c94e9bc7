"""Charts of a report as plain values, independent of what draws them: a browser or Matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

SIGNIFICANT = 5


@dataclass(frozen=True)
class PlotLine:
    """One curve of a chart."""

    name: str
    x: Sequence[int]  # [n] steps
    y: Sequence[float | None]  # [n] values; None where there is none
    low: Sequence[float | None] = ()  # [n] lower edge of the band around it; empty for no band
    high: Sequence[float | None] = ()  # [n] upper edge
    colour: int = 0  # index of its colour; a component has the same one in every chart


@dataclass(frozen=True)
class Heat:
    """Histograms side by side."""

    x: Sequence[int]  # [n] last step of each column
    edges: Sequence[float]  # [m + 1] edges of the bins
    # [n, m] share of a column's completions in each bin; None for a column without data.
    shares: Sequence[Sequence[float] | None]


@dataclass(frozen=True)
class Chart:
    """A picture with steps on its x axis."""

    title: str
    note: str = ""  # how to read it, in a sentence or two; "" if the title is enough
    kind: Literal["line", "stack", "heat"] = "line"  # `line`, `stack` (stacked areas) or `heat`
    unit: Literal["number", "percent", "seconds"] = "number"  # `number`, `percent` (values are shares) or `seconds`
    lines: Sequence[PlotLine] = ()
    heat: Heat | None = None
    wide: bool = False  # True if it has a row of its own


@dataclass(frozen=True)
class Section:
    """Charts under one heading."""

    key: str
    title: str
    note: str  # the question that the section answers
    charts: Sequence[Chart]


@dataclass(frozen=True)
class Pictures:
    """All charts of a run."""

    sections: Sequence[Section]
    components: Sequence[str]  # names in the mixture's order
    components_left_out: int  # number of components beyond the limit, which have no chart of their own
    # Pairs of components and the share of completions on which they pull apart, largest first.
    conflicts: Sequence[tuple[str, str, float]]
    rows_per_point: int  # maximum number of steps behind a point of a curve


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
