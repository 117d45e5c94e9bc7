"""A few completions of a step, for people to read beside the curves: the best, the worst, and what failed."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_tunix.rewards import Sample, Score

LONGEST_TEXT = 2000


@dataclass(frozen=True)
class ShownSample:
    """A completion as trackers show it.

    Attributes:
        rank: Why it is shown: `best`, `worst` or `unscored`.
        rollout_id: Which completion of the run it is.
        prompt: The problem put to the model.
        response: What the model wrote.
        reference: The reference answer; "" for none.
        total: Its reward; None where it has none.
        advantage: Its advantage.
        components: Raw value of each component; None where one has no score.
        outcome: What became of the attempt to score it.
        detail: Why, for a person.
    """

    rank: str
    rollout_id: str
    prompt: str
    response: str
    reference: str
    total: float | None
    advantage: float
    components: Mapping[str, float | None]
    outcome: str
    detail: str


def choose_samples(
    samples: Sequence[Sample], scores: Sequence[Score], advantages: np.ndarray, num_samples: int
) -> list[ShownSample]:
    """The completions of a step that tell the most.

    Args:
        samples: The step's completions.
        scores: What the reward said of each.
        advantages: The advantage of each.
        num_samples: How many are shown at most.

    Returns:
        The best half, highest reward first, and the worst half, lowest first, the earliest of equals; unscored
        completions where there are not enough scored ones. Longer texts are cut to `LONGEST_TEXT` characters.
    """
    scored = [(score.value, index) for index, score in enumerate(scores) if score.value is not None]
    ascending = [index for _, index in sorted(scored)]
    descending = [index for _, index in sorted(scored, key=lambda entry: (-entry[0], entry[1]))]
    best = descending[: -(-num_samples // 2)]
    # Few completions, or many equal ones, may stand at both ends.
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
    """Completions as one block of Markdown code, in which nothing that a model or a dataset wrote can act.

    Every line is indented, which makes a block that no text within it can end: markup, links and images stay letters.
    """
    lines = [line for sample in shown for line in [*_lines(sample), ""]]
    return "\n".join(f"    {line}" for line in lines[:-1])


def _show(rank: str, sample: Sample, score: Score, advantage: float) -> ShownSample:
    return ShownSample(
        rank=rank,
        rollout_id=sample.rollout_id,
        prompt=_cut(sample.prompt),
        response=_cut(sample.response),
        reference=_cut(str(sample.answer)),
        total=score.value,
        advantage=advantage,
        components=dict(score.components),
        outcome=score.outcome.value,
        detail=_cut(score.detail),
    )


def _cut(text: str) -> str:
    text = text.encode(errors="replace").decode()  # a lone surrogate fits in no file
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
    """Without characters that control a page or a terminal; a line stays a line."""
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
