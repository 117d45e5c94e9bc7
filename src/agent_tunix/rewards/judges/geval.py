"""DeepEval's G-Eval as a judge; needs the extra `deepeval`.

DeepEval writes the prompts and reads the verdicts. The questions go through this package's endpoint, with its limits,
retries, cache, budget and accounts. DeepEval's telemetry is switched off unless DEEPEVAL_TELEMETRY_OPT_OUT is set
otherwise.
"""

import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from agent_tunix.rewards.arguments import Names, Text
from agent_tunix.rewards.judges import verdicts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.base import Judge, column_text, problem_of
from agent_tunix.rewards.judges.faults import MalformedVerdict
from agent_tunix.rewards.judges.prompts import Question, escape
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.sample import Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker

Generate = Callable[[str, Any], Coroutine[Any, Any, Any]]


class GEvalSettings(EndpointSettings):
    """Arguments of `geval_judge`."""

    rubric: Text | None = None
    steps: Names = Field(default_factory=list)
    expected: Text | None = None

    @model_validator(mode="after")
    def _check_task(self) -> Self:
        if self.rubric is None and not self.steps:
            raise ValueError('it requires `rubric` or `steps`, for example {rubric: "Is the solution coherent?"}')
        return self


class GEvalJudge(Judge[GEvalSettings]):
    """DeepEval's G-Eval: the model works through evaluation steps and gives a score. Range [0, 1].

    In a configuration:

        coherent:
          function: geval_judge
          args: {model: gpt-4o-mini, rubric: "Is the solution coherent?", steps: [Read it., Look for gaps.]}

    Its own arguments are `rubric` (G-Eval's criteria, a text), `steps` (its evaluation steps; by default the model
    writes them once, from the rubric), and `expected` (the column with the expected output). For other arguments see
    `EndpointSettings`.
    """

    documented_with = (EndpointSettings,)
    settings_class = GEvalSettings
    extra = "deepeval"
    needed_modules = ("openai", "tenacity", "deepeval")

    _written_steps: Sequence[str] = ()  # steps that the model has written

    @property
    def columns(self) -> Sequence[str]:
        """The column with the expected output, if there is one."""
        expected = self._required_arguments().expected
        return (expected,) if expected else ()

    async def _judge_one(self, asker: "Asker", sample: Sample) -> Score:
        os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
        from deepeval.metrics import GEval
        from deepeval.test_case import LLMTestCase, SingleTurnParams

        arguments, receipt = self._required_arguments(), Receipt()

        async def generate(prompt: str, schema: Any) -> Any:
            messages = [{"role": "user", "content": prompt}]
            form = None if schema is None else {**schema.model_json_schema(), "additionalProperties": False}
            return await asker.ask(Question(messages, form, lambda reply: _read(reply, schema)), receipt)

        columns = {"input": escape(problem_of(sample)) or "(none)", "actual_output": escape(sample.response)}
        shown = [SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT]
        if arguments.expected:
            columns["expected_output"] = escape(column_text(sample, arguments.expected))
            shown.append(SingleTurnParams.EXPECTED_OUTPUT)
        if not columns["actual_output"].strip():
            columns["actual_output"] = "(empty)"
        metric = GEval(
            name=self.name,
            criteria=arguments.rubric,
            evaluation_steps=list(arguments.steps or self._written_steps) or None,
            evaluation_params=shown,
            model=_endpoint_model(arguments.model, generate),
        )
        await metric.a_measure(LLMTestCase(**columns), _show_indicator=False)
        steps = arguments.steps or list(metric.evaluation_steps)
        self._written_steps = steps
        value = metric.score
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise MalformedVerdict(f"G-Eval gave the score {value!r}, which is not from 0 to 1")
        reason = str(metric.reason or "")
        extras = {"reasons": {self.name: reason}, "steps": steps, **receipt.to_extras()}
        return Score(float(value), detail=reason, extras=extras)


def _endpoint_model(name: str, generate: Generate) -> Any:
    """Return a DeepEval model whose replies come from this package's endpoint."""
    from deepeval.models import DeepEvalBaseLLM

    class EndpointModel(DeepEvalBaseLLM):  # type: ignore[misc]
        def load_model(self) -> Any:
            return self

        def get_model_name(self) -> str:
            return name

        def generate(self, prompt: str, schema: Any = None) -> Any:
            raise NotImplementedError("G-Eval runs asynchronously here")

        async def a_generate(self, prompt: str, schema: Any = None) -> Any:
            return await generate(prompt, schema)

    return EndpointModel(name)


def _read(reply: str, schema: Any) -> Any:
    """Return the reply as DeepEval expects it: an object of its schema, or the text if there is no schema."""
    if schema is None:
        return reply
    for item in reversed(verdicts.objects_in(reply)):
        try:
            return schema.model_validate(item)
        except ValueError:
            continue
    raise MalformedVerdict("the judge's reply does not follow G-Eval's schema")
