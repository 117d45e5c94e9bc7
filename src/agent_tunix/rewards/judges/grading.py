"""Judge that grades each completion by a rubric."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent_tunix.errors import RewardError
from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.arguments import JudgeArguments
from agent_tunix.rewards.judges.base import Judge, guarded, receipt_extras
from agent_tunix.rewards.judges.rubric import POLARITIES, read_rubric
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.judges.verdicts import Form
from agent_tunix.rewards.sample import Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker


class RubricJudge(Judge):
    """A language model grades each completion by a rubric. Range [0, 1].

    The value is the weighted mean of the criteria's scores; `components` has each criterion's raw score. A negative
    rubric describes a fault. Its value is also the raw score: 1 for a fault that is there. A negative weight of the
    component makes it a penalty.

    In a configuration:

        tone:
          function: judge
          weight: 0.5
          args: {model: gpt-4o-mini, rubric: "Is the explanation one that a beginner can follow?"}

    Its own arguments are `rubric`, `scores` and `polarity` (see `read_rubric`), and `columns` (columns of the dataset
    that the judge sees, such as `answer`). For other arguments see `EndpointSettings`.
    """

    documented_with = (read_rubric, EndpointSettings)

    def _read_own(self, arguments: JudgeArguments) -> None:
        rubric = arguments.take("rubric")
        if rubric is None:
            raise RewardError(
                f"judge {self.name!r} requires `rubric`, a text or a mapping of criteria by name",
                code="missing_argument",
            )
        scores = arguments.take("scores")
        polarity = arguments.take_text("polarity", choices=POLARITIES)
        self.rubric = read_rubric(self.name, rubric, scores, polarity)
        self._form = Form({criterion.name: tuple(criterion.scores) for criterion in self.rubric.criteria})

    def describe(self) -> str:
        """Return class, model, endpoint and criteria."""
        if self.endpoint is None:
            return super().describe()
        names = ", ".join(criterion.name for criterion in self.rubric.criteria)
        return f"{super().describe()}, {self.rubric.polarity} rubric ({names})"

    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample], gate: asyncio.Semaphore) -> list[Score]:
        return await asyncio.gather(*(guarded(self._judge_one(asker, sample, gate)) for sample in samples))

    async def _judge_one(self, asker: "Asker", sample: Sample, gate: asyncio.Semaphore) -> Score:
        questions = {c.name: (c.question, tuple(c.scores)) for c in self.rubric.criteria}
        messages, code = prompts.grading_messages(questions, self._shared_sections(sample), sample.response)
        receipt = Receipt()
        async with gate:
            verdict = await asker.ask(
                messages, self._form.schema(), lambda reply: self._form.read(reply, code), receipt
            )
        scores = self.rubric.scores(verdict.labels)
        told = [f"{name} {verdict.labels[name]} ({verdict.reasons[name]})" for name in scores]
        extras = {"verdicts": dict(verdict.labels), "reasons": dict(verdict.reasons), **receipt_extras(receipt)}
        return Score(self.rubric.value(verdict.labels), scores, detail="; ".join(told), extras=extras)
