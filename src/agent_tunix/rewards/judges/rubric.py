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
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from agent_tunix.rewards.configured.arguments import RewardArguments, Text

DEFAULT_SCORES = {"yes": 1.0, "partly": 0.5, "no": 0.0}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def normalise_label(label: object) -> str:
    """Return a verdict in the form that is compared. YAML reads a bare `yes` as true, and a model may write `Yes`."""
    if isinstance(label, bool):
        return "yes" if label else "no"
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return " ".join(str(label).split()).casefold()


def _by_label(scores: object) -> object:
    if not isinstance(scores, Mapping):
        return scores
    labels = {normalise_label(label): score for label, score in scores.items()}
    if len(labels) < len(scores):
        raise ValueError(f"verdicts must differ in more than case and spaces: {', '.join(map(str, scores))}")
    return labels


def _check_scores(scores: dict[str, float]) -> dict[str, float]:
    if len(set(scores.values())) < 2:
        raise ValueError("it must give different scores to at least two verdicts, for example {yes: 1.0, no: 0.0}")
    return scores


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == "id":
        raise ValueError("names of criteria have at most 64 letters, digits, `_` and `-`, and are not `id`")
    return name


def _by_name(rubric: object) -> object:
    """Return criteria by name. A text is the only criterion, `quality`; within a rubric, it is a question."""
    rubric = {"quality": rubric} if isinstance(rubric, str) else rubric
    if not isinstance(rubric, Mapping):
        return rubric
    return {name: {"question": item} if isinstance(item, str) else item for name, item in rubric.items()}


Polarity = Literal["positive", "negative"]
Scores = Annotated[
    dict[str, Annotated[float, Field(ge=0, le=1)]], BeforeValidator(_by_label), AfterValidator(_check_scores)
]


class Criterion(RewardArguments):
    """One question to the judge; `polarity: negative` if the question is about a fault."""

    question: Text
    scores: Scores | None = None
    polarity: Polarity | None = None
    weight: Annotated[float, Field(gt=0)] = 1.0


Criteria = Annotated[
    dict[Annotated[str, AfterValidator(_check_name)], Criterion], BeforeValidator(_by_name), Field(min_length=1)
]


class Rubric(RewardArguments):
    """Rubric of a judge.

    Attributes:
        rubric: A text, or criteria by name: each a text, or a mapping with `question` and optionally `scores`,
            `polarity` and `weight`.
        scores: Score of each verdict, 0 to 1, for criteria without their own; by default yes 1, partly 0.5, no 0.
        polarity: `positive` or `negative`, for the rubric and for criteria without their own; by default a rubric is
            negative if all its criteria are.
    """

    rubric: Criteria
    scores: Scores = Field(default_factory=DEFAULT_SCORES.copy)
    polarity: Polarity | None = None

    @property
    def sign(self) -> Polarity:
        """Polarity of the whole rubric."""
        is_negative = all(criterion.polarity == "negative" for criterion in self.rubric.values())
        return self.polarity or ("negative" if is_negative else "positive")

    def score_map(self, name: str) -> Mapping[str, float]:
        """Return the allowed verdicts of a criterion with their scores."""
        return self.rubric[name].scores or self.scores

    def raw_scores(self, verdicts: Mapping[str, str]) -> dict[str, float]:
        """Return the raw score of each criterion."""
        return {name: self.score_map(name)[verdicts[name]] for name in self.rubric}

    def points(self) -> dict[str, float]:
        """Return the weight of each criterion, below 0 for a fault."""
        return {
            name: criterion.weight * (-1 if (criterion.polarity or self.polarity) == "negative" else 1)
            for name, criterion in self.rubric.items()
        }

    def value(self, verdicts: Mapping[str, str]) -> float:
        """Return the weighted mean of the scores of the verdicts, 0 to 1."""
        total = 0.0
        for name, score in self.raw_scores(verdicts).items():
            criterion = self.rubric[name]
            polarity = criterion.polarity or self.polarity or "positive"
            total += criterion.weight * (score if polarity == self.sign else 1.0 - score)
        return total / math.fsum(criterion.weight for criterion in self.rubric.values())
