"""Detection of a reward's convention from its signature.

| convention | sign |
| --- | --- |
| `plain` | a parameter `response` or `completion` |
| `trl` | a parameter `completions`, `prompts` or `completion_ids` |
| `miles` | a parameter `sample` or `samples` beside `args` |
| `environment` | a method `compute_reward` or one for groups; a parameter `rollout_id`; `messages` and `task` |
| `verl` | a parameter `solution_str` or `solution_strs` |
| `openrlhf` | a parameter `queries` |
| `ms_swift` | a class that derives from `ORM` or `AsyncORM` |
| `verifiers` | `state`; `completion` with `info` or `parser`; `completions` with `answers`, `infos` or `tasks` |
| `benchmax` | `completion` with `ground_truth`; `mcp_client` or `workspace` |

A class is instantiated with its arguments, and the signature of `__call__` counts. If a signature has no sign, as in
`def reward(**kwargs)`, or several, `rewards.convention` decides. If that is `auto`, the signature is an error.
"""

from collections.abc import Mapping
from typing import Any

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards.conventions.base import CallSettings, Convention
from agent_tunix.rewards.conventions.environment import METHODS, EnvironmentReward
from agent_tunix.rewards.conventions.libraries.benchmax import BenchmaxReward
from agent_tunix.rewards.conventions.libraries.openrlhf import OpenRlhfReward
from agent_tunix.rewards.conventions.libraries.swift import SwiftReward, is_orm
from agent_tunix.rewards.conventions.libraries.unsupported import refuse_environment, refuse_unsupported
from agent_tunix.rewards.conventions.libraries.verifiers import VerifiersReward
from agent_tunix.rewards.conventions.libraries.verl import VerlReward
from agent_tunix.rewards.conventions.miles import MilesReward
from agent_tunix.rewards.conventions.plain import RESPONSE_NAMES, PlainReward
from agent_tunix.rewards.conventions.target import Call, Target
from agent_tunix.rewards.conventions.trl import BATCH_NAMES, OWN_NAMES, TrlReward
from agent_tunix.rewards.recipe import RewardRecipe

CONVENTIONS: Mapping[str, type[Convention]] = {
    kind.convention: kind
    for kind in (
        PlainReward,
        TrlReward,
        MilesReward,
        EnvironmentReward,
        VerlReward,
        OpenRlhfReward,
        SwiftReward,
        VerifiersReward,
        BenchmaxReward,
    )
}


def adapt(
    given: Any,
    name: str,
    args: Mapping[str, Any] | None = None,
    settings: CallSettings | None = None,
    recipe: RewardRecipe | None = None,
) -> Convention:
    """Return the reward of a function, object or class, in any convention.

    `args` and `settings` come from the configuration. With a `recipe`, another process can build the same reward.

    Raises:
        RewardSignatureError: `given` fits no convention, or several.
        RewardError: `args` names an unknown parameter.
    """
    settings = settings or CallSettings()
    return CONVENTIONS[detect(given, name, settings.convention)](given, name, args, settings, recipe)


def detect(given: Any, name: str, convention: str = "auto") -> str:
    """Return the convention of a function, object or class.

    Raises:
        RewardSignatureError: No single convention fits and `convention` is `auto`, or `convention` is unknown.
    """
    if convention not in ("auto", *CONVENTIONS):
        raise RewardSignatureError(
            f"rewards.convention must be auto, {', '.join(CONVENTIONS)}, not {convention!r}", code="unknown_convention"
        )
    if any(callable(getattr(given, method, None)) for method in METHODS):
        return "environment"
    if is_orm(given):
        return "ms_swift"
    refuse_environment(name, getattr(given, "__name__", ""))
    call = Call(Target(given, {}, name))
    refuse_unsupported(call.names, name)
    fits = fitting(call.names)
    if len(fits) == 1:
        return fits[0]
    if convention != "auto":
        return convention
    if not fits and not call.takes_any:
        return "plain"  # its error says which parameter is missing
    raise RewardSignatureError(
        f"reward {name!r} takes {call.signature}, which "
        + (f"fits the conventions {' and '.join(fits)}" if fits else "fits no convention")
        + (
            "; name `response` (plain), `completions` (trl), `args, sample` (miles) or `rollout_id` (environment), "
            f"or set rewards.convention={'|'.join(fits or CONVENTIONS)}"
        ),
        code="ambiguous_convention",
    )


def fitting(names: list[str]) -> list[str]:
    """Return the conventions that parameters of these names fit."""
    named = set(names)
    if library := _library_of(named):
        return [library]
    fits = []
    is_environment = _is_environment(named)
    if is_environment:
        fits.append("environment")
    if named & set(BATCH_NAMES) and not is_environment:  # an environment may name `completions` too
        fits.append("trl")
    if "args" in named and named & {"sample", "samples"}:
        fits.append("miles")
    if named & set(RESPONSE_NAMES) and not (is_environment and "ground_truth" in named):
        fits.append("plain")
    return fits


def _is_environment(named: set[str]) -> bool:
    return bool(named & {"rollout_id", "rollout_ids"}) or {"messages", "task"} <= named


def _library_of(named: set[str]) -> str:
    """Return the only library whose functions have parameters of these names; "" if there is none."""
    if named & {"solution_str", "solution_strs"}:
        return "verl"
    if "queries" in named:
        return "openrlhf"
    if "response" in named or "sample" in named or "samples" in named:
        return ""
    if named & {"mcp_client", "workspace"}:
        return "benchmax"
    if _is_environment(named) or named & ({*OWN_NAMES} - {"prompts", "completions"}):
        return ""
    if named & {"state", "states"} or ("completion" in named and named & {"info", "parser"}):
        return "verifiers"
    if "completions" in named and named & {"answers", "infos", "tasks"}:
        return "verifiers"
    return "benchmax" if {"completion", "ground_truth"} <= named else ""
