"""A table of a step's completions with their scores, for the log."""

from agent_tunix.grpo.step import StepResult
from agent_tunix.visible_text import one_line

_LONGEST_RESPONSE = 60


def scores_table(result: StepResult) -> str:
    """Return one line for each completion: its total, advantage, raw component values and the start of its text."""
    names = list(dict.fromkeys(name for score in result.scores for name in score.components))
    lines = [["rollout", "total", "advantage", *names, "response"]]
    for sample, score, advantage in zip(result.samples, result.scores, result.advantages, strict=True):
        text = one_line(sample.shown)
        shown = text if len(text) <= _LONGEST_RESPONSE else f"{text[: _LONGEST_RESPONSE - 1]}…"
        total = str(score.outcome) if score.value is None else f"{score.value:.4g}"
        components = (score.components.get(name) for name in names)
        cells = ("-" if value is None else f"{value:.4g}" for value in components)
        lines.append([sample.rollout_id, total, f"{advantage:.3f}", *cells, shown])
    *widths, _ = (max(map(len, column)) for column in zip(*lines, strict=True))
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]) for line in lines
    )
