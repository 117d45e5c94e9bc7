"""A class for one reward, with a configuration of its own."""

from dataclasses import dataclass

from llm_finetuning.core import BaseReward, RewardConfig


@dataclass(frozen=True, slots=True)
class KeywordConfig(RewardConfig):
    name: str = "keywords"
    words: tuple[str, ...] = ("answer", "4")


class reward(BaseReward):
    def __init__(self, config: KeywordConfig | None = None) -> None:
        super().__init__(config or KeywordConfig())

    def __call__(self, prompts, completions, **kwargs):
        words = self.config.words
        return [sum(word in completion[0]["content"] for word in words) / len(words) for completion in completions]
