"""What a verifier process runs. Loading this loads math-verify, so that no call pays for it."""

import math_verify.grader
import math_verify.parser

from agent_tunix.rewards.answers.thorough import Verdict, verify_thoroughly
from agent_tunix.rewards.sample import Score

__all__ = ["verify_reward"]


def verify_reward(response: str, answer: str) -> Score:
    """1 where math-verify finds two answers equal, else 0.

    Args:
        response: An answer.
        answer: The reference.
    """
    verdict = verify_thoroughly(response, answer)
    return Score(1.0 if verdict is Verdict.EQUAL else 0.0)


# Its grammar is built when it is first used.
assert verify_thoroughly("x + \\frac{1}{2}", "\\frac{1}{2} + x") is Verdict.EQUAL, math_verify.__file__
