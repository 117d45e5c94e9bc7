"""Metrics that call a model as DeepEval's do, or answer by themselves where they are given none."""

from typing import Any

from pydantic import BaseModel


class _Steps(BaseModel):
    steps: list[str]


class _ReasonScore(BaseModel):
    score: float
    reason: str


class GEval:
    def __init__(
        self,
        name: str,
        evaluation_params: Any,
        criteria: str | None = None,
        evaluation_steps: list[str] | None = None,
        model: Any = None,
    ) -> None:
        assert criteria or evaluation_steps
        self.criteria, self.evaluation_steps, self.model = criteria, evaluation_steps, model
        self.shown = [param.value for param in evaluation_params]

    async def a_measure(self, case: Any, _show_indicator: bool = True) -> float | None:
        if self.model is None:
            return self._measure_alone(case)
        assert not _show_indicator
        if not self.evaluation_steps:
            steps = await self.model.a_generate(f"STEPS for {self.criteria}", schema=_Steps)
            self.evaluation_steps = steps.steps
        shown = "\n".join(f"{name}: {getattr(case, name)}" for name in self.shown)
        result = await self.model.a_generate(f"SCORE by {self.evaluation_steps}\n{shown}", schema=_ReasonScore)
        self.score, self.reason = result.score / 10, result.reason
        return float(self.score)

    def _measure_alone(self, case: Any) -> float | None:
        if case.actual_output == "broken":
            raise RuntimeError("no verdict")
        if case.actual_output == "unsure":
            return None
        assert "retrieval_context" not in self.shown or case.retrieval_context == ["It is 4."]
        return (case.expected_output in case.actual_output) * (0.5 + 0.5 * (len(self.shown) == 4))


class AnswerRelevancyMetric:
    async def a_measure(self, case: Any) -> float:
        return float(case.input in case.actual_output)


class SummarizationMetric(AnswerRelevancyMetric):
    pass
