"""Fingerprint of a reward as data. Two runs with the same fingerprint were trained on the same reward.

For each component it holds the arguments, the mixing, a hash of the source of its function or class, a hash of the
values that it holds (`behaviour.py`), and hashes of the files that it depends on: its own file and the files beside it
that it imports. What a notebook or a script defines has no file of its own; the globals that it uses count instead. A
built-in depends on the package's modules that decide rewards. The source of an uploaded reward is the whole file; its
id and origin do not count. The fingerprint also holds the versions of the packages that those files import.

Paths, line endings, the order of keys and other differences between processes and machines do not count. Neither does
anything that a function reads when it is called (a file, a service, a module with a computed name).
"""

import functools
import importlib.metadata
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards import sources
from agent_tunix.rewards.fingerprint.behaviour import HASH_LENGTH, describe, digest, modules_of, read_source
from agent_tunix.rewards.loading import shown_name
from agent_tunix.rewards.mixture import Component, Mixture
from agent_tunix.rewards.mixture.schedules import Schedule
from agent_tunix.rewards.uploaded import uploaded_imports_of, uploaded_source_of

_PACKAGE = Path(__file__).resolve().parents[2]
_OWN = "agent_tunix."
# Modules of this package that decide what a built-in returns. The package's version stands for the others.
_CONTENT = tuple(
    f"agent_tunix.{name}"
    for name in (
        *("rewards.builtin", "rewards.answers", "rewards.helpers", "rewards.judges", "rewards.reward_model"),
        "execution.sandbox",
    )
)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Fingerprint of a mixture.

    Attributes:
        components: Name → `function`, `source` (a hash), `state` (a hash of the values that it holds), `files` (name →
            hash), `called` (its convention), `args`, `weight`, `requires`, `transform`, `when`; of a reward model in a
            directory also `checkpoint` (a hash).
        on_failure: Treatment of a completion that could not be scored.
        versions: Distribution → version.
    """

    components: Mapping[str, Mapping[str, Any]]
    on_failure: str
    versions: Mapping[str, str]

    @property
    def short(self) -> str:
        """Hash of the whole fingerprint."""
        return digest(json.dumps(self._content(), sort_keys=True, ensure_ascii=True))

    def to_data(self) -> dict[str, Any]:
        """Return the fingerprint ready for JSON, `hash` included."""
        return {"hash": self.short, **self._content()}

    def _content(self) -> dict[str, Any]:
        content = {"components": self.components, "on_failure": self.on_failure, "versions": self.versions}
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain


def fingerprint(mixture: Mixture) -> Fingerprint:
    """Return the fingerprint of a mixture."""
    files = {component.name: _files_of(component) for component in mixture.components}
    return Fingerprint(
        components={component.name: _describe(component, files[component.name]) for component in mixture.components},
        on_failure=mixture.on_failure,
        versions=_versions(
            {file for found in files.values() for file in found},
            {
                name.partition(".")[0]
                for component in mixture.components
                for name in (*uploaded_imports_of(component.reward), *_session_modules(component))
            },
        ),
    )


def changes(before: object, now: Mapping[str, Any]) -> list[str]:
    """Return the differences between two fingerprints, one line each: `weight of brevity 0.1 → 0.2`.

    `now` and `before` are results of `Fingerprint.to_data`. Any other `before` counts as an unknown reward.
    """
    if not isinstance(before, Mapping) or "components" not in before:
        return ["the reward: its fingerprint was not stored"]
    if before.get("hash") == now["hash"]:
        return []
    old, new = before["components"], now["components"]
    lines = [f"component {name}: removed" for name in old if name not in new]
    lines += [f"component {name}: added" for name in new if name not in old]
    for name in new:
        if name in old:
            lines += list(_component_changes(name, old[name], new[name])) or _state_changes(name, old[name], new[name])
    if before.get("on_failure") != now["on_failure"]:
        lines.append(f"rewards.on_failure {before.get('on_failure')} → {now['on_failure']}")
    versions = before.get("versions", {})
    for package in sorted({*versions, *now["versions"]}):
        then, today = versions.get(package), now["versions"].get(package)
        if then != today:
            lines.append(f"version of {package} {then or 'none'} → {today or 'none'}")
    return lines


def _component_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old.get("function") != new["function"]:
        yield f"component {name}: function {old.get('function')} → {new['function']}"
    elif old.get("source") != new["source"]:
        yield f"component {name}: source of {new['function'].rpartition('.')[2]} changed"
    elif old.get("files") != new["files"]:
        files = sorted({*old.get("files", {}), *new["files"]})
        changed = [file for file in files if old.get("files", {}).get(file) != new["files"].get(file)]
        yield f"component {name}: {', '.join(changed)} changed"
    for parameter in sorted({*old.get("args", {}), *new["args"]}):
        then, today = old.get("args", {}).get(parameter, "unset"), new["args"].get(parameter, "unset")
        if then != today:
            yield f"argument {parameter} of {name} {then} → {today}"
    if old.get("called") != new["called"]:
        yield f"calling of {name} {_text(old.get('called'))} → {_text(new['called'])}"
    for key in ("checkpoint", "weight", "requires", "transform", "when"):
        if old.get(key) != new.get(key):
            yield f"{key} of {name} {_text(old.get(key))} → {_text(new.get(key))}"


def _state_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the line for a change that nothing else of the component tells. Earlier versions stored no state."""
    if "state" not in old or old["state"] == new["state"]:
        return []
    return [f"component {name}: values that {new['function'].rpartition('.')[2]} holds changed"]


def _text(value: object) -> str:
    return "none" if value in (None, {}, []) else json.dumps(value, ensure_ascii=False).replace('"', "")


def _describe(component: Component, files: Iterable[Path]) -> dict[str, Any]:
    function = _function_of(component.reward)
    weight = component.weight
    checkpoint = getattr(component.reward, "checkpoint_hash", lambda: None)()
    uploaded = uploaded_source_of(component.reward)
    return {
        **({} if checkpoint is None else {"checkpoint": checkpoint}),
        "function": _name_of(function),
        "source": _source_hash(function) if uploaded is None else uploaded.sha256[:HASH_LENGTH],
        "state": _state_of(component.reward),
        "files": {_file_name(file, function): _file_hash(file) for file in sorted(files)},
        "called": _convention_of(component.reward),
        "args": describe(_args_of(component.reward)),
        "weight": weight.to_data() if isinstance(weight, Schedule) else weight,
        "requires": dict(component.requires),
        "transform": [transform.to_data() for transform in component.transforms],
        "when": component.route.to_data(),
    }


# --- source of a reward ----------------------------------------------------------------------------------------------


def _function_of(reward: object) -> object:
    """Return the function, class or object that the user gave."""
    given = getattr(reward, "definition", reward)
    while isinstance(given, functools.partial):
        given = given.func
    return inspect.unwrap(given) if callable(given) else given


def _args_of(reward: object) -> Mapping[str, Any]:
    """Return the configured arguments, with those of a `functools.partial`."""
    args: dict[str, Any] = dict(getattr(reward, "args", {}))
    given = getattr(reward, "definition", None)
    while isinstance(given, functools.partial):
        args = {**{str(index): value for index, value in enumerate(given.args)}, **given.keywords, **args}
        given = given.func
    return args


def _convention_of(reward: object) -> dict[str, Any]:
    """Return the parts of the calling convention that decide which data the function receives and returns."""
    convention = str(getattr(reward, "convention", ""))
    told = {"convention": convention, "completions": getattr(reward, "form", None)}
    if convention in ("miles", "verl"):
        told["reward_key"] = getattr(getattr(reward, "settings", None), "reward_key", None)
    return {name: value for name, value in told.items() if value is not None}


def _definition(function: object) -> Any:
    """Return the object that has a source: the function, the class, or the class of an object."""
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function)


def _name_of(function: object) -> str:
    """Return `module.qualified_name`. The path's hash in the module name of a loaded file is left out."""
    definition = _definition(function)
    module = shown_name(str(getattr(definition, "__module__", "")))
    return f"{module}.{getattr(definition, '__qualname__', type(function).__qualname__)}"


def _source_hash(function: object) -> str | None:
    """Return a hash of the source, or of the instructions where there is none."""
    definition = _definition(function)
    source = read_source(definition)
    return digest(json.dumps(describe(definition), sort_keys=True) if source is None else source)


def _state_of(reward: object) -> str | None:
    """Return a hash of what the user gave: with values that were caught, attributes, arguments and wrappers.

    None for a reward of this package and for an upload, which their arguments and files describe.
    """
    if isinstance(reward, Mixture):
        return fingerprint(reward).short
    given = getattr(reward, "definition", None)
    if given is None or uploaded_source_of(reward) is not None or _name_of(_function_of(reward)).startswith(_OWN):
        return None
    return digest(json.dumps(describe(given), sort_keys=True))


def _files_of(component: Component) -> set[Path]:
    """Return a component's file and the files beside it that it imports, also indirectly; none for an upload.

    A notebook or script is none of its files, because its other lines, such as a learning rate, decide no reward.
    """
    function = _function_of(component.reward)
    is_session = is_of_main(function)
    modules = _session_modules(component) if is_session else {str(getattr(_definition(function), "__module__", ""))}
    files = (getattr(sys.modules.get(module), "__file__", None) or "" for module in modules)
    starts = {Path(file).resolve() for file in files if file.endswith(".py")}
    if is_session:
        starts = {start for start in starts if not (sources.is_installed(start) or start.is_relative_to(_PACKAGE))}
    own = any(start.is_relative_to(_PACKAGE) for start in starts)
    found, waiting = set(starts), [start for start in starts if own or not sources.is_installed(start)]
    while waiting:
        current = waiting.pop()
        for imported in sources.imported_names(current):
            path = _own_file(imported) if own else _neighbour(current, imported)
            if path is not None and path not in found:
                found.add(path)
                waiting.append(path)
    return found


def _session_modules(component: Component) -> set[str]:
    """Return the modules that a reward of a notebook or script uses; none for another reward."""
    given = getattr(component.reward, "definition", None)
    return modules_of(given) - {"__main__"} if is_of_main(_function_of(component.reward)) else set()


def _file_name(file: Path, function: object) -> str:
    """Return the path relative to the directory of the function's own file, the same on every machine.

    A function of a notebook or script has none; then the path is relative to the directory that it is imported from.
    """
    if is_of_main(function):
        return next((file.relative_to(top).as_posix() for top in sys.path if file.is_relative_to(top)), file.name)
    module = sys.modules[_definition(function).__module__]
    root = Path(str(module.__file__)).resolve().parent
    if file.is_relative_to(_PACKAGE):
        root = _PACKAGE / "rewards" if file.is_relative_to(_PACKAGE / "rewards") else _PACKAGE
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def _own_file(module: str) -> Path | None:
    """Return the file of a module of this package that decides what a reward returns; None for other modules."""
    if not any(module == name or module.startswith(f"{name}.") for name in _CONTENT):
        return None
    return _as_file(_PACKAGE.joinpath(*module.split(".")[1:]))


def _neighbour(file: Path, module: str) -> Path | None:
    return _as_file(file.parent.joinpath(*module.lstrip(".").split(".")))


def _as_file(path: Path) -> Path | None:
    candidates = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((candidate.resolve() for candidate in candidates if candidate.is_file()), None)


def _versions(files: Iterable[Path], further: Iterable[str]) -> dict[str, str]:
    """Return distribution → version of the further modules and of the files' imports, without the standard library."""
    files = set(files)
    modules = set(further) | {
        name.partition(".")[0] for file in files for name in sources.imported_names(file) if not name.startswith(".")
    }
    if any(file.is_relative_to(_PACKAGE) for file in files):
        modules.add("agent_tunix")
    modules -= {*sys.stdlib_module_names, *(file.stem for file in files)}
    names = {"agent_tunix"} & modules
    names |= {name for module in modules - names for name in _distributions_of(module)}
    return {name: _version(name) for name in sorted(names)}


def _distributions_of(module: str) -> Sequence[str]:
    """Return the distributions that a module belongs to.

    Most modules belong to the distribution of the same name. For others, this function reads all installed
    distributions, which is slow.
    """
    try:
        namesake = importlib.metadata.distribution(module)
    except importlib.metadata.PackageNotFoundError:
        return _distributions().get(module, ())
    if module in (namesake.read_text("top_level.txt") or "").split():
        return [namesake.metadata["Name"]]
    return _distributions().get(module, ())


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return "not installed"


def _file_hash(file: Path) -> str | None:
    try:
        return digest(_normalise(sources.read(file).decode("utf-8", errors="replace")))
    except OSError:
        return None


def _normalise(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
