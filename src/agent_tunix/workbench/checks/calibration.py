"""Comparison of two verifiers on the same completions: where they disagree, and how often each misses a right answer.

A verdict is *right* (at least the threshold), *wrong* (below it), *unread* (below it, because no answer could be read)
or *unscored* (no value: an error, a timeout, a bad reference). A verifier marks an unread answer by `extras={"parsed":
False}`, or by a detail such as "no answer" or "not a number".

If the truth is known, because the completions carry `label` or were generated from gold solutions, misses are counted
against it. Otherwise each verifier is measured against the other: of the completions that one accepts, the share that
the other rejects. That is only an estimate, no better than the verifier that serves as the reference.
"""

import enum
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_tunix.rewards.kinds import range_of
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.rounding import lowest_reaching
from agent_tunix.rewards.sample import Score
from agent_tunix.workbench.checks.forms import LabelledCompletion
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT
from agent_tunix.workbench.checks.report import shorten
from agent_tunix.workbench.checks.scoring import LATE_STEP, Scorer

_UNREAD = re.compile(
    r"\b(?:no (?:tagged )?(?:answer|number)|not a number|(?:could not|cannot) be (?:read|parsed)|unread)\b",
    re.IGNORECASE,
)
_Z = 1.959963984540054  # for a two-sided 95 % interval


class LabelVerdict(enum.StrEnum):
    """Verdict of a verifier on a completion."""

    RIGHT = "right"
    WRONG = "wrong"
    UNREAD = "unread"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % Wilson interval."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        """The share; NaN if `of` is 0."""
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval."""
        return wilson_interval(self.hits, self.of)

    def __str__(self) -> str:
        if not self.of:
            return "of none"
        low, high = self.interval
        return f"{self.hits} of {self.of} ({self.value:.1%}; 95 % interval {low:.1%} to {high:.1%})"

    def to_data(self) -> dict[str, Any]:
        """Return the counts and the interval as JSON data."""
        return {"hits": self.hits, "of": self.of, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A completion that one verifier accepts and the other does not."""

    completion: LabelledCompletion
    verdicts: tuple[LabelVerdict, LabelVerdict]
    scores: tuple[Score, Score]


@dataclass(frozen=True, slots=True)
class Misses:
    """Mistakes of a verifier: right completions that it does not accept, and wrong ones that it does."""

    verifier: str
    wrong: Rate  # right completions judged wrong: false negatives
    unread: Rate  # right completions whose answer could not be read: parse failures
    unscored: Rate  # right completions without a value
    accepted_wrongly: Rate  # wrong completions judged right: false positives


@dataclass(frozen=True, slots=True)
class Calibration:
    """Comparison of two verifiers."""

    names: tuple[str, str]
    thresholds: tuple[float, float]  # least value that each accepts
    # (verdict of the first, verdict of the second) → number of completions.
    confusion: Mapping[tuple[LabelVerdict, LabelVerdict], int]
    disagreements: tuple[Disagreement, ...]  # completions that only one of them accepts
    misses: tuple[Misses, Misses]
    truth: str  # truth for counting the mistakes: "labels" or "the other verifier"
    unused_labels: int = 0  # number of labels that are ignored because other completions have none

    @property
    def total(self) -> int:
        """Number of completions that both judged."""
        return sum(self.confusion.values())

    def text(self, most: int = 10) -> str:
        """Return the comparison as text for a terminal, with the first `most` disagreements in full."""
        first, second = self.names
        lines = [
            f"{self.total} completions; {first} accepts from {self.thresholds[0]:g}, "
            f"{second} from {self.thresholds[1]:g}",
            "",
            *_table(self.names, self.confusion),
            "",
            f"disagreements: {Rate(len(self.disagreements), self.total)}",
        ]
        for entry in self.disagreements[:most]:
            origin = f" [{entry.completion.origin}]" if entry.completion.origin else ""
            lines.append(
                f"  {shorten(entry.completion.response, 100)} (reference {entry.completion.problem.answer!r}){origin}"
            )
            for name, verdict, score in zip(self.names, entry.verdicts, entry.scores, strict=True):
                lines.append(f"    {name}: {verdict.value}{f' — {score.detail}' if score.detail else ''}")
        if len(self.disagreements) > most:
            lines.append(f"  and {len(self.disagreements) - most} more")
        lines += ["", f"against {self.truth}:"]
        if self.unused_labels:
            lines.append(
                f"  (a label is used only if every completion has one; {self.unused_labels} of {self.total} have)"
            )
        for misses in self.misses:
            lines += [
                f"  {misses.verifier}",
                f"    right, taken for wrong  {misses.wrong}",
                f"    right, not read         {misses.unread}",
                f"    right, not scored       {misses.unscored}",
                f"    wrong, taken for right  {misses.accepted_wrongly}",
            ]
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        return {
            "verifiers": list(self.names),
            "thresholds": list(self.thresholds),
            "completions": self.total,
            "confusion": [
                {"first": a.value, "second": b.value, "completions": n} for (a, b), n in self.confusion.items()
            ],
            "disagreements": [
                {
                    "response": entry.completion.response,
                    "answer": entry.completion.problem.answer,
                    "origin": entry.completion.origin,
                    "verdicts": [verdict.value for verdict in entry.verdicts],
                    "details": [score.detail for score in entry.scores],
                }
                for entry in self.disagreements
            ],
            "truth": self.truth,
            "misses": [
                {
                    "verifier": misses.verifier,
                    "taken_for_wrong": misses.wrong.to_data(),
                    "not_read": misses.unread.to_data(),
                    "not_scored": misses.unscored.to_data(),
                    "accepted_wrongly": misses.accepted_wrongly.to_data(),
                }
                for misses in self.misses
            ],
        }


def calibrate(
    first: Mixture,
    second: Mixture,
    completions: Sequence[LabelledCompletion],
    *,
    thresholds: tuple[float | None, float | None] = (None, None),
    template: str = DEFAULT_FORMAT,
    step: int = LATE_STEP,
    timeout_s: float = 5.0,
) -> Calibration:
    """Let two verifiers judge the same completions.

    A verifier accepts values from its threshold on. None means the top of its declared range, or without one the
    highest value that it gave. `timeout_s` limits a call in this process; workers have their own limit.

    Raises:
        HangingRewardError: A verifier repeatedly hangs or ends its process.
        RewardSignatureError: A verifier requires a column that the completions lack.
    """
    scores: list[list[Score]] = []
    limits: list[float] = []
    for mixture, threshold in zip((first, second), thresholds, strict=True):
        for completion in completions[:1]:
            mixture.check_parameters(completion.problem.columns)
        scorer = Scorer(mixture, step, template, timeout_s)
        scores.append(scorer.score_each([(completion.problem, completion.response) for completion in completions]))
        limits.append(_threshold(mixture, scores[-1], step) if threshold is None else threshold)
    judged = [[_verdict(score, limit) for score in threshold] for threshold, limit in zip(scores, limits, strict=True)]
    pairs = list(zip(judged[0], judged[1], strict=True))
    differing = [i for i, (a, b) in enumerate(pairs) if (a is LabelVerdict.RIGHT) != (b is LabelVerdict.RIGHT)]
    names = (first.name, second.name) if first.name != second.name else (f"{first.name} (1)", f"{second.name} (2)")
    labelled = bool(completions) and all(completion.label is not None for completion in completions)
    truths = [[bool(c.label) for c in completions]] * 2 if labelled else [_accepts(judged[1]), _accepts(judged[0])]
    return Calibration(
        names=names,
        thresholds=(limits[0], limits[1]),
        confusion=Counter(pairs),
        disagreements=tuple(Disagreement(completions[i], pairs[i], (scores[0][i], scores[1][i])) for i in differing),
        misses=(_misses(names[0], judged[0], truths[0]), _misses(names[1], judged[1], truths[1])),
        truth="labels" if labelled else "the other verifier",
        unused_labels=0 if labelled else sum(completion.label is not None for completion in completions),
    )


def wilson_interval(hits: int, of: int, z: float = _Z) -> tuple[float, float]:
    """Return the Wilson score interval of a share, by default the 95 % interval; (0, 1) if `of` is 0.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)    [Wilson 1927]

    >>> low, high = wilson_interval(0, 100)
    >>> low, round(high, 4)
    (0.0, 0.037)
    """
    if not of:
        return 0.0, 1.0
    p = hits / of
    centre = p + z * z / (2 * of)
    spread = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    low = max(0.0, (centre - spread) / scale) if hits else 0.0
    high = min(1.0, (centre + spread) / scale) if hits < of else 1.0
    return low, high


def _threshold(mixture: Mixture, scores: Sequence[Score], step: int) -> float:
    declared = range_of(mixture, step)
    if declared is not None:
        return declared[1]
    return max((score.value for score in scores if score.value is not None), default=1.0)


def _verdict(score: Score, threshold: float) -> LabelVerdict:
    if score.value is None:
        return LabelVerdict.UNSCORED
    if score.value >= lowest_reaching(threshold):
        return LabelVerdict.RIGHT
    says = [score, *score.parts.values()]
    unread = any(part.extras.get("parsed") is False or _UNREAD.search(part.detail) for part in says)
    return LabelVerdict.UNREAD if unread else LabelVerdict.WRONG


def _accepts(verdicts: Sequence[LabelVerdict]) -> list[bool]:
    return [verdict is LabelVerdict.RIGHT for verdict in verdicts]


def _misses(name: str, verdicts: Sequence[LabelVerdict], truth: Sequence[bool]) -> Misses:
    right = Counter(verdict for verdict, true in zip(verdicts, truth, strict=True) if true)
    wrong = Counter(verdict for verdict, true in zip(verdicts, truth, strict=True) if not true)
    of = right.total()
    return Misses(
        name,
        wrong=Rate(right[LabelVerdict.WRONG], of),
        unread=Rate(right[LabelVerdict.UNREAD], of),
        unscored=Rate(right[LabelVerdict.UNSCORED], of),
        accepted_wrongly=Rate(wrong[LabelVerdict.RIGHT], wrong.total()),
    )


def _table(names: tuple[str, str], confusion: Mapping[tuple[LabelVerdict, LabelVerdict], int]) -> Iterator[str]:
    """Yield the confusion table: a row for each verdict of the first verifier, a column for each of the second's."""
    first, second = names
    width = max(len(first), len(LabelVerdict.UNSCORED)) + 2
    yield f"{'':<{width}}{second}"
    yield f"{first:<{width}}" + "".join(f"{verdict.value:>10}" for verdict in LabelVerdict)
    for row in LabelVerdict:
        yield f"{row.value:<{width}}" + "".join(f"{confusion.get((row, column), 0):>10}" for column in LabelVerdict)
