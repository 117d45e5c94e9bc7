"""Progress of a run in a notebook: a line of text and the curve of the reward, below the cell and redrawn in place.

Only this module knows IPython, and it uses it only if a notebook's kernel is running.
"""

import contextvars
import html
import sys
from collections.abc import Sequence
from typing import Any

_WIDTH, _HEIGHT = 640, 120
# More points than this are merged by their means, so that a cell's output stays small.
_MOST_POINTS = 300


def is_notebook() -> bool:
    """Return True if this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


class NotebookDisplay:
    """A display below the cell that started the run.

    Args:
        line: The first line of text.
    """

    def __init__(self, line: str) -> None:
        from IPython.display import display

        self._line = line
        self._values: list[tuple[int, float]] = []
        self._handle: Any = display(self, display_id=True)  # type: ignore[no-untyped-call]
        # A kernel finds the cell that output belongs to in the context of the thread.
        self._context = contextvars.copy_context()

    def show(self, step: int, line: str, *, important: bool, value: float | None = None) -> None:
        """Redraw the line, and the curve with the value of the step."""
        self._line = line
        if value is not None:
            self._values.append((step, value))
        self._context.run(self._handle.update, self)

    def close(self) -> None:
        """Leave the display as it is."""

    def __repr__(self) -> str:
        return self._line

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._line)}</pre>{_draw(self._values) if len(self._values) > 1 else ''}"


def _draw(values: Sequence[tuple[int, float]]) -> str:
    """Return the curve as SVG, with its lowest and highest value."""
    size = -(-len(values) // _MOST_POINTS)
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    points = [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]
    low, high = min(value for _, value in points), max(value for _, value in points)
    first, last = points[0][0], points[-1][0]
    across, up = _WIDTH / max(last - first, 1), (_HEIGHT - 20) / ((high - low) or 1.0)
    line = " ".join(f"{(step - first) * across:.1f},{_HEIGHT - 10 - (value - low) * up:.1f}" for step, value in points)
    labels = f'<text x="4" y="12">{high:.3f}</text><text x="4" y="{_HEIGHT - 2}">{low:.3f}</text>'
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" font-size="11" fill="gray">'
        f'<polyline points="{line}" fill="none" stroke="steelblue" stroke-width="1.5"/>{labels}</svg>'
    )
