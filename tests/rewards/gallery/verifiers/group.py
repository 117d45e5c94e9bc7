"""A group function: what the others did not write earns more."""


async def reward(completions, answers) -> list[float]:
    texts = [completion[-1]["content"] for completion in completions]
    return [1.0 / texts.count(text) + (answer in text) for text, answer in zip(texts, answers)]
