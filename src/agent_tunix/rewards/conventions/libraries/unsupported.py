"""Unsupported signatures of libraries, with the function to write instead."""

from collections.abc import Collection
from typing import NamedTuple

from agent_tunix.errors import RewardSignatureError


class Unsupported(NamedTuple):
    """A signature that is refused."""

    library: str  # library, and its name for such a function
    names: frozenset[str]  # parameters that must all be present
    advice: str


_PLAIN = "def reward(response, answer): …"
_VERL = "def compute_score(data_source, solution_str, ground_truth, extra_info): …"
_TRL = "def reward(completions, prompts, **kwargs): …"
_SIGNATURES = (
    ("AReaL's reward function", "prompt completions prompt_ids completion_ids", _PLAIN),
    ("verl's reward manager", "data return_dict", _VERL),
    ("EasyR1's batch score", "reward_inputs", _VERL),
    ("EasyR1's batch score", "predicts ground_truths", _VERL),
    ("EasyR1's score", "reward_input", _VERL),
    ("EasyR1's score", "predict_str ground_truth", _VERL),
    ("rLLM's reward function", "task_info action", _PLAIN),
    ("OpenRLHF's agent", "observation action label", "def reward_func(queries, prompts, labels): …"),
    ("trlX's reward function", "samples outputs", _TRL),
    ("OpenAI's grader", "sample item", "def reward(response, metadata): …"),
    ("DSPy's metric", "example pred", _PLAIN),
    ("DSPy's metric", "gold pred", _PLAIN),
    ("ms-swift's process reward model", "infer_requests ground_truths", _TRL),
)
_UNSUPPORTED = [Unsupported(library, frozenset(names.split()), advice) for library, names, advice in _SIGNATURES]


def refuse_unsupported(names: Collection[str], name: str) -> None:
    """Raise RewardSignatureError if parameters of these names are those of a library that is not supported."""
    for one in _UNSUPPORTED:
        if one.names <= {*names}:
            raise RewardSignatureError(
                f"reward {name!r} has the signature of {one.library}, which is not supported; write `{one.advice}` in a"
                " file, call your function inside, and return its number",
                code="unsupported_library",
            )


def refuse_environment(name: str, function_name: str) -> None:
    """Raise RewardSignatureError for verifiers' `load_environment`."""
    if function_name == "load_environment":
        raise RewardSignatureError(
            f"reward {name!r} is `load_environment` of verifiers, which makes an environment; name one of its rubric"
            " functions instead, moved to the top level of the file: `def correct(completion, answer): …`",
            code="unsupported_library",
        )
