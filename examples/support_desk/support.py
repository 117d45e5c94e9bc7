"""Rewards of answers to a support desk."""

LONGEST = 60


def keywords(response: str, keywords: list[str]) -> float:
    """Return the share of the row's keywords that the answer has. Range [0, 1]."""
    return sum(word in response.lower() for word in keywords) / len(keywords)


def brevity(response: str) -> float:
    """Return 1 for an empty answer, and less the longer it is; 0 from 60 characters on. Range [0, 1]."""
    return max(0.0, 1 - len(response) / LONGEST)
