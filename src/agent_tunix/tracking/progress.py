"""Progress of a run: a live bar on a terminal, a curve in a notebook, plain lines elsewhere."""

import contextlib
import errno
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TextIO

from agent_tunix.closing import Closing
from agent_tunix.tracking.notebook import NotebookDisplay, is_notebook

PLAIN_INTERVAL_S = 5.0
PACE_WINDOW = 20

Clock = Callable[[], float]


class Display(Protocol):
    """A display of one line of text about the steps done."""

    def show(self, step: int, line: str, *, important: bool, value: float | None = None) -> None:
        """Show the state after a step; an important one should not be skipped.

        Args:
            step: Steps done.
            line: The state.
            important: True after an evaluation and after the last step.
            value: The step's mean reward, or the loss of a supervised start; None if it has none.
        """
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


class Progress(Closing):
    """Progress of a run: steps done, results and the time left.

    Args:
        mode: `tracking.progress`: live, plain, none, or auto, which is a curve in a notebook, live on a terminal and
            plain elsewhere.
        num_steps: Steps of the whole run.
        done: Steps done before this process started.
        stream: Output stream; None for standard output.
        clock: Returns seconds, used to estimate the time left.
    """

    def __init__(
        self,
        mode: str,
        num_steps: int,
        done: int = 0,
        stream: TextIO | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._num_steps = num_steps
        self._clock = clock
        self._display = _open_display(mode, num_steps, done, sys.stdout if stream is None else stream, clock)
        self._last_step = done
        self._times: deque[tuple[int, float]] = deque(maxlen=PACE_WINDOW)
        self._evaluated: tuple[int, str] | None = None

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show the state after a step, from the metrics of its row."""
        if step > self._last_step:
            self._last_step = step
            self._times.append((step, self._clock()))
        evaluated = any(name.startswith("eval/") for name in metrics)
        if "eval/accuracy" in metrics:
            accuracy = metrics["eval/accuracy"]
            self._evaluated = step, f"accuracy {'n/a' if accuracy is None else f'{accuracy:.1%}'}"
        if metrics.get("eval/accuracy") is None and (reward := metrics.get("eval/rewards/total/mean")) is not None:
            text = f"held-out reward {reward:.3f}"
            self._evaluated = step, f"accuracy n/a, {text}" if "eval/accuracy" in metrics else text
        if (share := metrics.get("eval/prefer/accuracy")) is not None:
            self._evaluated = step, f"preference accuracy {share:.1%}"
        parts = [f"step {step}/{self._num_steps}"]
        reward, loss = metrics.get("rewards/total/mean"), metrics.get("sft/loss", metrics.get("prefer/loss"))
        if reward is not None:
            parts.append(f"reward {reward:.3f}")
        if loss is not None:
            parts.append(f"loss {loss:.3f}")
        if self._evaluated is not None:
            at, text = self._evaluated
            parts.append(text if at == step else f"{text} at step {at}")
        if (speed := metrics.get("throughput/tokens_per_s")) is not None:
            parts.append(f"{speed:,.0f} tokens/s")
        if (seconds_left := self._seconds_left()) is not None:
            parts.append(f"{format_duration(seconds_left)} left")
        with _unless_terminal_is_closed():
            important, value = evaluated or step == self._num_steps, loss if reward is None else reward
            self._display.show(step, "  ".join(parts), important=important, value=value)

    def close(self) -> None:
        """Restore the terminal; another call does nothing."""
        with _unless_terminal_is_closed():
            self._display.close()

    def _seconds_left(self) -> float | None:
        """Return the time left at the pace of recent steps; the first step, which compiles, is not counted."""
        if len(self._times) < 2:
            return None
        (first, start), (last, end) = self._times[0], self._times[-1]
        return (end - start) / (last - first) * max(self._num_steps - last, 0)


@contextlib.contextmanager
def _unless_terminal_is_closed() -> Iterator[None]:
    """Ignore that a terminal was closed, of which SIGHUP tells the run."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


class LiveDisplay:
    """A bar at the bottom of a terminal; log messages scroll above it."""

    def __init__(self, num_steps: int, done: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._bar = Progress(
            BarColumn(bar_width=30),
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
            console=Console(file=stream),
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(f"step {done}/{num_steps}", total=num_steps, completed=done)
        self._bar.start()

    def show(self, step: int, line: str, *, important: bool, value: float | None = None) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=step, description=line, refresh=important)

    def close(self) -> None:
        """Stop the bar, leave it visible and restore the terminal."""
        self._bar.stop()


class PlainDisplay:
    """Occasional progress lines: the first, the important ones, one every few seconds, and the last."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._next_at = -float("inf")
        self._held_back: str | None = None

    def show(self, step: int, line: str, *, important: bool, value: float | None = None) -> None:
        """Print the line, or hold it back if the previous one is too recent."""
        self._held_back = line
        if important or self._clock() >= self._next_at:
            self._print()

    def close(self) -> None:
        """Print the last line if it was held back."""
        self._print()

    def _print(self) -> None:
        if self._held_back is None:
            return
        with contextlib.suppress(BrokenPipeError):  # the reader of the pipe has gone
            print(self._held_back, file=self._stream, flush=True)
        self._held_back = None
        self._next_at = self._clock() + PLAIN_INTERVAL_S


class NoDisplay:
    """A display that shows nothing."""

    def show(self, step: int, line: str, *, important: bool, value: float | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def format_duration(seconds: float) -> str:
    """Format seconds as `0:07`, `12:30` or `1:02:03`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _open_display(mode: str, num_steps: int, done: int, stream: TextIO, clock: Clock) -> Display:
    if mode == "auto" and is_notebook():
        return NotebookDisplay(f"step {done}/{num_steps}")
    if mode == "auto":
        mode = "live" if stream.isatty() and os.environ.get("TERM") != "dumb" else "plain"
    if mode == "live":
        return LiveDisplay(num_steps, done, stream)
    return PlainDisplay(stream, clock) if mode == "plain" else NoDisplay()
