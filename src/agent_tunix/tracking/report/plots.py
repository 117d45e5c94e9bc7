"""Charts of a run as PNG files, drawn with Matplotlib; imported only when plots are written."""

import io
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from agent_tunix.tracking.report.pictures import Chart, PlotLine, Section

# After Okabe and Ito: distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#a17400", "#3a9bd8", "#6b4fa0", "#5c5c5c")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (10, 3)))
HEAT = LinearSegmentedColormap.from_list("heat", ["#ffffff", "#9cc9e8", "#0072b2", "#062a45"])
COLUMNS = 2
WIDTH, HEIGHT = 5.6, 3.1
DPI = 100
MAX_CHARTS = 24
# Matplotlib takes half a millisecond for each character.
LONGEST_LABEL = 200


def draw_section(section: Section) -> bytes:
    """Return a PNG with the first `MAX_CHARTS` charts of a section, two per row.

    A `matplotlibrc`, which Matplotlib also reads from the working directory, has no effect.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        return _draw_section(section)


def _draw_section(section: Section) -> bytes:
    charts = section.charts[:MAX_CHARTS]
    columns = min(COLUMNS, len(charts))
    rows = -(-len(charts) // columns)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), dpi=DPI)
    # Margins in inches, the same for every chart; Matplotlib's own layout takes longer than the drawing.
    figure.subplots_adjust(
        left=0.7 / (WIDTH * columns),
        right=1 - 0.15 / (WIDTH * columns),
        top=1 - 0.3 / (HEIGHT * rows),
        bottom=0.75 / (HEIGHT * rows),
        wspace=0.16,
        hspace=0.5,
    )
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for chart, place in zip(charts, axes, strict=False):
        _draw(chart, place)
    for place in list(figure.axes)[len(charts) :]:
        place.remove()
    png = io.BytesIO()
    with warnings.catch_warnings():
        # The font may lack the glyphs of a component's name.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(png, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 4})
    return png.getvalue()


def _draw(chart: Chart, axes: Axes) -> None:
    axes.set_title(_label(chart.title), fontsize=10, loc="left", parse_math=False)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("step", fontsize=8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if chart.unit == "percent":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    if chart.heat is not None:
        _draw_heat(chart, axes)
        return
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    if chart.kind == "stack":
        _draw_stack(chart.lines, axes)
    else:
        _draw_lines(chart.lines, axes)
    if len(chart.lines) > 1:
        legend = axes.legend(
            fontsize=7, frameon=False, ncols=min(4, len(chart.lines)), loc="upper left", bbox_to_anchor=(-0.02, -0.2)
        )
        for text in legend.get_texts():
            text.set_parse_math(False)


def _label(name: str) -> str:
    """Return a name as a label. Matplotlib leaves labels that start with an underscore out of the legend."""
    shown = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
    return f"\u200b{shown}" if shown.startswith("_") else shown


def _draw_lines(lines: Sequence[PlotLine], axes: Axes) -> None:
    for line in lines:
        colour = COLOURS[line.colour % len(COLOURS)]
        marker = "o" if len(line.x) < 3 else None
        dash = DASHES[line.colour // len(COLOURS) % len(DASHES)]
        axes.plot(
            line.x,
            _floats(line.y),
            color=colour,
            linestyle=dash,
            linewidth=1.5,
            marker=marker,
            markersize=3,
            label=_label(line.name),
        )
        if len(line.low):
            axes.fill_between(line.x, _floats(line.low), _floats(line.high), color=colour, alpha=0.18, linewidth=0)


def _draw_stack(lines: Sequence[PlotLine], axes: Axes) -> None:
    """Draw stacked areas, negative ones below zero."""
    x = sorted({step for line in lines for step in line.x})
    above, below = np.zeros(len(x)), np.zeros(len(x))
    for line in lines:
        values = dict(zip(line.x, line.y, strict=True))
        y = np.array([values.get(step) or 0.0 for step in x])
        base = np.where(y >= 0, above, below)
        colour = COLOURS[line.colour % len(COLOURS)]
        axes.fill_between(
            x, base, base + y, color=colour, alpha=0.8, linewidth=0.4, label=_label(line.name), step="mid"
        )
        above, below = above + np.clip(y, 0, None), below + np.clip(y, None, 0)


def _draw_heat(chart: Chart, axes: Axes) -> None:
    assert chart.heat is not None
    empty = [0.0] * (len(chart.heat.edges) - 1)
    shares = np.array([empty if column is None else column for column in chart.heat.shares]).T
    edges = np.arange(len(chart.heat.x) + 1)
    axes.pcolormesh(edges, chart.heat.edges, shares, cmap=HEAT, norm=PowerNorm(0.5, 0, 1))
    places = np.unique(np.linspace(0, len(chart.heat.x) - 1, min(6, len(chart.heat.x))).astype(int))
    axes.set_xticks(places + 0.5, [str(chart.heat.x[place]) for place in places])


def _floats(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]
