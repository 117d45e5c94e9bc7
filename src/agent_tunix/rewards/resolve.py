"""Resolution of `training.reward_function` to rewards.

A user may write:

- a name: `math`; a registered name, a registered name without `_reward`, or a file of `conf/reward/`, in this order;
- a dotted path: `custom_rewards.my_reward_v1`, looked up in `agent_tunix` first, then in the working directory and on
  the import path;
- a function or class of a file: `path/to/file.py:function`, or `path/to/file.py` if it has only one, or one named
  `compute_score` or `reward_func`;
- the name of an entry point that an installed package has in the group `agent_tunix.rewards`;
- the bare name of a function in `agent_tunix.custom_rewards` or in `custom_rewards.py` of the working directory. If a
  bare name is not registered, both are imported if they exist, so their registrations are found too;
- the name or id, `rf_…`, of an uploaded reward function, if the caller can fetch uploads (`fetch`);
- a list of these: components of weight 1, each named after its function;
- a mapping of named components: `{correct: math, tags: {function: format, weight: 0.2, args: {…}}}`.

| key of a component | meaning |
| --- | --- |
| `function` | any of the above except a list or mapping |
| `args` | its arguments |
| `weight` | its factor in the total, 1.0 by default; or a schedule (`mixture.schedules`) |
| `requires` | its gate (`mixture.gates`) |
| `transform` | transforms of its value before it is weighed (`transforms`) |
| `when` | the rows to which it applies (`mixture.routes`) |
| `cost` | cheaper components are computed first, as far as gates allow; built-ins cost 0, others 1 |
| `kind` | the property that it measures (`kinds`), instead of the kind that its function declares |
| `reason` | the reason for it, in your words, shown with the reward, in the log and in the report |

Arguments come from a component's `args` and from `rewards.args.<name>.<param>`, where `<name>` is the component's or
its function's. The two must not contradict each other, so that either shows the values that the run uses.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards import loading, registry
from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.conventions import CallSettings
from agent_tunix.rewards.finding import Finder, function_name, nearest
from agent_tunix.rewards.kinds import read_kind
from agent_tunix.rewards.mixture import Component, Mixture
from agent_tunix.rewards.mixture.gates import read_requires
from agent_tunix.rewards.mixture.routes import ALL_ROWS, Route, read_route
from agent_tunix.rewards.mixture.schedules import Weight, read_weight
from agent_tunix.rewards.transforms import Transform, is_number, read_transforms
from agent_tunix.rewards.uploaded import Fetch

logger = logging.getLogger("agent_tunix.rewards")

COMPONENT_KEYS = ("function", "args", "weight", "requires", "transform", "when", "cost", "kind", "reason")
_BUILTIN_MODULES = "agent_tunix.rewards.builtin."


def resolve_reward(
    spec: object,
    *,
    modules: Sequence[str] = (),
    args: Mapping[str, Mapping[str, Any]] | None = None,
    reward_directories: Sequence[Path] = (),
    working_directory: Path | None = None,
    on_failure: str = "exclude",
    convention: str = "auto",
    completions: str = "auto",
    reward_key: str | None = None,
    fetch: Fetch | None = None,
) -> Mixture:
    """Return the mixture that a reward specification describes.

    Args:
        spec: A name, a dotted path, `file.py:function`, a function, a list of these, or a mapping of components.
        modules: Modules or files to import first, for their registrations (`rewards.modules`).
        args: Arguments by component or function name (`rewards.args`).
        reward_directories: Directories of component files (`conf/reward`), in the order of search.
        working_directory: Base of relative paths, with `custom_rewards.py`; by default the current directory.
        on_failure: Treatment of a completion that could not be scored; see `Mixture`.
        convention: Convention of functions whose signature does not tell it (`rewards.convention`).
        completions: Form of completions for batch functions, `text` or `messages`; `auto`: the form that they can take.
        reward_key: Key of the reward in a dict that a function returns.
        fetch: Source of uploaded rewards; None if there is none.

    Returns:
        The components with their weights; a single reward is one component of weight 1.

    Raises:
        UnknownRewardError: No reward has that name; the message lists the names and the nearest match.
        RewardError: A file failed to import, a component is malformed, or an argument is unknown or contradictory.
        RewardSignatureError: A function cannot be called with a response.
    """
    finder = Finder(
        tuple(Path(d) for d in reward_directories),
        Path(working_directory or Path.cwd()).resolve(),
        CallSettings(convention, completions, reward_key),
        tuple(modules),
        fetch,
    )
    for module in modules:
        finder.import_module(module)
    if isinstance(spec, str) and (file := finder.reward_file(spec)):
        entries, name = _entries_of_mapping(read_components_file(file)), spec
    elif isinstance(spec, Mapping):
        entries, name = _entries_of_mapping(spec), None
    elif isinstance(spec, Sequence) and not isinstance(spec, str):
        entries, name = _entries_of_list(spec), None
    else:
        entries, name = [_Entry(function_name(spec), spec)], None
    if not entries:
        raise RewardError("training.reward_function must name a reward, but is empty; for example `math`")
    components = _build(entries, finder, args or {})
    for caught in loading.take_caught_imports():
        logger.warning("%s", caught)
    return Mixture(components, on_failure=on_failure, name=name)


def read_components(
    spec: object, *, reward_directories: Sequence[Path] = (), working_directory: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Return the components of a specification, each written out as a mapping of keys.

    The arguments are those of `resolve_reward`, which has accepted `spec`.

    Returns:
        Name → keys, `function` among them. A function that was given as an object becomes text: its place in a file.

    Raises:
        RewardError: A file of components cannot be read, or the specification is malformed.
    """
    if isinstance(spec, str):
        finder = Finder(tuple(reward_directories), Path(working_directory or Path.cwd()).resolve())
        file = finder.reward_file(spec)
        entries: Mapping[Any, object] = {function_name(spec): spec} if file is None else read_components_file(file)
    elif isinstance(spec, Mapping):
        entries = spec
    elif isinstance(spec, Sequence):
        entries = {function_name(item): item for item in spec}
    else:
        entries = {function_name(spec): spec}
    whole = {
        str(name): dict(settings) if isinstance(settings, Mapping) else {"function": settings}
        for name, settings in entries.items()
    }
    return {name: {**keys, "function": _as_text(keys.get("function"))} for name, keys in whole.items()}


def _as_text(function: object) -> object:
    """Return text and collections unchanged; for a function object, its place in a file, or else its name."""
    if isinstance(function, str | Mapping | Sequence):
        return function
    return loading.place_of(function) or function_name(function)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A component as written, before its function is found."""

    name: str
    function: object
    args: Mapping[str, Any] = field(default_factory=dict)
    weight: Weight = 1.0
    requires: Mapping[str, float] = field(default_factory=dict)
    transforms: tuple[Transform, ...] = ()
    route: Route = ALL_ROWS
    cost: float | None = None
    kind: Kind | None = None
    reason: str = ""


def _entries_of_list(spec: Sequence[object]) -> list[_Entry]:
    entries = [_Entry(function_name(item), item) for item in spec]
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise RewardError(
                f"the names of a list's rewards must be unique, but two are named {name!r}; use a mapping, for "
                f"example {{{name}: {{function: …}}, {name}_2: {{function: …}}}}",
                code="invalid_mixture",
            )
    return entries


def _entries_of_mapping(spec: Mapping[Any, object]) -> list[_Entry]:
    if "function" in spec and set(spec) <= set(COMPONENT_KEYS):
        raise RewardError(
            "a component requires a name; write {<name>: {function: …, weight: …}}", code="invalid_mixture"
        )
    return [_entry(name, settings) for name, settings in spec.items()]


def _entry(name: str, settings: object) -> _Entry:
    if not isinstance(settings, Mapping):
        settings = {"function": settings}
    unknown = [key for key in settings if key not in COMPONENT_KEYS]
    if unknown:
        raise RewardError(f"component {name!r} has no key {unknown[0]!r}; its keys are {', '.join(COMPONENT_KEYS)}")
    if settings.get("function") is None:
        raise RewardError(f"component {name!r} requires a function; write {name}: {{function: …}}")
    args = settings.get("args") or {}
    if not isinstance(args, Mapping):
        raise RewardError(
            f"the args of component {name!r} must be a mapping of parameters, not {args!r}", code="invalid_reward_args"
        )
    cost: Any = settings.get("cost")
    if cost is not None and not (is_number(cost) and cost >= 0):
        raise RewardError(
            f"the cost of component {name!r} must be a number of at least 0, not {cost!r}", code="invalid_mixture"
        )
    reason: Any = settings.get("reason") or ""
    if not isinstance(reason, str):
        raise RewardError(
            f"the reason of component {name!r} must be text, not {reason!r}; put it in quotes", code="invalid_mixture"
        )
    return _Entry(
        name,
        settings["function"],
        args,
        weight=read_weight(name, settings.get("weight", 1.0)),
        requires=read_requires(name, settings.get("requires")),
        transforms=read_transforms(name, settings.get("transform")),
        route=read_route(name, settings.get("when")),
        cost=None if cost is None else float(cost),
        kind=read_kind(name, settings.get("kind")),
        reason=" ".join(reason.split()),
    )


def _build(entries: Iterable[_Entry], finder: Finder, named_args: Mapping[str, Mapping[str, Any]]) -> list[Component]:
    """Find each component's function and bind its arguments."""
    for name, parameters in named_args.items():
        if not isinstance(parameters, Mapping):
            raise RewardError(
                f"rewards.args.{name} must be a mapping of parameters, not {parameters!r}", code="invalid_reward_args"
            )
    components = []
    used = set()
    for entry in entries:
        registry.check_name(entry.name)
        function = finder.function(entry.function)
        args = dict(entry.args)
        for source in dict.fromkeys((entry.name, function.name)):
            used.add(source)
            for parameter, value in named_args.get(source, {}).items():
                if args.setdefault(parameter, value) != value:
                    raise RewardError(
                        f"{parameter!r} of component {entry.name!r} must be set once, but is {args[parameter]!r} in "
                        f"its args and {value!r} in rewards.args.{source}; remove one of them",
                        code="invalid_mixture",
                    )
        components.append(
            Component(
                entry.name,
                function.bind(entry.name, args),
                weight=entry.weight,
                requires=entry.requires,
                transforms=entry.transforms,
                route=entry.route,
                cost=_default_cost(function.definition) if entry.cost is None else entry.cost,
                kind=entry.kind,
                reason=entry.reason,
            )
        )
    _check_all_used(named_args, used)
    return components


def _default_cost(function: object) -> float:
    """Return 0 for built-ins, so that they run before users' rewards, which may query a model."""
    return 0.0 if f"{getattr(function, '__module__', '')}.".startswith(_BUILTIN_MODULES) else 1.0


def _check_all_used(args: Mapping[str, Any], used: set[str]) -> None:
    for name in args:
        if name in used:
            continue
        if name not in registry.list_reward_functions():
            raise RewardError(
                f"rewards.args.{name}: no reward of this run is named {name!r}{nearest(name, used)}",
                code="unknown_reward",
            )
        logger.warning("rewards.args.%s has no effect: this run's rewards are %s", name, ", ".join(sorted(used)))


def read_components_file(path: Path) -> Mapping[Any, object]:
    """Return the components of a file of `conf/reward/`.

    Raises:
        RewardError: The file cannot be read, or does not hold components.
    """
    from agent_tunix.plain_yaml import load_plain_yaml

    try:
        content = load_plain_yaml(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RewardError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, Mapping) or set(content) != {"components"}:
        raise RewardError(f"{path} must contain one key, `components`, with a mapping of components")
    components = content["components"]
    if not isinstance(components, Mapping) or not components:
        raise RewardError(f"{path}: `components` must be a mapping with at least one named component")
    return components
