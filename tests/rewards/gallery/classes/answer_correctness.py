"""Numeric correctness with partial credit."""

import re
from dataclasses import dataclass

from llm_finetuning.core import BaseReward, RewardConfig


@dataclass(frozen=True, slots=True)
class AnswerCorrectnessConfig(RewardConfig):
    name: str = "answer_correctness"
    tolerance: float = 0.1
    partial: float = 0.5


class reward(BaseReward):
    """1.0 for the right number, partial credit for one nearby."""

    def __init__(self, config: AnswerCorrectnessConfig | None = None) -> None:
        super().__init__(config or AnswerCorrectnessConfig())

    def __call__(self, prompts, completions, **kwargs):
        return [
            self._score(completion[0]["content"], answer)
            for completion, answer in zip(completions, kwargs["answer"], strict=True)
        ]

    def _score(self, text, answer):
        numbers = re.findall(r"-?\d+(?:\.\d+)?", text)
        if not numbers:
            return 0.0
        guess, truth = float(numbers[-1]), float(answer)
        if guess == truth:
            return 1.0
        return self.config.partial if abs(guess - truth) <= self.config.tolerance * abs(truth) else 0.0
