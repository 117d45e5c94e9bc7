"""A few completions of a step, shown beside the curves: the best, the worst, and unscored ones."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_tunix.rewards import Sample, Score

LONGEST_TEXT = 2000


@dataclass(frozen=True)
class ShownSample:
    """A completion as trackers show it."""

    rank: str  # why it is shown: `best`, `worst` or `unscored`
    rollout_id: str  # identifies the completion within the run
    prompt: str
    response: str
    reference: str  # the reference answer; "" without one
    total: float | None  # its reward; None if unscored
    advantage: float
    components: Mapping[str, float | None]  # raw value of each component; None for a component without a score
    outcome: str
    detail: str  # the reason for the outcome, for people


def choose_samples(
    samples: Sequence[Sample], scores: Sequence[Score], advantages: np.ndarray, num_samples: int
) -> list[ShownSample]:
    """Choose the most informative completions of a step.

    Args:
        samples: Completions of the step.
        scores: Score of each completion.
        advantages: Advantage of each completion.
        num_samples: Maximum number of completions.

    Returns:
        The best half, highest reward first, and the worst half, lowest first; ties go to the earlier completion.
        Unscored completions fill up if there are too few scored ones. Long texts are cut to `LONGEST_TEXT` characters.
    """
    scored = [(score.value, index) for index, score in enumerate(scores) if score.value is not None]
    ascending = [index for _, index in sorted(scored)]
    descending = [index for _, index in sorted(scored, key=lambda entry: (-entry[0], entry[1]))]
    best = descending[: -(-num_samples // 2)]
    # With few completions, the same one can be among the best and the worst.
    worst = [index for index in ascending if index not in best][: num_samples - len(best)]
    failed = [index for index, score in enumerate(scores) if score.value is None]
    failed = failed[: num_samples - len(best) - len(worst)]
    ranked = [("best", best), ("worst", worst), ("unscored", failed)]
    return [
        _show(rank, samples[index], scores[index], float(advantages[index]))
        for rank, indices in ranked
        for index in indices
    ]


def to_markdown(shown: Sequence[ShownSample]) -> str:
    """Format completions as one Markdown code block, in which text from a model or a dataset has no effect.

    Every line is indented. No text can end such a block, so markup, links and images are shown literally.
    """
    lines = [line for sample in shown for line in [*_lines(sample), ""]]
    return "\n".join(f"    {line}" for line in lines[:-1])


def _show(rank: str, sample: Sample, score: Score, advantage: float) -> ShownSample:
    return ShownSample(
        rank=rank,
        rollout_id=sample.rollout_id,
        prompt=_cut(sample.prompt),
        response=_cut(sample.shown),
        reference=_cut(str(sample.answer)),
        total=score.value,
        advantage=advantage,
        components=dict(score.components),
        outcome=score.outcome.value,
        detail=_cut(score.detail),
    )


def _cut(text: str) -> str:
    text = text.encode(errors="replace").decode()  # a lone surrogate cannot be written to a file
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _lines(sample: ShownSample) -> list[str]:
    numbers = {"total": sample.total, "advantage": sample.advantage, **sample.components}
    head = [sample.rollout_id, sample.outcome, *(f"{name} {_number(value)}" for name, value in numbers.items())]
    texts: dict[str, Any] = {
        "prompt": sample.prompt,
        "response": sample.response,
        "reference": sample.reference,
        "detail": sample.detail,
    }
    lines = ["   ".join(_printable(part) for part in head)]
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines()):
            lines.append(f"{name if number == 0 else '':<9}  {_printable(line)}")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _printable(text: str) -> str:
    """Replace characters that control a page or a terminal, so that a line remains one line."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
