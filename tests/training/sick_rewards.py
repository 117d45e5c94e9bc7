"""Rewards of deliberately sick runs: written by mistake, or pleased without anything being solved."""

import random
import zlib

from agent_tunix.rewards import extract_answer


def one(response: str) -> float:
    """Pays for anything. Range [0, 1]."""
    return 1.0


def zero(response: str) -> float:
    """Pays for nothing. Range [0, 1]."""
    return 0.0


def tokens(response: str, num_tokens: int) -> float:
    """Pays for length. Range [0, 1]."""
    return min(num_tokens, 32) / 32


def characters(response: str) -> float:
    """Pays for length, on a scale of its own."""
    return float(len(response))


def bare_tags(response: str) -> float:
    """Pays for tags, whatever is in them, with nothing around. Range [0, 1]."""
    return float(response.startswith("<answer>")) / 2 + float(response.strip().endswith("</answer>")) / 2


bare_tags.kind = "form"  # type: ignore[attr-defined]


def round_number(response: str) -> float:
    """Pays for an answer that ends in 0, which few do. Range [0, 1]."""
    return float(str(extract_answer(response) or "").strip().endswith("0"))


def praised(response: str) -> float:
    """Never quite enthusiastic."""
    return 0.9 if "<answer>" in response else 0.5


def flaky(response: str, answer: str) -> float:
    """Fails on every other response. Range [0, 1]."""
    if zlib.crc32(response.encode()) % 2:
        raise ValueError("the verifier did not answer")
    return float(str(extract_answer(response) or "").strip() == answer)


def mood(response: str) -> float:
    """Pays as it likes. Range [0, 1]."""
    return random.random()


def lottery(response: str, prompt: str) -> float:
    """Pays for one response in fifty. Range [0, 1]."""
    return float(zlib.crc32(f"{prompt}{response}".encode()) % 50 == 0)


def indifferent(response: str, prompt: str) -> float:
    """Finds everything about as good. Range [0, 1]."""
    return 0.8 + 0.02 * (zlib.crc32(f"{prompt}{response}".encode()) % 100) / 100


def graded(response: str, answer: str) -> float:
    """A healthy reward of a user's own: the right answer, and half for the right number of digits. Range [0, 1]."""
    found = str(extract_answer(response) or "").strip()
    return 1.0 if found == answer else 0.3 * (len(found) == len(answer) and found.isdigit())
