"""An async function that leaves out what it cannot judge."""

import asyncio


async def reward(completions, answer, **kwargs):
    await asyncio.sleep(0)
    return [None if not text else float(truth in text) for text, truth in zip(completions, answer)]
