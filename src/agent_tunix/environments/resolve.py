"""Resolution of a name, a dotted path or `file.py:NAME` to an environment.

A tool is resolved to an environment that has this tool alone.
"""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeVar

from agent_tunix.environments.closest import closest
from agent_tunix.environments.conventions import CombinedAdapter, EnvironmentAdapter, adapt_environment
from agent_tunix.environments.conventions.detection import refuse_source
from agent_tunix.environments.randomness import GlobalRandomness
from agent_tunix.environments.registry import RegisteredEntry, find_registered, get_registered
from agent_tunix.errors import InvalidEnvironmentError, RewardError, UnknownEnvironmentError, UnknownRewardError
from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards import loading, sources


@dataclass(frozen=True, slots=True)
class EnvironmentRecipe:
    """Plain data from which another process builds the same environment.

    Attributes:
        spec: A registered name, a dotted path or `file.py:NAME`; None for tools alone.
        args: Arguments of the constructor.
        modules: Modules or files to import first, for their registrations.
        tools: Further tools, each specified like the environment.
        working_directory: Start of relative paths; absolute.
        by_value: What another process cannot load by its name, by specification: packed by `loading.pack_by_value`,
            with its convention; see `sendable`.
        sources: Texts of the user's modules by path, which a worker compiles whatever the disk holds by then.
    """

    spec: str | None
    args: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    working_directory: Path = field(default_factory=Path.cwd)
    by_value: Mapping[str, tuple[bytes, str]] = field(default_factory=dict, repr=False)
    sources: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    is_agent: ClassVar[bool] = False

    @property
    def is_empty(self) -> bool:
        """True if it has neither an environment nor tools."""
        return self.spec is None and not self.tools


Recipe = TypeVar("Recipe", bound=EnvironmentRecipe)


def resolve_environment(
    spec: str,
    *,
    args: Mapping[str, Any] | None = None,
    modules: Sequence[str] = (),
    working_directory: Path | None = None,
) -> EnvironmentAdapter:
    """Return the environment that a specification means.

    Args:
        spec: A registered name, a dotted path or `file.py:NAME`.
        args: Arguments of the constructor.
        modules: Modules or files to import first, for their registrations.
        working_directory: Start of relative paths; by default the current directory.

    Raises:
        UnknownEnvironmentError: Nothing has that name; the message lists the closest match.
        InvalidEnvironmentError: A file failed to import, or the named object is not an environment.
    """
    recipe = EnvironmentRecipe(spec, args or {}, tuple(modules), working_directory=working_directory or Path.cwd())
    return build_environment(recipe)


def build_environment(recipe: EnvironmentRecipe) -> EnvironmentAdapter:
    """Return the environment of a recipe; see `resolve_environment`."""
    directory = recipe.working_directory.resolve()
    with GlobalRandomness(0).active():  # what modules draw is equal in all workers
        for module in recipe.modules:
            import_module(module, directory)
        adapters = [] if recipe.spec is None else [_adapt(recipe, recipe.spec, recipe.args)]
        adapters += [_adapt(recipe, tool, {}) for tool in recipe.tools]
    return adapters[0] if len(adapters) == 1 else CombinedAdapter(adapters)


def sendable(recipe: Recipe) -> Recipe:
    """Return a recipe with what a worker cannot load by its name: what notebooks, scripts and functions define.

    It also has the texts of the user's modules.

    Raises:
        InvalidEnvironmentError: An environment or tool holds something of this process alone.
    """
    packed = {}
    for spec in filter(None, (recipe.spec, *recipe.tools)):
        entry, name = _find(spec, recipe)
        module = str(getattr(entry.definition, "__module__", ""))
        is_imported = module in recipe.modules or loading.is_loaded_file(sys.modules.get(module))
        if is_of_main(entry.definition) or (find_registered(spec) is not None and not is_imported):
            content = loading.pack_by_value(entry.definition)
            if isinstance(content, str):
                advice = "" if recipe.is_agent else ", or set environment.execution=inline"
                raise InvalidEnvironmentError(
                    f"{entry.kind} {name!r} cannot be sent to another process: {content}; make what it needs inside "
                    f"it{advice}",
                    code="not_sendable",
                )
            packed[spec] = content, entry.convention
    directory = recipe.working_directory.resolve()
    return replace(recipe, by_value=packed, working_directory=directory, sources=sources.snapshot())


def _adapt(recipe: EnvironmentRecipe, spec: str, args: Mapping[str, Any]) -> EnvironmentAdapter:
    entry, name = _find(spec, recipe)
    return adapt_environment(entry.definition, name, args, entry.convention)


def _find(spec: str, recipe: EnvironmentRecipe) -> tuple[RegisteredEntry, str]:
    """Return what a specification of a recipe means, and its name in messages."""
    directory = recipe.working_directory.resolve()
    if spec in recipe.by_value:
        content, convention = recipe.by_value[spec]
        return RegisteredEntry("environment", loading.unpack_by_value(content, directory), convention), spec
    path, sign, name = spec.rpartition(":")
    if (path if sign else spec).endswith(".py"):
        module_of_file = _load(directory, path if sign else spec)
        definition = _attribute(module_of_file, name if sign else "", f"{path or spec}:")
        return RegisteredEntry("environment", definition), name
    if "." in spec:
        path, _, name = spec.rpartition(".")
        return RegisteredEntry("environment", _attribute(import_module(path, directory), name, f"{path}.")), name
    return get_registered(spec, is_agent=recipe.is_agent), spec


def find_definition(recipe: EnvironmentRecipe) -> Any:
    """Return the function or class that `spec` of a recipe means, with the modules of the recipe imported.

    Raises:
        UnknownEnvironmentError: There is no such module, file or name.
        InvalidEnvironmentError: A module failed to import.
    """
    for module in recipe.modules:
        import_module(module, recipe.working_directory.resolve())
    return _find(recipe.spec or "", recipe)[0].definition


def import_module(spec: str, directory: Path) -> ModuleType:
    """Import a module or file, for its registrations or its environments.

    Raises:
        UnknownEnvironmentError: There is no such module or file.
        InvalidEnvironmentError: It failed to import.
    """
    if spec.endswith(".py"):
        return _load(directory, spec)
    if (directory / f"{spec}.py").is_file():
        return _load(directory, f"{spec}.py")
    loading.add_to_import_path(directory, last=True)
    try:
        module = loading.load_module(spec)
    except RewardError as error:
        raise InvalidEnvironmentError(str(error), code="environment_import_failed") from error
    if module is None:
        raise UnknownEnvironmentError(
            f"there is no module {spec!r} in {directory} or on the import path; give a file by its path, with .py"
        )
    return module


def _load(directory: Path, file: str) -> ModuleType:
    try:
        return loading.load_file(directory / file, directory)
    except UnknownRewardError as error:
        raise UnknownEnvironmentError(str(error), code="missing_environment_file") from error
    except RewardError as error:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            refuse_source((directory / file).read_text(encoding="utf-8"), file)
        raise InvalidEnvironmentError(str(error), code="environment_import_failed") from error


def _attribute(module: ModuleType, name: str, prefix: str) -> Any:
    attribute = getattr(module, name, None) if name else None
    if attribute is None:
        names = loading.rewards_of(module)
        choices = ", ".join(f"{prefix}{one}" for one in names) or "no classes or functions"
        hint = closest(name, names)
        problem = f"there is no {name!r} in {prefix.rstrip(':.')}{hint}" if name else "name a class."
        raise UnknownEnvironmentError(f"{problem} There are: {choices}.")
    return attribute
