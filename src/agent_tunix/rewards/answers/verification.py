"""The reward that a verifier process runs. Importing this module imports math-verify, so that no call waits for it."""

import math_verify.grader
import math_verify.parser

from agent_tunix.rewards.answers.thorough import Verdict, verify_thoroughly
from agent_tunix.rewards.sample import Score

__all__ = ["verify_reward"]


def verify_reward(response: str, answer: str) -> Score:
    """Return 1 if math-verify finds the response equal to the reference, else 0."""
    verdict = verify_thoroughly(response, answer)
    return Score(1.0 if verdict is Verdict.EQUAL else 0.0)


# The first comparison builds math-verify's grammar, which takes time.
assert verify_thoroughly("x + \\frac{1}{2}", "\\frac{1}{2} + x") is Verdict.EQUAL, math_verify.__file__
