"""Inspection of a reward specification: the code, models and endpoints it would use, without importing or running any.

The configuration of another person's run names a reward. Before such a reward is resolved, this module lists the parts
that would be loaded, so that the user can decide.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent_tunix.errors import RewardError
from agent_tunix.rewards import registry
from agent_tunix.rewards.judges import JUDGES, OPENAI_KEY, OPENAI_URL, is_local_model
from agent_tunix.rewards.recipe import is_function_id
from agent_tunix.rewards.reward_model import REWARD_MODELS

Kind = Literal[
    "file",
    "module",
    "custom_rewards",
    "entry_point",
    "reward_model",
    "judge",
    "uploaded",
    "dataset",
    "command",
    "server",
]

# Arguments of a judge that decide where text and keys are sent, and which file is written.
_JUDGE_ARGUMENTS = ("base_url", "api_key_env", "cache", "extra_body")


@dataclass(frozen=True, slots=True)
class CodePart:
    """Code, a model or an endpoint that a configuration would use beyond what agent_tunix has."""

    # A `file` or `module` is Python code. A `custom_rewards` file is imported by itself. An `entry_point` is a reward
    # of an installed package. A `reward_model` is a model that torch loads, or the Python that loads it. A `judge` is
    # an argument of a judge. An `uploaded` reward is a function of the store. A `dataset` is code. A `command` starts
    # an MCP server. A `server` is the address of one.
    kind: Kind
    component: str  # component, or key of the configuration
    text: str  # the specification, or the value
    place: Path | None = None  # the file; for a module and a command, the directory where it is looked up first

    def describe(self) -> str:
        """Return one line for a person."""
        word = "from" if self.kind in ("file", "custom_rewards") else "in"
        where = "" if self.place is None or str(self.place) == self.text else f", {word} {self.place}"
        return f"{self.component}: {_WORDS[self.kind]} {self.text}{where}"


_WORDS: dict[Kind, str] = {
    "file": "runs the Python file",
    "module": "imports and runs the Python module",
    "custom_rewards": "imports",
    "entry_point": "runs code of an installed package,",
    "reward_model": "loads a model with torch:",
    "judge": "asks a model over the network:",
    "uploaded": "runs uploaded code without isolation,",
    "dataset": "imports a dataset by its name,",
    "command": "runs the command",
    "server": "sends tool calls to the MCP server",
}


def find_code_parts(
    spec: object,
    *,
    modules: Sequence[str] = (),
    args: Mapping[str, Any] | None = None,
    reward_directories: Sequence[Path] = (),
    working_directory: Path,
    with_defaults: bool = True,
) -> list[CodePart]:
    """Return what `resolve_reward` would load and use beyond the built-in rewards.

    The arguments are those of `resolve_reward`. `with_defaults` includes the default endpoint of a judge whose
    arguments name none.

    Raises:
        RewardError: A file of components cannot be read, or a module is given with a function, as `file.py:function`.
    """
    for module in modules:
        if ":" in str(module):
            raise RewardError(f"modules must be modules or files, without a name after a colon, not {module!r}")
    lookup = _Lookup(working_directory.resolve(), tuple(reward_directories), args or {}, with_defaults)
    parts = [lookup.of_path("rewards.modules", str(module)) for module in modules]
    parts += lookup.of_spec(spec)
    return list(dict.fromkeys(parts))


@dataclass(frozen=True, slots=True)
class _Lookup:
    working_directory: Path
    reward_directories: tuple[Path, ...]
    args: Mapping[str, Any]
    with_defaults: bool

    def of_spec(self, spec: object, depth: int = 0) -> Iterator[CodePart]:
        """Yield the parts of a value of `training.reward_function` or `reward.components`."""
        if isinstance(spec, Mapping):
            for name, settings in spec.items():
                component = settings if isinstance(settings, Mapping) else {"function": settings}
                yield from self._of_component(str(name), component.get("function"), component.get("args"), depth)
        elif isinstance(spec, Sequence) and not isinstance(spec, str):
            for item in spec:
                yield from self._of_component(str(item), item, None, depth)
        else:
            yield from self._of_component(str(spec), spec, None, depth)

    def _of_component(self, name: str, function: object, args: object, depth: int) -> Iterator[CodePart]:
        if not isinstance(function, str):
            return  # `resolve_reward` refuses it
        if "." in function:
            yield self.of_path(name, function)
            return
        shipped = next((one for one in (function, f"{function}_reward") if registry.is_shipped(one)), None)
        if shipped in JUDGES:
            yield from self._of_judge(name, function, args)
        elif shipped in REWARD_MODELS:
            yield from self._of_reward_model(name, function, args)
        elif shipped is None:
            yield from self._of_own_name(name, function, depth)

    def of_path(self, name: str, spec: str) -> CodePart:
        """Return the part of a file or module."""
        # `file.py.NAME` is looked up like `file.py:NAME`.
        for path in (spec, spec.rpartition(":")[0], spec.rpartition(".")[0]):
            if path.endswith(".py"):
                return CodePart("file", name, spec, self.working_directory / path)
        return CodePart("module", name, spec, self.working_directory)

    def _of_own_name(self, name: str, function: str, depth: int) -> Iterator[CodePart]:
        """Yield the possible meanings of a name that no built-in has, in the order of `resolve`."""
        packaged = Path(__file__).parents[1] / "custom_rewards.py"
        for file in (packaged, packaged.with_suffix("") / "__init__.py", self.working_directory / "custom_rewards.py"):
            if file.is_file():
                yield CodePart("custom_rewards", name, file.name, file)
        for candidate in (function, f"{function}_reward"):
            for point in registry.installed_rewards(candidate):
                yield CodePart("entry_point", name, f"{candidate} = {point.value}")
        if not registry.is_name(function):
            return
        files = (directory / f"{function}.yaml" for directory in self.reward_directories)
        components = None if depth or is_function_id(function) else next(filter(Path.is_file, files), None)
        if components is None:
            yield CodePart("uploaded", name, function)
        else:
            from agent_tunix.rewards.resolve import read_components_file

            yield from self.of_spec(read_components_file(components), depth + 1)

    def _of_judge(self, name: str, function: str, args: object) -> Iterator[CodePart]:
        values = self._arguments(name, function, args)
        if self.with_defaults and not is_local_model(str(values.get("model", "")), values.get("base_url")):
            values.setdefault("base_url", OPENAI_URL)
            if values["base_url"] == OPENAI_URL:
                values.setdefault("api_key_env", OPENAI_KEY)
        for argument in _JUDGE_ARGUMENTS:
            if (value := values.get(argument)) not in (None, True, False, {}):
                yield CodePart("judge", name, f"{argument}={value}")

    def _of_reward_model(self, name: str, function: str, args: object) -> Iterator[CodePart]:
        values = self._arguments(name, function, args)
        yield CodePart("reward_model", name, f"path={values.get('path')}")
        if values.get("python") is not None:
            yield CodePart("reward_model", name, f"python={values['python']}")

    def _arguments(self, name: str, function: str, args: object) -> dict[str, Any]:
        # Null means the default: a judge whose `base_url` is null asks the default endpoint, with the default key.
        sources = (args, self.args.get(name), self.args.get(function))
        return {
            key: value
            for source in sources
            if isinstance(source, Mapping)
            for key, value in source.items()
            if value is not None
        }
