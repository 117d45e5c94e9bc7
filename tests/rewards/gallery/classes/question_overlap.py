"""The prompt's own words in the answer are a fault."""

from llm_finetuning.core.reward import BaseReward


class reward(BaseReward):
    def __call__(self, prompts, completions, **kwargs):
        scores = []
        for prompt, completion in zip(prompts, completions):
            asked = set(prompt[-1]["content"].lower().split())
            said = completion[0]["content"].lower().split()
            scores.append(-sum(word in asked for word in said) / len(said) if said else 0.0)
        return scores
