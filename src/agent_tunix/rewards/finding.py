"""Lookup of one reward by a name, a dotted path or `file.py:function`. See `resolve` for the order of lookup."""

import difflib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_tunix.errors import RewardError, StoreError, UnknownRewardError
from agent_tunix.own_functions import is_of_main
from agent_tunix.rewards import loading, registry
from agent_tunix.rewards.conventions import CallSettings, Convention, adapt
from agent_tunix.rewards.conventions.libraries.unsupported import is_unsupported
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.uploaded import Fetch, adapt_uploaded, is_function_id

# Names that libraries look up in a file of rewards: verl's, and that of OpenRLHF, slime and miles.
_USUAL_NAMES = ("compute_score", "reward_func")


@dataclass(frozen=True, slots=True)
class Finder:
    """Finder of rewards."""

    reward_directories: tuple[Path, ...]  # directories of component files, in the order of search
    working_directory: Path  # base of relative paths and directory of `custom_rewards.py`; absolute
    settings: CallSettings = field(default_factory=CallSettings)
    modules: tuple[str, ...] = ()  # modules and files of `rewards.modules`, for recipes; `import_module` imports them
    fetch: Fetch | None = None  # source of uploaded rewards, asked last; None if there is none

    def function(self, spec: object) -> Convention:
        """Return the reward of a specification."""
        if isinstance(spec, Convention):
            return spec.configured(self.settings, spec.recipe)
        if not isinstance(spec, str):
            if not loading.can_score(spec):
                raise RewardError(f"{spec!r} is not a reward; give a name, a dotted path or file.py:function")
            name = function_name(spec)
            return adapt(spec, name, settings=self.settings, recipe=self._recipe_of(spec, name))
        if _is_file(spec):
            return self._from_file(spec)
        if self.fetch is not None and is_function_id(spec):  # no module of the working directory is imported for it
            return self._from_uploads(spec, UnknownRewardError(f"there is no uploaded reward {spec}"))
        try:
            return self._from_dotted_path(spec) if "." in spec else self._from_name(spec)
        except UnknownRewardError as error:
            return self._from_uploads(spec, error)

    def import_module(self, spec: str) -> ModuleType:
        """Import a module or file of `rewards.modules`."""
        if _is_file(spec):
            return self._load(spec)
        module = self._module(spec)
        if module is None:
            raise UnknownRewardError(
                f"rewards.modules: there is no module {spec!r} in {self.working_directory} or on the import path; "
                "give a file by its path, with .py"
            )
        return module

    def reward_file(self, name: str) -> Path | None:
        """Return the file in `conf/reward/` for a name; None if there is none or the name is a registered reward."""
        if not registry.is_name(name) or is_function_id(name) or self._registered(name):
            return None
        candidates = [directory / f"{name}.yaml" for directory in self.reward_directories]
        return next((path for path in candidates if path.is_file()), None)

    def _registered(self, name: str) -> str | None:
        """Return the registered name, with or without `_reward`, or None. Import the user's modules to find it."""
        if name not in registry.list_reward_functions():
            self._custom_modules()
        names = registry.list_reward_functions()
        return next((candidate for candidate in (name, f"{name}_reward") if candidate in names), None)

    def _custom_modules(self) -> list[ModuleType]:
        packaged = loading.load_module("agent_tunix.custom_rewards")
        file = self.working_directory / "custom_rewards.py"
        own = loading.load_file(file) if file.is_file() else None
        return [module for module in (packaged, own) if module is not None]

    def _adapt(self, definition: Any, name: str, spec: str) -> Convention:
        recipe = self._recipe_of(definition, name) if is_of_main(definition) else self._recipe(spec, name)
        return adapt(definition, name, settings=self.settings, recipe=recipe)

    def _recipe_of(self, definition: Any, name: str) -> RewardRecipe | None:
        """Return the recipe of a function, class or object: by its place in a file, or by value; None if neither."""
        place = loading.place_of(definition)
        if place is not None:
            return self._recipe(place, name)
        content = loading.pack_by_value(definition)
        return None if isinstance(content, str) else replace(self._recipe(name, name), by_value=content)

    def _recipe(self, spec: str, name: str) -> RewardRecipe:
        return RewardRecipe(
            spec=spec,
            name=name,
            working_directory=self.working_directory,
            reward_directories=self.reward_directories,
            modules=self.modules,
            convention=self.settings.convention,
            completions=self.settings.completions,
            reward_key=self.settings.reward_key,
        )

    def _from_name(self, name: str) -> Convention:
        if registered := self._registered(name):
            reward = registry.get_reward_function(registered)
            if not isinstance(reward, Convention):
                return reward  # a judge, which is configured by its arguments alone
            # The convention given at registration wins over the configuration's.
            convention = reward.settings.convention
            settings = self.settings if convention == "auto" else replace(self.settings, convention=convention)
            finder = replace(self, settings=settings)
            return reward.configured(settings, finder._registered_recipe(registered, reward))
        for module in self._custom_modules():
            if (module_reward := loading.find_reward(module, name)) is not None:
                return self._adapt(module_reward, name, name)
        if self.reward_file(name):
            raise RewardError(
                f"the function of a component must be a single reward, but {name!r} is a mixture of several; name one "
                "of them",
                code="invalid_mixture",
            )
        names = registry.list_reward_functions()
        files = sorted({path.stem for directory in self.reward_directories for path in directory.glob("*.yaml")})
        raise UnknownRewardError(
            f"there is no reward {name!r}{nearest(name, [*names, *files])} Give your own reward as file.py:function or "
            f"module.function, or register it in custom_rewards.py of this directory. Rewards: {', '.join(names)}."
            + (f" Files of conf/reward: {', '.join(files)}." if files else "")
        )

    def _registered_recipe(self, name: str, reward: Convention) -> RewardRecipe | None:
        """Return a recipe: by name if other processes register it too; otherwise as for an object."""
        module = str(getattr(reward.definition, "__module__", ""))
        is_registered_anywhere = (
            module in self.modules
            or module.startswith("agent_tunix.")
            or (module in sys.modules and loading.is_loaded_file(sys.modules[module]))
            or registry.is_entry_point(name)
        )
        if is_registered_anywhere:
            return self._recipe(name, reward.name)
        return self._recipe_of(reward.definition, reward.name)

    def _from_file(self, spec: str) -> Convention:
        path, _, name = spec.rpartition(":")
        module = self._load(path or name)
        if not path:
            path, name = spec, _only_reward(module, spec)
        return self._adapt(_reward_of(module, name, f"{path}:"), name, f"{path}:{name}")

    def _load(self, file: str) -> ModuleType:
        return loading.load_file(self.working_directory / file, self.working_directory)

    def _from_uploads(self, spec: str, unknown: UnknownRewardError) -> Convention:
        """Return the uploaded reward of a name or id that has no other meaning."""
        try:
            source = None if self.fetch is None else self.fetch(spec)
        except StoreError as error:
            raise UnknownRewardError(
                f"{error}; so {spec!r} was not looked up among uploaded rewards, and there is no other: {unknown}"
            ) from error
        if source is None:
            raise unknown
        name = function_name(spec)
        return adapt_uploaded(source, name, self.settings, self._recipe(source.id, name))

    def _from_dotted_path(self, spec: str) -> Convention:
        path, _, name = spec.rpartition(".")
        packaged = loading.load_module(f"agent_tunix.{path}")
        if packaged and (reward := loading.find_reward(packaged, name)) is not None:
            return self._adapt(reward, name, spec)
        module = self._module(path)
        if module is None and packaged is None:
            raise UnknownRewardError(
                f"there is no reward {spec!r}: no module {path!r} in agent_tunix, in {self.working_directory} "
                "or on the import path"
            )
        return self._adapt(_reward_of(module or packaged, name, f"{path}."), name, spec)

    def _module(self, name: str) -> ModuleType | None:
        """Return a module of the working directory or of the import path."""
        file = self.working_directory / f"{name}.py"
        if os.path.isfile(file):  # False for a path that is too long, unlike `Path.is_file`
            return loading.load_file(file)
        loading.add_to_import_path(self.working_directory, last=True)
        return loading.load_module(name)


def _reward_of(module: ModuleType | None, name: str, prefix: str) -> Any:
    reward = loading.find_reward(module, name) if module else None
    if module is None or reward is None:
        names = loading.rewards_of(module) if module else []
        inside = loading.place_inside(module, name) if module else ""
        raise UnknownRewardError(
            f"there is no function {name!r} in {prefix.rstrip(':.')}{inside or nearest(name, names)} "
            f"{prefix.rstrip(':.')} has: {_choices(names, prefix)}."
        )
    return reward


def _only_reward(module: ModuleType, file: str) -> str:
    """Return the name of a file's reward: the one with a library's usual name, or else the only one."""
    names = loading.rewards_of(module)
    supported = [name for name in names if not is_unsupported(getattr(module, name))]
    candidates = [name for name in names if name in _USUAL_NAMES] or supported or names[-1:]
    if len(candidates) != 1:
        raise RewardError(f"{file} is a file; name one of its functions: {_choices(candidates, f'{file}:')}")
    return candidates[0]


def _is_file(spec: str) -> bool:
    path = spec.rpartition(":")[0] or spec
    return path.endswith(".py")


def _choices(names: Iterable[str], prefix: str) -> str:
    return ", ".join(f"{prefix}{name}" for name in names) or "no functions"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: this package's name for it, or the closest match."""
    names = list(names)
    usual_name = synonym(name)
    if usual_name in names:
        return f"; the closest here is {usual_name!r}."
    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else "."


def function_name(spec: object) -> str:
    """Return the name of a component that is written without one."""
    if isinstance(spec, str):
        return spec.rpartition(":")[2].rpartition(".")[2] if not spec.endswith(".py") else Path(spec).stem
    if isinstance(spec, Convention):
        return spec.name
    if not loading.can_score(spec):
        raise RewardError(f"{spec!r} is not a reward; give a name, a dotted path, file.py:function, or a mapping")
    name = getattr(spec, "__name__", None) or type(spec).__name__
    return str(name) if name != "<lambda>" else "reward"


_HERE = {
    "accuracy": "math",
    "reasoning_accuracy": "math",
    "correctness": "math",
    "gsm8k": "math",
    "math_verify": "math",
    "math_dapo": "math",
    "prime_math": "math",
    "int": "check_numbers",
    "xmlcount": "tag_count",
    "strict_format": "match_format_exactly",
    "soft_format": "match_format_approximately",
    "think": "think_format",
    "reasoning_steps": "step_format",
    "cosine_scaled": "cosine_length",
    "repetition": "ngram_repetition",
    "repetition_penalty": "ngram_repetition",
    "soft_overlong_punishment": "soft_overlong",
    "overlong": "soft_overlong",
    "overlong_buffer": "soft_overlong",
    "len": "response_length",
    "length": "response_length",
    "code": "code_tests",
    "binary_code": "code_tests",
    "ioi_code": "code_tests",
    "cf_code": "code_tests",
    "code_execution": "code_tests",
    "prime_code": "code_tests",
    "language": "language_consistency",
    "json": "json_schema",
    "f1_score": "f1",
    "em": "exact_match",
    "rouge": "overlap",
    "llm_judge": "judge",
}

NAMES = tuple(_HERE)


def synonym(name: str) -> str | None:
    """Return the built-in for a name from another library, or None.

    >>> synonym("get_cosine_scaled_reward"), synonym("accuracy_reward"), synonym("my_reward")
    ('cosine_length', 'math', None)
    """
    name = name.casefold().removeprefix("get_").removesuffix("_func").removesuffix("_reward")
    return _HERE.get(name)
