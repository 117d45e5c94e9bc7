"""Base classes of judges in files written for llm-finetuning. They need the extra `deepeval`.

`shims` serves them as `llm_finetuning.core.llm_judges`. DeepEval asks its own model, which its environment variables or
`deepeval set-…` configure. A failed judgement is an error of its completion, never a score.
"""

import abc
import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_tunix.rewards.conventions.classes import BaseReward
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.sample import Outcome, Score

_ATTEMPTS, _SHORTEST_WAIT_S, _LONGEST_WAIT_S = 6, 1, 30


@dataclass(frozen=True, slots=True)
class JudgeInput:
    """Texts of one completion: the last message of the prompt, the response, and the reference if there is one."""

    question: str
    response: str
    reference: str | None = None


class BaseLLMJudgeReward(BaseReward):
    """Base class of rewards that ask a model about each completion."""

    DEFAULT_MAX_CONCURRENCY: int = 8

    def _build_judge_input(self, prompt: list[Any], completion: list[Any], answer: str | None = None) -> JudgeInput:
        """Return the texts of a prompt, a completion and a reference."""
        return JudgeInput(prompt[-1]["content"], completion[0]["content"], answer)

    def _make_semaphore(self) -> asyncio.Semaphore:
        """Return a semaphore that limits concurrent questions."""
        return asyncio.Semaphore(self.DEFAULT_MAX_CONCURRENCY)


class _MetricReward(BaseLLMJudgeReward):
    """A reward by a metric of DeepEval. Each completion gets a new metric, because metrics keep state."""

    @abc.abstractmethod
    def _metric_and_case(self, text: JudgeInput, row: dict[str, Any]) -> tuple[Any, Any]:
        """Return the metric and the test case of a completion."""

    def _references(self, columns: dict[str, Any], count: int) -> Sequence[Any]:
        """Return the reference of each completion."""
        return [None] * count

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[Any]:
        """Return the value of the metric for each completion, or a score with the reason for its absence."""
        os.environ.setdefault("DEEPEVAL_TELEMETRY_OPT_OUT", "YES")
        return self._run_batch(self._score_batch(prompts, completions, kwargs))

    async def _score_batch(self, prompts: list[Any], completions: list[Any], columns: dict[str, Any]) -> list[Any]:
        slots = self._make_semaphore()
        references = self._references(columns, len(completions))
        lists = {name: values for name, values in columns.items() if isinstance(values, list)}

        async def score(place: int) -> Any:
            reference = None if references[place] is None else str(references[place])
            text = self._build_judge_input(prompts[place], completions[place], reference)
            metric, case = self._metric_and_case(text, {name: values[place] for name, values in lists.items()})
            async with slots:
                try:
                    return await _measure(metric, case)
                except Exception as error:  # a failed judgement costs this completion, not its group
                    return Score.failed(Outcome.ERROR, describe_fault(error))

        return list(await asyncio.gather(*map(score, range(len(completions)))))


class DeepEvalSimpleReward(_MetricReward):
    """Base class of rewards by a metric that needs no reference."""

    @abc.abstractmethod
    def _build_metric(self) -> Any:
        """Return a new metric."""

    def _metric_and_case(self, text: JudgeInput, row: dict[str, Any]) -> tuple[Any, Any]:
        from deepeval.test_case import LLMTestCase

        return self._build_metric(), LLMTestCase(input=text.question, actual_output=text.response)


class DeepEvalAnswerRelevancyReward(DeepEvalSimpleReward):
    """DeepEval's `AnswerRelevancyMetric`. Range [0, 1]."""

    def _build_metric(self) -> Any:
        from deepeval.metrics import AnswerRelevancyMetric

        return AnswerRelevancyMetric()


class DeepEvalSummarizationReward(DeepEvalSimpleReward):
    """DeepEval's `SummarizationMetric`. Range [0, 1]."""

    def _build_metric(self) -> Any:
        from deepeval.metrics import SummarizationMetric

        return SummarizationMetric()


class AbstractDeepEvalGEvalRAGReward(_MetricReward):
    """Base class of rewards by DeepEval's G-Eval against the reference, the column `answer`. Range [0, 1].

    A subclass sets `rag_criteria`. A column `retrieval_context`, a list of texts, is shown to the judge too.
    """

    rag_criteria: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raise TypeError if the `rag_criteria` of a subclass is missing or blank."""
        super().__init_subclass__(**kwargs)
        criteria = getattr(cls, "rag_criteria", None)
        if not isinstance(criteria, str) or not criteria.strip():
            raise TypeError(f"{cls.__name__} must set `rag_criteria` to a text, but it is {criteria!r}")

    def _references(self, columns: dict[str, Any], count: int) -> Sequence[Any]:
        references: Sequence[Any] = columns["answer"]
        return references

    def _metric_and_case(self, text: JudgeInput, row: dict[str, Any]) -> tuple[Any, Any]:
        from deepeval.metrics import GEval
        from deepeval.test_case import LLMTestCase, SingleTurnParams

        shown = [SingleTurnParams.INPUT, SingleTurnParams.ACTUAL_OUTPUT, SingleTurnParams.EXPECTED_OUTPUT]
        columns: dict[str, Any] = {
            "input": text.question,
            "actual_output": text.response,
            "expected_output": text.reference,
        }
        if context := row.get("retrieval_context"):
            shown.append(SingleTurnParams.RETRIEVAL_CONTEXT)
            columns["retrieval_context"] = [str(part) for part in context]
        metric = GEval(name="RAG_GEval", criteria=self.rag_criteria, evaluation_params=shown)
        return metric, LLMTestCase(**columns)


async def _measure(metric: Any, case: Any) -> float:
    """Return the value of a metric. After a rate limit, wait and try again, up to six attempts in all."""
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    retrying = AsyncRetrying(
        retry=retry_if_exception(_is_rate_limit),
        wait=wait_random_exponential(multiplier=1, min=_SHORTEST_WAIT_S, max=_LONGEST_WAIT_S),
        stop=stop_after_attempt(_ATTEMPTS),
        reraise=True,
    )
    value: float | None = await retrying(metric.a_measure, case)
    if value is None:
        raise ValueError(f"{type(metric).__name__} gave no score")
    return float(value)


def _is_rate_limit(error: BaseException) -> bool:
    text = str(error).lower()
    return getattr(error, "status_code", None) == 429 or "rate limit" in text or "too many requests" in text
