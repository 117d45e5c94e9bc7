"""Judge that grades each completion by a rubric."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from agent_tunix.rewards.configured.arguments import Names
from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.judges.row_rubrics import RowRubricSettings, read_row_rubric
from agent_tunix.rewards.judges.rubric import Criteria, Rubric
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.judges.verdicts import Form
from agent_tunix.rewards.sample import Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker


class RubricSettings(RowRubricSettings, Rubric):
    """Arguments of `judge`."""

    rubric: Criteria = Field(default_factory=dict)
    columns: Names = Field(default_factory=list)


class RubricJudge(Judge[RubricSettings]):
    """A language model grades each completion by a rubric. Range [0, 1].

    The value is the weighted mean of the criteria's scores; `components` has each criterion's raw score. A negative
    rubric describes a fault. Its value is also the raw score: 1 for a fault that is there. A negative weight of the
    component makes it a penalty.

    With `rubric_column`, each row has its own rubric, and is a bad reference without one. Then the raw scores are in
    the extra `criteria`, not in `components`, and the run logs `met_share`, the mean share of the criteria that are met
    (points above 0) or avoided.

    In a configuration:

        tone:
          function: judge
          weight: 0.5
          args: {model: gpt-4o-mini, rubric: "Is the explanation one that a beginner can follow?"}

    Its own arguments are those of `Rubric`; `rubric_column` (the column that holds the rubric of each row, in place of
    `rubric`); and `columns` (columns of the dataset that the judge sees, such as `answer`). For other arguments see
    `EndpointSettings`.
    """

    documented_with = (Rubric, EndpointSettings)
    settings_class = RubricSettings

    def _describe(self, arguments: RubricSettings) -> str:
        described = super()._describe(arguments)
        if arguments.rubric_column:
            return f"{described}, rubric of each row ({arguments.rubric_column})"
        return f"{described}, {arguments.sign} rubric ({', '.join(arguments.rubric)})"

    async def _judge_one(self, asker: "Asker", sample: Sample) -> Score:
        arguments = self._required_arguments()
        rubric: Rubric = arguments
        if arguments.rubric_column:
            scores_given = arguments.scores if "scores" in arguments.model_fields_set else None
            rubric = read_row_rubric(sample, arguments.rubric_column, scores_given)
        labels = {name: tuple(rubric.score_map(name)) for name in rubric.rubric}
        form = Form(labels)
        questions = {name: (criterion.question.strip(), labels[name]) for name, criterion in rubric.rubric.items()}
        messages, code = prompts.grading_messages(questions, self._shared_sections(sample), sample.response)
        receipt = Receipt()
        question = prompts.JudgeQuestion(messages, form.schema(), lambda reply: form.read(reply, code))
        verdict = await asker.ask(question, receipt)
        scores = rubric.raw_scores(verdict.labels)
        detail = "; ".join(f"{name} {verdict.labels[name]} ({verdict.reasons[name]})" for name in scores)
        extras: dict[str, Any] = {"verdicts": dict(verdict.labels), "reasons": dict(verdict.reasons)}
        metrics: dict[str, float] = {}
        if arguments.rubric_column:
            points = rubric.points()
            extras["criteria"] = {
                name: {"question": criterion.question, "points": points[name], "score": scores[name]}
                for name, criterion in rubric.rubric.items()
            }
            metrics["met_share"] = sum(s if points[name] > 0 else 1 - s for name, s in scores.items()) / len(scores)
            scores = {}  # a metric of each criterion would be one of few rows
        extras |= receipt.to_extras()
        return Score(rubric.value(verdict.labels), scores, detail=detail, extras=extras, metrics=metrics)
