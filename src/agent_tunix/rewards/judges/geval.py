"""DeepEval's G-Eval as a judge; needs the extra `deepeval`.

DeepEval writes the prompts and reads the verdicts. The questions go through this package's endpoint, with its limits,
retries, cache, budget and accounts. DeepEval's telemetry is switched off unless DEEPEVAL_TELEMETRY_OPT_OUT is set
otherwise.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from agent_tunix.rewards.judges import verdicts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.arguments import JudgeArguments
from agent_tunix.rewards.judges.base import Judge, column_text, guarded, problem_of, receipt_extras
from agent_tunix.rewards.judges.faults import MalformedVerdict
from agent_tunix.rewards.judges.prompts import escape
from agent_tunix.rewards.sample import Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker

Generate = Callable[[str, Any], Coroutine[Any, Any, Any]]


class GEvalJudge(Judge):
    """DeepEval's G-Eval: the model works through evaluation steps and gives a score. Range [0, 1].

    In a configuration:

        coherent:
          function: geval_judge
          args: {model: gpt-4o-mini, rubric: "Is the solution coherent?", steps: [Read it., Look for gaps.]}

    Its own arguments are `rubric` (G-Eval's criteria, a text), `steps` (its evaluation steps; by default the model
    writes them once, from the rubric), and `expected` (the column with the expected output). It does not take
    `columns`. For other arguments see `EndpointSettings`.
    """

    extra = "deepeval"
    needed_modules = ("httpx", "tenacity", "deepeval")

    def _read_own(self, arguments: JudgeArguments) -> None:
        rubric = arguments.take_text("rubric")
        self.steps = arguments.take_names("steps")
        self._made_steps: list[str] = []
        if not self.steps:
            rubric = arguments.require("rubric", rubric, '{rubric: "Is the solution coherent?"}')
        self.criteria = rubric
        self.expected = arguments.take_text("expected")
        if self.columns:
            raise arguments.refusal("columns", list(self.columns), "omitted; G-Eval has `expected`")
        self.columns = (self.expected,) if self.expected else ()

    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample], gate: asyncio.Semaphore) -> list[Score]:
        return await asyncio.gather(*(guarded(self._judge_one(asker, sample, gate)) for sample in samples))

    async def _judge_one(self, asker: "Asker", sample: Sample, gate: asyncio.Semaphore) -> Score:
        os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
        from deepeval.metrics import GEval
        from deepeval.test_case import LLMTestCase, SingleTurnParams

        receipts: list[Receipt] = []

        async def generate(prompt: str, schema: Any) -> Any:
            receipts.append(Receipt())
            messages = [{"role": "user", "content": prompt}]
            form = None if schema is None else {**schema.model_json_schema(), "additionalProperties": False}
            return await asker.ask(messages, form, lambda reply: _read(reply, schema), receipts[-1])

        columns = {"input": escape(problem_of(sample)) or "(none)", "actual_output": escape(sample.response)}
        shown = [SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT]
        if self.expected:
            columns["expected_output"] = escape(column_text(sample, self.expected))
            shown.append(SingleTurnParams.EXPECTED_OUTPUT)
        if not columns["actual_output"].strip():
            columns["actual_output"] = "(empty)"
        async with gate:
            metric = GEval(
                name=self.name,
                criteria=self.criteria,
                evaluation_steps=list(self.steps) or self._made_steps or None,
                evaluation_params=shown,
                model=_endpoint_model(asker.settings.model, generate),
            )
            await metric.a_measure(LLMTestCase(**columns), _show_indicator=False)
        if not self.steps:
            self._made_steps = list(metric.evaluation_steps)
        value = metric.score
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise MalformedVerdict(f"G-Eval gave the score {value!r}, which is not from 0 to 1")
        reason = str(metric.reason or "")[: verdicts.LONGEST_REASON]
        extras = {"reasons": {self.name: reason}, "steps": list(self.steps) or self._made_steps}
        return Score(float(value), detail=reason, extras={**extras, **_add_up(receipts)})


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
    for found in reversed(verdicts.objects_in(reply)):
        try:
            return schema.model_validate(found)
        except ValueError:
            continue
    raise MalformedVerdict("the judge's reply does not follow G-Eval's schema")


def _add_up(receipts: Sequence[Receipt]) -> dict[str, Any]:
    total = Receipt()
    for receipt in receipts:
        total.usage += receipt.usage
        total.cost += receipt.cost
        total.requests += receipt.requests
        total.latency_s += receipt.latency_s
    total.is_cached = bool(receipts) and all(receipt.is_cached for receipt in receipts)
    return receipt_extras(total)
