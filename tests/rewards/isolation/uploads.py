"""Uploaded functions, as a test writes them, scored where they are scored in training."""

import textwrap
from collections.abc import Sequence
from typing import Any

from agent_tunix.rewards import Mixture, Sample, Score, resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.uploaded import UploadedSource

# What an attack gives, or raises, is what the reward says went wrong.
_ATTACK = """
def reward(completions, **kwargs):
    try:
        found = attack()
    except BaseException as error:
        raise RuntimeError(f"refused: {type(error).__name__} {getattr(error, 'errno', None)} {error}")
    raise RuntimeError(f"succeeded: {found!r}")
"""


def upload(code: str, number: int = 0, format: str = "trl") -> UploadedSource:
    """An uploaded file."""
    return UploadedSource(
        f"rf_{number:024d}", f"uploaded_{number}", format, 1, textwrap.dedent(code).encode(), "a test"
    )


def resolve_uploads(*uploads: UploadedSource) -> Mixture:
    """The reward that they are together."""
    known = {one.id: one for one in uploads}
    return resolve_reward(list(known), fetch=known.get, completions="text")


def score_upload(code: str, responses: Sequence[str] = ("x",), *, format: str = "trl", **options: Any) -> list[Score]:
    """What an uploaded file says of completions."""
    samples = [Sample(response, columns={"answer": "4"}) for response in responses]
    (component,) = resolve_uploads(upload(code, format=format)).components
    with make_runner(component.reward, **{"num_workers": 1} | options) as runner:
        return runner.reward.score(samples)


def attack(code: str, **options: Any) -> str:
    """What comes of a function `attack` in an uploaded file: `refused: …` or `succeeded: …`."""
    (score,) = score_upload(textwrap.dedent(code) + _ATTACK, **options)
    return score.detail.removeprefix("RuntimeError: ")
