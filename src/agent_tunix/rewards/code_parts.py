"""Inspection of a reward specification: the code, models and endpoints it would use, without importing or running any.

The configuration of another person's run names a reward. Before such a reward is resolved, this module lists the parts
that would be loaded, so that the user can decide.
"""

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from typing import Any, Literal

from agent_tunix.errors import RewardError, RunDirectoryError
from agent_tunix.regular_files import open_regular
from agent_tunix.rewards import registry
from agent_tunix.rewards.judges import JUDGES, OPENAI_KEY, OPENAI_URL
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
    "task",
    "private",
    "hub",
    "command",
    "server",
]

# Arguments of a judge that decide where text and keys are sent, and which file is written.
_JUDGE_ARGUMENTS = ("base_url", "api_key_env", "cache", "extra_body")
_SOURCES = (".py", ".pyc", ".so", ".pyd")
_MODULES = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
_MOST_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class CodePart:
    """Code, a model, an endpoint or data that a reward specification would use beyond the built-in rewards."""

    # A `file` or `module` is Python code. A `custom_rewards` file is imported by itself. An `entry_point` is a reward
    # of an installed package. A `reward_model` is a model that torch loads, or the Python that loads it. A `judge` is
    # an argument of a judge. An `uploaded` reward is isolated unless `rewards.allow_unsandboxed` is set. A `dataset` is
    # code. A `task` of reasoning_gym has parameters, which may name files. Other users cannot read a `private` file. A
    # `hub` part is a model or dataset that the user's account at a hub may open. A `command` starts an MCP server. A
    # `server` is the address of an MCP server.
    kind: Kind
    component: str  # component, or key of the configuration
    text: str  # the specification, or the value
    file: Path | None = None  # file that would be loaded, if known; the working directory of a command

    def describe(self) -> str:
        """Return one line for a person."""
        word = "in" if self.kind == "command" else "from"
        where = "" if self.file is None or str(self.file) == self.text else f", {word} {self.file}"
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
    "task": "makes problems with parameters that may name files or need hours,",
    "private": "reads files that other users cannot read,",
    "hub": "loads from a hub with your account or from your cache:",
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
            raise RewardError(
                f"modules must be modules or files, without a name after a colon, not {module!r}",
                code="module_with_colon",
            )
    looked_up = _Lookup(working_directory.resolve(), tuple(reward_directories), args or {}, with_defaults)
    parts = [looked_up.of_path("rewards.modules", str(module)) for module in modules]
    parts += looked_up.of_spec(spec)
    parts += _beside_files(parts)
    return list(dict.fromkeys(parts))


def _beside_files(parts: Sequence[CodePart]) -> Iterator[CodePart]:
    """Yield modules that lie beside the files, because a file adds its directory to the import path."""
    for directory in dict.fromkeys(part.file.parent for part in parts if part.kind == "file" and part.file):
        for part in parts:
            if part.kind == "module":
                top, *inner = (
                    part.text if part.component == "rewards.modules" else part.text.rpartition(".")[0]
                ).split(".")
                if (found := _descend(directory / top, inner)) is not None and found != part.file:
                    yield CodePart("module", part.component, part.text, found)


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
                given = settings if isinstance(settings, Mapping) else {"function": settings}
                yield from self._of_component(str(name), given.get("function"), given.get("args"), depth)
        elif isinstance(spec, Sequence) and not isinstance(spec, str):
            for item in spec:
                yield from self._of_component(str(item), item, None, depth)
        else:
            yield from self._of_component(str(spec), spec, None, depth)

    def _of_component(self, name: str, function: object, args: object, depth: int) -> Iterator[CodePart]:
        if not isinstance(function, str):
            return  # `resolve_reward` refuses it
        if _is_file(function) or "." in function:
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
        if _is_file(spec):
            path, _, last = spec.rpartition(":")
            return CodePart("file", name, spec, _real(self.working_directory / (path or last)))
        module = spec if name == "rewards.modules" else spec.rpartition(".")[0]
        if module.endswith(".py"):  # `file.py.NAME` is looked up like `file.py:NAME`
            return CodePart("file", name, spec, _real(self.working_directory / module))
        return CodePart("module", name, spec, self._file_of_module(module))

    def _of_own_name(self, name: str, function: str, depth: int) -> Iterator[CodePart]:
        """Yield the possible meanings of a name that no built-in has, in the order of `resolve`."""
        packaged = Path(__file__).parents[1] / "custom_rewards.py"
        for file in (packaged, packaged.with_suffix("") / "__init__.py", self.working_directory / "custom_rewards.py"):
            if os.path.isfile(file):
                yield CodePart("custom_rewards", name, file.name, _real(file))
        for candidate in (function, f"{function}_reward"):
            for point in registry.installed_rewards(candidate):
                yield CodePart("entry_point", name, f"{candidate} = {point.value}")
        if not registry.is_name(function):
            return
        files = (directory / f"{function}.yaml" for directory in self.reward_directories)
        if (
            depth == 0
            and not is_function_id(function)
            and (components := next((one for one in files if one.is_file()), None))
        ):
            from agent_tunix.rewards.resolve import read_components_file

            yield from self.of_spec(read_components_file(components), depth + 1)
        else:
            yield CodePart("uploaded", name, function)

    def _of_judge(self, name: str, function: str, args: object) -> Iterator[CodePart]:
        given = self._arguments(name, function, args)
        if self.with_defaults:
            given.setdefault("base_url", OPENAI_URL)
            if given["base_url"] == OPENAI_URL:
                given.setdefault("api_key_env", OPENAI_KEY)
        for argument in _JUDGE_ARGUMENTS:
            if (value := given.get(argument)) not in (None, True, False, {}):
                yield CodePart("judge", name, f"{argument}={value}")

    def _of_reward_model(self, name: str, function: str, args: object) -> Iterator[CodePart]:
        given = self._arguments(name, function, args)
        yield CodePart("reward_model", name, f"path={given.get('path')}")
        if given.get("python") is not None:
            yield CodePart("reward_model", name, f"python={given['python']}")

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

    def _file_of_module(self, module: str) -> Path | None:
        """Return the file of a module, in the search order of `resolve`; None if it is not found."""
        own = self.working_directory / f"{module}.py"
        if os.path.isfile(own):
            return _real(own)
        top, *inner = module.split(".")
        package = Path(__file__).parents[1]
        for start in (package / top, self.working_directory / top):
            if (found := _descend(start, inner)) is not None:
                return found
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None or spec.origin is None or not spec.has_location:
            return None
        origin = Path(spec.origin)
        return _descend(origin.parent if origin.stem == "__init__" else origin.with_suffix(""), inner) or _real(origin)


def _descend(start: Path, inner: Sequence[str]) -> Path | None:
    path = start.joinpath(*inner)
    # In Python's order: a package, a shared library, a Python file, its bytecode.
    names = [path / f"__init__{suffix}" for suffix in _MODULES] + [Path(f"{path}{suffix}") for suffix in _MODULES]
    candidates = names if path.name else []
    return next((_real(one) for one in candidates if os.path.isfile(one)), None)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_file(spec: str) -> bool:
    return (spec.rpartition(":")[0] or spec).endswith(".py")


def digest_code(file: Path, root: Path | None = None) -> str:
    """Return a digest of a code file and of the code near it that it can import.

    Args:
        file: The file.
        root: A directory. If the file lies in it, all code of the directory counts; otherwise the code beside the file.

    Raises:
        RunDirectoryError: A file of code cannot be read, or is too large to be code.
    """
    top = None if root is None else Path(os.path.realpath(root))
    if top is not None and file.is_relative_to(top):
        within, found = top, (Path(place) / name for place, _, names in os.walk(top) for name in names)
    else:
        within, found = file.parent, iter(file.parent.glob("*"))
    digest = hashlib.sha256(file.name.encode("utf-8", "surrogateescape"))
    for one in sorted({file, *(one for one in found if one.suffix in _SOURCES)}):
        content = digest_file(one) if one.is_file() else "none"
        digest.update(f"{one.relative_to(within)}\0{content}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def digest_file(file: Path) -> str:
    """Return a digest of a file of code.

    Raises:
        RunDirectoryError: The file cannot be read, or is too large to be code.
    """
    try:
        with open_regular(file) as opened:
            if os.fstat(opened.fileno()).st_size <= _MOST_BYTES:
                return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise RunDirectoryError(
            f"the code {file} cannot be read: {error.strerror}; correct its permissions, or move it elsewhere",
            code="unreadable_code",
        ) from error
    raise RunDirectoryError(
        f"{file} must have at most {_MOST_BYTES:,} bytes to be read as code, but has more; move it elsewhere",
        code="code_too_large",
    )
