"""An async function of the completion and the row's info."""


async def reward(completion, info) -> float:
    text = completion[-1]["content"].lower()
    found = [word for word in info["keywords"] if word in text]
    return len(found) / len(info["keywords"])
