"""The reference column, as a list."""

from llm_finetuning.core import BaseReward


class reward(BaseReward):
    def __call__(self, prompts, completions, **kwargs):
        return [
            1.0 if truth in completion[0]["content"] else 0.0
            for completion, truth in zip(completions, kwargs["answer"])
        ]
