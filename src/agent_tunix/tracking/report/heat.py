"""Histograms over time: histograms of single steps on common bins, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.tracking.report.curves import Curves, Rows
from agent_tunix.tracking.report.pictures import Chart, Heat, PlotLine

HEAT_BINS = 20
HEAT_CELLS = 36_000
HEAT_COLUMNS = 100


def heat_maps(rows: Rows, curves: Curves, components: Sequence[str]) -> dict[str, Chart]:
    """Return heat maps of the total and each component, by name, thinned out to a limited number of columns."""
    edges = {}
    for name in ("total", *components):
        low, high = curves.span(f"rewards/{name}/min"), curves.span(f"rewards/{name}/max")
        if low and high:
            least, most = low[0], high[1]
            margin = 0.0 if least < most else max(abs(least), 1.0) / 2
            edges[name] = np.linspace(least - margin, most + margin, HEAT_BINS + 1)
    columns = max(10, min(HEAT_COLUMNS, HEAT_CELLS // (HEAT_BINS * max(1, len(edges)))))
    stride = max(1, -(-curves.num_rows // columns))
    steps: dict[str, list[int]] = {name: [] for name in edges}
    found: dict[str, list[Any]] = {name: [] for name in edges}
    for number, row in enumerate(rows()):
        if number % stride and stride > 1:
            continue
        for name in edges:
            if f"rewards/{name}/histogram" in row:
                steps[name].append(row["step"])
                found[name].append(_equal_as_one(row, name))
    maps = {}
    for index, name in enumerate(edges):
        shares = rebin(found[name], edges[name])
        if any(share is not None for share in shares):
            heat = Heat(steps[name], edges[name].tolist(), shares)
            title, colour = ("Distribution of the total", 0) if name == "total" else (name, index - 1)
            maps[name] = Chart(title, kind="heat", heat=heat, lines=[PlotLine(title, [], [], colour=colour)])
    return maps


def _equal_as_one(row: Mapping[str, Any], name: str) -> Any:
    """Return a histogram; if all values are equal, as a single bin without NumPy's added width."""
    histogram = row[f"rewards/{name}/histogram"]
    low, high = row.get(f"rewards/{name}/min"), row.get(f"rewards/{name}/max")
    if histogram is not None and low is not None and low == high:
        return {"counts": [sum(histogram["counts"])], "edges": [low, high]}
    return histogram


def rebin(histograms: Sequence[Mapping[str, Any] | None], edges: NDArray[np.float64]) -> list[list[float] | None]:
    """Convert histograms with their own edges to shares of common bins.

    A bin that overlaps several common ones is divided among them in proportion to the overlap. A bin without width,
    which holds equal values, goes to the common bin that contains it.

    `histograms`: Each `{"counts": [n], "edges": [n + 1]}`, or None.
    `edges`: [m + 1] increasing edges of the common bins.

    Returns:
        For each histogram, m shares that sum to 1; None if there is none or it is empty.
    """
    return [None if histogram is None else _rebin_one(histogram, edges) for histogram in histograms]


def _rebin_one(histogram: Mapping[str, Any], edges: NDArray[np.float64]) -> list[float] | None:
    counts = np.asarray(histogram["counts"], dtype=np.float64)
    if not counts.sum() > 0:
        return None
    own = np.asarray(histogram["edges"], dtype=np.float64)
    shares = np.zeros(len(edges) - 1)
    for count, low, high in zip(counts, own[:-1], own[1:], strict=True):
        if not count:
            continue
        low, high = np.clip((low, high), edges[0], edges[-1])
        overlap = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None)
        if (width := overlap.sum()) > 0:
            shares += count * overlap / width
        else:
            shares[min(int(np.searchsorted(edges, low, side="right")) - 1, len(shares) - 1)] += count
    return [float(share) for share in shares / counts.sum()]
