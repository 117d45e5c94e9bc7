"""Unsupported signatures and classes of libraries, with the function to write instead."""

import inspect
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

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
# Signatures of names that other functions may have too, so that any convention comes first.
_UNUSUAL_SIGNATURES = (
    ("eval-protocol's evaluation", "messages ground_truth", "def reward(response, answer): …"),
    ("eval-protocol's evaluation", "row", "def reward(response, metadata): …"),
    ("eval-protocol's evaluation", "rows", "def reward(response, metadata): …"),
    ("eval-protocol's evaluation", "messages", "def reward(response, answer): …"),
)


def _read(signatures: Iterable[tuple[str, str, str]]) -> list[Unsupported]:
    return [Unsupported(library, frozenset(names.split()), advice) for library, names, advice in signatures]


_UNSUPPORTED, _UNUSUAL = _read(_SIGNATURES), _read(_UNUSUAL_SIGNATURES)


def refuse_unsupported(names: Collection[str], name: str) -> None:
    """Raise RewardSignatureError if parameters of these names are those of a library that is not supported.

    A function with `completions` is refused only if the library's function has `completions` too.
    """
    _refuse([one for one in _UNSUPPORTED if "completions" in one.names or "completions" not in names], names, name)


def refuse_unusual(names: Collection[str], name: str) -> None:
    """Raise RewardSignatureError as `refuse_unsupported`, for a function that fits no convention."""
    _refuse(_UNUSUAL, names, name)


def _refuse(signatures: Iterable[Unsupported], names: Collection[str], name: str) -> None:
    for one in signatures:
        if one.names <= {*names}:
            raise RewardSignatureError(
                f"reward {name!r} has the signature of {one.library}, which is not supported; write `{one.advice}` in a"
                " file, call your function inside, and return its number",
                code="unsupported_library",
            )


# Packages whose classes define environments, tasks or rubrics, and a name for such classes.
_CLASSES = {
    "verifiers": "verifiers",
    "eval_protocol": "eval-protocol",
    "reward_kit": "eval-protocol",
    "skyrl_gym": "SkyRL",
    "rllm": "rLLM",
    "areal": "AReaL",
}


def is_unsupported(definition: Any) -> bool:
    """Return True for verifiers' `load_environment`, and for a class or object of a library that is not supported."""
    return getattr(definition, "__name__", "") == "load_environment" or bool(_base_of(definition))


def refuse_environment(definition: Any, name: str) -> None:
    """Raise RewardSignatureError for verifiers' `load_environment`, or for what `is_unsupported`."""
    if getattr(definition, "__name__", "") == "load_environment":
        raise RewardSignatureError(
            f"reward {name!r} is `load_environment` of verifiers, which makes an environment; name one of its rubric"
            " functions instead, moved to the top level of the file: `def correct(completion, answer): …`. To train in"
            " the whole environment with its rubric, write data=verifiers:NAME, where NAME is its module",
            code="unsupported_library",
        )
    if base := _base_of(definition):
        library = _CLASSES[base.__module__.partition(".")[0]]
        raise RewardSignatureError(
            f"reward {name!r} derives from {base.__name__} of {library}, whose classes are not supported; write its"
            f" scoring as a function at the top level of the file: `{_PLAIN}`. If it is an environment of several"
            " turns, turn it into a class with `reset` and tools (environment.name)",
            code="unsupported_library",
        )


def _base_of(definition: Any) -> type | None:
    """Return the base of an unsupported library from which a class or an object's class derives, or None."""
    kinds = definition.__mro__ if inspect.isclass(definition) else type(definition).__mro__
    return next((kind for kind in kinds if kind.__module__.partition(".")[0] in _CLASSES), None)
