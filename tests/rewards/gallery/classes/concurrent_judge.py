"""A judge that is asynchronous inside and a plain batch reward outside."""

import asyncio

from llm_finetuning.core import BaseReward


class reward(BaseReward):
    """How much of the question the response takes up."""

    def __call__(self, prompts, completions, **kwargs):
        return asyncio.run(self._judge_all(prompts, completions))

    async def _judge_all(self, prompts, completions):
        slots = asyncio.Semaphore(8)

        async def judge(prompt, completion):
            async with slots:
                await asyncio.sleep(0)
                question = set(prompt[-1]["content"].lower().split())
                return len(question & set(completion[0]["content"].lower().split())) / max(len(question), 1)

        return await asyncio.gather(*(judge(p, c) for p, c in zip(prompts, completions, strict=True)))
