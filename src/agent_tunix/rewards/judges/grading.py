"""Judge that grades each completion by a rubric."""

from typing import TYPE_CHECKING

from pydantic import Field

from agent_tunix.rewards.arguments import Names
from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.judges.rubric import Rubric
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.judges.verdicts import Form
from agent_tunix.rewards.sample import Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker


class RubricSettings(EndpointSettings, Rubric):
    """Arguments of `judge`."""

    columns: Names = Field(default_factory=list)


class RubricJudge(Judge[RubricSettings]):
    """A language model grades each completion by a rubric. Range [0, 1].

    The value is the weighted mean of the criteria's scores; `components` has each criterion's raw score. A negative
    rubric describes a fault. Its value is also the raw score: 1 for a fault that is there. A negative weight of the
    component makes it a penalty.

    In a configuration:

        tone:
          function: judge
          weight: 0.5
          args: {model: gpt-4o-mini, rubric: "Is the explanation one that a beginner can follow?"}

    Its own arguments are those of `Rubric`, and `columns` (columns of the dataset that the judge sees, such as
    `answer`). For other arguments see `EndpointSettings`.
    """

    documented_with = (Rubric, EndpointSettings)
    settings_class = RubricSettings

    def _describe(self, arguments: RubricSettings) -> str:
        return f"{super()._describe(arguments)}, {arguments.sign} rubric ({', '.join(arguments.rubric)})"

    async def _judge_one(self, asker: "Asker", sample: Sample) -> Score:
        rubric = self._required_arguments()
        labels = {name: tuple(rubric.score_map(name)) for name in rubric.rubric}
        form = Form(labels)
        questions = {name: (criterion.question.strip(), labels[name]) for name, criterion in rubric.rubric.items()}
        messages, code = prompts.grading_messages(questions, self._shared_sections(sample), sample.response)
        receipt = Receipt()
        question = prompts.Question(messages, form.schema(), lambda reply: form.read(reply, code))
        verdict = await asker.ask(question, receipt)
        scores = rubric.raw_scores(verdict.labels)
        detail = "; ".join(f"{name} {verdict.labels[name]} ({verdict.reasons[name]})" for name in scores)
        extras = {"verdicts": dict(verdict.labels), "reasons": dict(verdict.reasons), **receipt.to_extras()}
        return Score(rubric.value(verdict.labels), scores, detail=detail, extras=extras)
