"""One reward in every convention, around a function of one response or of a list of them."""

import asyncio
from collections.abc import Callable
from typing import Any

from agent_tunix.rewards import BaseReward, Sample

Inner = Callable[[str], Any]
Whole = Callable[[list[str]], Any]


def samples(*responses: str) -> list[Sample]:
    """Completions of one group, with an answer and ids."""
    return [
        Sample(
            response,
            prompt="2 + 2?",
            messages=({"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": response}),
            columns={"answer": "4", "tags": ["a"]},
            step=3,
            max_steps=9,
            rollout_id=f"3_0_{i}",
            num_tokens=len(response.split()),
            tokens=tuple(range(len(response.split()))),
        )
        for i, response in enumerate(responses)
    ]


def plain(inner: Inner) -> Any:
    def reward(response: str, **kwargs: Any) -> Any:
        return inner(response)

    return reward


def plain_async(inner: Inner) -> Any:
    async def reward(response: str) -> Any:
        return inner(response)

    return reward


def miles(inner: Inner) -> Any:
    async def reward(args: Any, sample: Any, **kwargs: Any) -> Any:
        return inner(sample.response)

    return reward


def environment(inner: Inner) -> Any:
    class Environment:
        async def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
            return {"value": inner(messages[-1]["content"])}

    return Environment


def environment_sync(inner: Inner) -> Any:
    class Environment:
        def compute_reward(self, rollout_id: str, messages: Any, task: Any, **kwargs: Any) -> Any:
            return {"value": inner(messages[-1]["content"])}

    return Environment()


def trl(whole: Whole) -> Any:
    def reward(completions: list[str], **kwargs: Any) -> Any:
        return whole(completions)

    return reward


def trl_async(whole: Whole) -> Any:
    async def reward(completions: list[str], **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        return whole(completions)

    return reward


def miles_group(whole: Whole) -> Any:
    async def reward(args: Any, samples: Any, **kwargs: Any) -> Any:
        return whole([sample.response for sample in samples])

    return reward


def environment_group(whole: Whole) -> Any:
    class Environment:
        async def compute_group_reward(self, rollout_ids: Any, messages_list: Any, tasks: Any, **kwargs: Any) -> Any:
            values = whole([messages[-1]["content"] for messages in messages_list])
            return [{"value": value} for value in values] if isinstance(values, list) else values

    return Environment


def base_reward(whole: Whole) -> Any:
    class Reward(BaseReward):
        def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> Any:
            return whole([completion[0]["content"] for completion in completions])

    return Reward


def of_each(shape: Callable[[Whole], Any]) -> Callable[[Inner], Any]:
    """The shape of a batch, around a function of one response."""
    return lambda inner: shape(lambda responses: [inner(response) for response in responses])


SINGLE = {shape.__name__: shape for shape in (plain, plain_async, miles, environment, environment_sync)}
WHOLE = {shape.__name__: shape for shape in (trl, trl_async, miles_group, environment_group, base_reward)}
SEVERAL = {name: of_each(shape) for name, shape in WHOLE.items()}
ALL = SINGLE | SEVERAL
