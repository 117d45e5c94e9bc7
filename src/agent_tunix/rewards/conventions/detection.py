"""Detection of a reward's convention from its signature.

| convention | sign |
| --- | --- |
| `plain` | a parameter `response` or `completion` |
| `trl` | a parameter `completions`, `prompts` or `completion_ids` |
| `miles` | a parameter `sample` or `samples` beside `args`, or a first `args` and a second like `sample_or_samples` |
| `environment` | a method `compute_reward` or one for groups; a parameter `rollout_id`; `messages` and `task` |
| `verl` | a parameter `solution_str` or `solution_strs` |
| `openrlhf` | a parameter `queries` |
| `ms_swift` | a class that derives from `ORM` or `AsyncORM` |
| `verifiers` | `state`; `completion` with `info` or `parser`; `completions` with `answers`, `infos` or `tasks` |
| `benchmax` | `completion` with `ground_truth`; `mcp_client` or `workspace` |

A function with `completions` and `**kwargs` is TRL's: it gets every column of the dataset, which may have any name, for
instance `queries` or `answers`. Evidence against that is a parameter that no dataset has as a column (`rollout_ids`,
`parser`), or a file that imports the library whose names the function has.

A class is instantiated with its arguments, and the signature of `__call__` counts. `rewards.convention` decides if the
signature has a sign of that convention, no sign at all, as in `def reward(**kwargs)`, or several. If it is `auto`, a
signature without a sign or with several is an error.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards.conventions.base import CallSettings, Convention, source_of
from agent_tunix.rewards.conventions.environment import METHODS, EnvironmentReward
from agent_tunix.rewards.conventions.libraries.benchmax import BenchmaxReward
from agent_tunix.rewards.conventions.libraries.openrlhf import OpenRlhfReward
from agent_tunix.rewards.conventions.libraries.swift import SwiftReward, is_orm
from agent_tunix.rewards.conventions.libraries.unsupported import refuse_environment, refuse_unsupported, refuse_unusual
from agent_tunix.rewards.conventions.libraries.verifiers import VerifiersReward
from agent_tunix.rewards.conventions.libraries.verl import VerlReward
from agent_tunix.rewards.conventions.miles import MilesReward
from agent_tunix.rewards.conventions.plain import RESPONSE_NAMES, PlainReward
from agent_tunix.rewards.conventions.target import Call, Target
from agent_tunix.rewards.conventions.trl import BATCH_NAMES, OWN_NAMES, TrlReward
from agent_tunix.rewards.loading import imported_by
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
    definition: Any,
    name: str,
    args: Mapping[str, Any] | None = None,
    settings: CallSettings | None = None,
    recipe: RewardRecipe | None = None,
) -> Convention:
    """Return the reward of a function, object or class, in any convention.

    `args` and `settings` come from the configuration. With a `recipe`, another process can build the same reward.

    Raises:
        RewardSignatureError: `definition` fits no convention, or several.
        RewardError: `args` names an unknown parameter.
    """
    settings = settings or CallSettings()
    return CONVENTIONS[detect(definition, name, settings.convention)](definition, name, args, settings, recipe)


def detect(definition: Any, name: str, convention: str = "auto") -> str:
    """Return the convention of a function, object or class.

    Raises:
        RewardSignatureError: No single convention fits and `convention` is `auto`, or `convention` is unknown.
    """
    if convention not in ("auto", *CONVENTIONS):
        raise RewardSignatureError(f"rewards.convention must be auto, {', '.join(CONVENTIONS)}, not {convention!r}")
    if any(callable(getattr(definition, method, None)) for method in METHODS):
        return "environment"
    if is_orm(definition):
        return "ms_swift"
    refuse_environment(definition, name)
    call = Call(Target(definition, {}, name))
    if convention != "auto" and _has_sign(convention, {*call.names}):
        return convention
    refuse_unsupported(call.names, name)
    fits = fitting(call.names, call.takes_any, source_of(definition)[0])
    if len(fits) == 1 and (convention == "auto" or _is_clear(fits[0], call)):
        return fits[0]
    if convention != "auto":
        return convention
    if not fits:
        refuse_unusual(call.names, name)
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


def fitting(names: Sequence[str], takes_any: bool = False, file: str | None = None) -> list[str]:
    """Return the conventions that parameters of these names fit.

    Args:
        names: The names, in order.
        takes_any: True if there is `**kwargs` too.
        file: File of the function, if it has one.
    """
    parameters = {*names}
    is_miles = ("args" in parameters and bool(parameters & {"sample", "samples"})) or _is_miles_by_position(names)
    if "completions" in parameters and takes_any and not _speaks_against_trl(parameters, file):
        return ["trl", "miles"] if is_miles else ["trl"]
    if library := _library_of(parameters):
        return [library]
    if takes_any and "completion" in parameters and "response" not in parameters and _imports(file, "verifiers"):
        return ["verifiers"]
    fits = []
    is_environment = _has_sign("environment", parameters)
    if is_environment:
        fits.append("environment")
    if parameters & set(BATCH_NAMES) and not is_environment:  # an environment may name `completions` too
        fits.append("trl")
    if is_miles:
        fits.append("miles")
    if parameters & set(RESPONSE_NAMES) and not (is_environment and "ground_truth" in parameters):
        fits.append("plain")
    return fits


# Parameters of which each is a sign of a convention, in the order of names that only one library has.
_SIGNS: Mapping[str, Sequence[Collection[str]]] = {
    "verl": ({"solution_str"}, {"solution_strs"}),
    "openrlhf": ({"queries"},),
    "trl": [{name} for name in OWN_NAMES if name != "prompts"],
    "miles": ({"args"},),
    "plain": [{name} for name in RESPONSE_NAMES],
    "environment": ({"rollout_id"}, {"rollout_ids"}, {"messages", "task"}),
    "verifiers": (
        *({"state"}, {"states"}, {"completion", "info"}, {"completion", "parser"}),
        *({"completions", name} for name in ("answers", "infos", "tasks", "parser")),
    ),
    "benchmax": ({"mcp_client"}, {"workspace"}, {"completion", "ground_truth"}),
}
# Names that columns of a dataset do not have.
_NO_COLUMNS = {"rollout_ids", "messages_list", "parser", "mcp_client"}


def _has_sign(convention: str, parameters: Collection[str]) -> bool:
    return any({*sign} <= {*parameters} for sign in _SIGNS.get(convention, ()))


def _is_clear(convention: str, call: Call) -> bool:
    """Return False for a function that may be of any convention, because only one of its names is a library's."""
    names = CONVENTIONS[convention].provided
    return not call.takes_any or convention in ("plain", "trl", "miles") or len({*call.names} & {*names}) > 1


def _is_miles_by_position(names: Sequence[str]) -> bool:
    return len(names) > 1 and names[0] == "args" and "sample" in names[1]


def _speaks_against_trl(parameters: set[str], file: str | None) -> bool:
    """Return True if a function of `completions` and any other columns is one of another library."""
    if parameters & {*OWN_NAMES} - {"prompts", "completions"}:
        return False
    if parameters & _NO_COLUMNS or ("states" in parameters and parameters & {"answers", "infos", "tasks"}):
        return True
    libraries = [library for library in ("verifiers", "benchmax") if _library_of(parameters) == library]
    if _has_sign("environment", parameters):
        libraries.append("benchmax")
    return any(_imports(file, library) for library in libraries)


def _imports(file: str | None, library: str) -> bool:
    return file is not None and library in imported_by(Path(file))


def _library_of(parameters: set[str]) -> str:
    """Return the only library whose functions have parameters of these names; "" if there is none."""
    if "completions" not in parameters:
        for library in ("verl", "openrlhf"):
            if _has_sign(library, parameters):
                return library
    if parameters & {"response", "sample", "samples"}:
        return ""
    if parameters & {"mcp_client", "workspace"} and "completions" not in parameters:
        return "benchmax"
    if _has_sign("environment", parameters) or parameters & ({*OWN_NAMES} - {"prompts", "completions"}):
        return ""
    if _has_sign("verifiers", parameters):
        return "verifiers"
    return "benchmax" if {"completion", "ground_truth"} <= parameters else ""
