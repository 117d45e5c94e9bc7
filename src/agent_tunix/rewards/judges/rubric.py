"""Rubrics: criteria, their verdicts, and the score of each verdict.

A rubric is a text, or criteria by name:

    rubric: Is the explanation one that a beginner can follow?

    rubric:
      grounded: {question: "Does every step follow from the problem?", scores: {yes: 1.0, no: 0.0}, weight: 2}
      polite: Is it polite?

The value is the weighted mean of the criteria's scores, in [0, 1]. A *negative* rubric looks for faults. Its value is
the raw score, 1 for a fault that is there. A negative weight of the component makes it a penalty. A criterion whose
polarity differs from its rubric's counts as 1 − score.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.errors import RewardError

POLARITIES = ("positive", "negative")
DEFAULT_SCORES = {"yes": 1.0, "partly": 0.5, "no": 0.0}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_KEYS = ("question", "scores", "polarity", "weight")


@dataclass(frozen=True, slots=True)
class Criterion:
    """One question to the judge."""

    name: str  # key in the verdict and in the score's components
    question: str
    scores: Mapping[str, float]  # score of each verdict, 0 to 1
    polarity: str = "positive"  # `positive`, or `negative` if the question is about a fault
    weight: float = 1.0  # weight in the rubric's value


@dataclass(frozen=True, slots=True)
class Rubric:
    """Criteria for judging a completion."""

    criteria: tuple[Criterion, ...]
    polarity: str = "positive"

    def value(self, verdicts: Mapping[str, str]) -> float:
        """Return the weighted mean of the scores of the verdicts, 0 to 1."""
        total = math.fsum(
            criterion.weight * self._share(criterion, verdicts[criterion.name]) for criterion in self.criteria
        )
        return total / math.fsum(criterion.weight for criterion in self.criteria)

    def scores(self, verdicts: Mapping[str, str]) -> dict[str, float]:
        """Return the raw score of each criterion."""
        return {criterion.name: criterion.scores[verdicts[criterion.name]] for criterion in self.criteria}

    def _share(self, criterion: Criterion, verdict: str) -> float:
        score = criterion.scores[verdict]
        return score if criterion.polarity == self.polarity else 1.0 - score


def read_rubric(judge: str, rubric: object, scores: object = None, polarity: str | None = None) -> Rubric:
    """Read a rubric from the configuration.

    Args:
        judge: Name of the judge, for errors.
        rubric: A text, or criteria by name: each a text, or a mapping with `question` and optionally `scores`,
            `polarity` and `weight`.
        scores: Score of each verdict, for criteria without their own; None: yes 1, partly 0.5, no 0.
        polarity: Polarity of the rubric; None: negative if all its criteria are.

    Raises:
        RewardError: The rubric is malformed.
    """
    try:
        default_scores = DEFAULT_SCORES if scores is None else _read_scores("scores", scores)
        written = {"quality": rubric} if isinstance(rubric, str) else rubric
        if not isinstance(written, Mapping) or not written:
            raise RewardError(
                f"`rubric` must be a text or a mapping of criteria by name, not {rubric!r}", code="invalid_rubric"
            )
        criteria = tuple(_read_criterion(name, given, default_scores, polarity) for name, given in written.items())
    except RewardError as error:
        raise RewardError(f"judge {judge!r}: {error}", code=error.code) from None
    all_negative = all(criterion.polarity == "negative" for criterion in criteria)
    return Rubric(criteria, polarity or ("negative" if all_negative else "positive"))


def _read_criterion(
    name: object, given: object, default_scores: Mapping[str, float], polarity: str | None
) -> Criterion:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "id":
        raise RewardError(
            f"{name!r} cannot be the name of a criterion; use at most 64 letters, digits, `_` and `-`, and not `id`",
            code="invalid_name",
        )
    if isinstance(given, str):
        given = {"question": given}
    if not isinstance(given, Mapping):
        raise RewardError(
            f"criterion {name!r} must be a question or a mapping with a question, not {given!r}",
            code="missing_question",
        )
    for key in given:
        if key not in _KEYS:
            raise RewardError(
                f"criterion {name!r} has no key {key!r}; its keys are {', '.join(_KEYS)}", code="unknown_key"
            )
    question = given.get("question")
    if not isinstance(question, str) or not question.strip():
        raise RewardError(f"criterion {name!r} must have a question, not {question!r}", code="missing_question")
    scores = _read_scores(f"{name}.scores", given["scores"]) if given.get("scores") is not None else default_scores
    own_polarity = given.get("polarity") or polarity or "positive"
    if own_polarity not in POLARITIES:
        raise RewardError(
            f"the polarity of {name!r} must be positive or negative, not {own_polarity!r}", code="invalid_polarity"
        )
    weight = given.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise RewardError(
            f"the weight of criterion {name!r} must be a number above 0, not {weight!r}; "
            "for a criterion that counts against a completion set `polarity: negative`",
            code="invalid_weight",
        )
    return Criterion(name, question.strip(), scores, own_polarity, float(weight))


def _read_scores(place: str, given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping) or len(given) < 2:
        raise RewardError(
            f"`{place}` must give scores to at least two verdicts, for example {{yes: 1.0, no: 0.0}}",
            code="too_few_verdicts",
        )
    scores: dict[str, float] = {}
    for label, score in given.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise RewardError(
                f"`{place}` must be from 0 to 1, not {label}: {score!r}; use weights for larger ones",
                code="invalid_score",
            )
        scores[normalise_label(label)] = float(score)
    if len(scores) < len(given):
        raise RewardError(
            f"`{place}` must have distinct verdicts, but some differ only in case or spaces: "
            f"{', '.join(map(str, given))}",
            code="duplicate_verdict",
        )
    if len(set(scores.values())) == 1:
        raise RewardError(
            f"`{place}` must have different scores, but gives every verdict {score:g}", code="equal_scores"
        )
    return scores


def normalise_label(label: object) -> str:
    """Return a verdict in the form that is compared. YAML reads a bare `yes` as true, and a model may write `Yes`."""
    if isinstance(label, bool):
        return "yes" if label else "no"
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return " ".join(str(label).split()).casefold()
