"""Rubrics of rows: a column holds the criteria by which the completions of its row are judged.

The value of the column, or the JSON that it holds as text, has one of these forms:

    a text                       one question to the judge
    a mapping                    criteria by name, as in a configuration (`Rubric`)
    a list of texts or mappings  criteria with points, by default 1; negative points are for faults

A criterion of a list has its question in `criterion`, `question`, `description` or `title`, the first of these that has
a text, and its points in `points` or `weight`. Further keys are ignored, so lists of HealthBench (`criterion`,
`points`, `tags`) and of Rubrics as Rewards (`title`, `description`, `weight`) are read as they are.

A criterion of a list is met or not. With points p_j and scores s_j of the verdicts (met 1, not met 0), the value is

    max(0, Σ p_j · s_j / Σ max(0, p_j))

the score of HealthBench (https://arxiv.org/abs/2505.08775), never below 0. Without negative points it is the explicit
aggregation of Rubrics as Rewards (https://arxiv.org/abs/2507.17746). Departure from both: one question asks about all
criteria of a row, where they ask about each by itself.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import ValidationError, model_validator

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.configured.arguments import Text
from agent_tunix.rewards.judges.rubric import Rubric
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.sample import Sample

_QUESTION_KEYS = ("criterion", "question", "description", "title")
_POINTS_KEYS = ("points", "weight")
_MET = {"yes": 1.0, "no": 0.0}
# A text that opens like this is JSON; `[Hard rule] …` is not.
_OPENS_JSON = re.compile(r'\s*(\[\s*["{\]]|\{\s*["}])')
_LONGEST_TITLE = 48  # characters of a title in the name of its criterion


class RowRubricSettings(EndpointSettings):
    """Settings of a judge that has either one `rubric` or a `rubric_column`."""

    rubric_column: Text = ""

    @model_validator(mode="after")
    def _check_rubric(self) -> Self:
        if bool(getattr(self, "rubric", None)) is bool(self.rubric_column):
            raise ValueError("it requires either `rubric` or `rubric_column`, the column with the rubric of each row")
        if self.rubric_column and getattr(self, "polarity", None):
            raise ValueError("`polarity` requires `rubric`; in the rubrics of rows each criterion has its own")
        return self


class PointsRubric(Rubric):
    """Criteria with points: `weight` holds their size, and `polarity` is negative if they are."""

    @model_validator(mode="after")
    def _check_points(self) -> Self:
        if all(criterion.polarity == "negative" for criterion in self.rubric.values()):
            raise ValueError("at least one criterion must have points above 0, so that the value has a scale")
        return self

    def value(self, verdicts: Mapping[str, str]) -> float:
        """Return the points earned per point that could be earned, 0 to 1."""
        scores, points = self.raw_scores(verdicts), self.points()
        earned = math.fsum(points[name] * score for name, score in scores.items())
        return max(0.0, earned / math.fsum(one for one in points.values() if one > 0))


def read_row_rubric(sample: Sample, column: str, scores: Mapping[str, float] | None = None) -> Rubric:
    """Return the rubric of a sample's row.

    Args:
        sample: Sample whose columns have it.
        column: Column that holds it.
        scores: Score of each verdict; None: yes 1, no 0 for criteria of a list, and the defaults of `Rubric` else.

    Raises:
        BadReferenceError: The row has no rubric, or one that cannot be read.
    """
    value = sample.columns.get(column)
    try:
        if isinstance(value, str) and _OPENS_JSON.match(value):
            value = json.loads(value)
        kind, criteria = Rubric, value
        if isinstance(value, Mapping):
            criteria = {name: _without_nulls(item) for name, item in _without_nulls(value).items()}
        elif isinstance(value, Sequence) and not isinstance(value, str):
            kind, criteria, scores = PointsRubric, _read_list(value), scores or _MET
        if not criteria or (isinstance(criteria, str) and not criteria.strip()):
            raise ValueError("it is missing or empty")
        given = {"rubric": criteria, "polarity": "positive"}  # the value of every row is higher for the better
        return kind.model_validate(given | ({"scores": scores} if scores else {}))
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            reason = f"{'.'.join(map(str, first['loc'][1:]))} {first['msg'].removeprefix('Value error, ')}".strip()
    raise BadReferenceError(
        f"the column {column!r} must hold the rubric of the row (a text, criteria by name, or a list of criteria with "
        f"points): {reason}"
    )


def describe_criteria(rubric: Rubric) -> str:
    """Return the criteria as one text, for a judge that decides by all of them at once."""
    if list(rubric.rubric) == ["quality"]:
        return rubric.rubric["quality"].question.strip()
    return "\n".join(
        f"- {'a fault, against it' if points < 0 else 'in its favour'}, of weight {abs(points):g}: "
        f"{rubric.rubric[name].question.strip()}"
        for name, points in rubric.points().items()
    )


def _read_list(items: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the criteria of a list by name, as `Criterion` takes them; those of 0 points are left out."""
    criteria: dict[str, dict[str, Any]] = {}
    for number, item in enumerate(items, 1):
        item = item if isinstance(item, Mapping) else {"criterion": item}
        question = next((item[key] for key in _QUESTION_KEYS if str(item.get(key) or "").strip()), None)
        points = next((item[key] for key in _POINTS_KEYS if item.get(key) is not None), 1.0)
        if not isinstance(question, str) or isinstance(points, bool) or not isinstance(points, int | float):
            raise ValueError(f"its criterion {number} must have a text and a number of points, not {item!r:.80}")
        if points:
            criteria[_name(item.get("title"), number, criteria)] = {
                "question": question,
                "weight": float(abs(points)),
                "polarity": "negative" if points < 0 else "positive",
            }
    return criteria


def _name(title: object, number: int, taken: Mapping[str, Any]) -> str:
    """Return the name of a criterion, which the judge repeats: its title, or else its number."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", title).strip("_")[:_LONGEST_TITLE] if isinstance(title, str) else ""
    name = name if re.match(r"[A-Za-z]\w\w", name) else f"criterion_{number}"
    while name in taken:
        name = f"{name}_{number}"
    return name


def _without_nulls(item: Any) -> Any:
    """Return a mapping without the nulls that Parquet adds for keys of other rows."""
    return {key: value for key, value in item.items() if value is not None} if isinstance(item, Mapping) else item
