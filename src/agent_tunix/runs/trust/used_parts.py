"""The code, endpoints and private files that a run would use."""

import contextlib
import glob
import os
from collections.abc import Iterator
from pathlib import Path

from agent_tunix.config.data_sets import TASK_KEYS, data_sets
from agent_tunix.config.schema import Config
from agent_tunix.data.sources.remote import SCHEMES, source_of_scheme
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.errors import AgentTunixError
from agent_tunix.regular_files import is_private
from agent_tunix.rewards.code_parts import CodePart, find_code_parts
from agent_tunix.rewards.registry import is_name
from agent_tunix.runs.reward_setup import correct_spec, reward_directories, reward_spec
from agent_tunix.runs.weights.initial import find_initial

# Data sources that import code named by the dataset.
_SOURCES_WITH_CODE = ("tfds",)
# With more files than this, the user is asked about the whole directory.
_MOST_FILES = 10_000
# Most parts of a path that may have wildcards. With links, each such part may multiply the directories to search.
_MOST_WILDCARDS = 2


def parts_of(config: Config, working_directory: Path, *, with_defaults: bool = True) -> list[CodePart]:
    """Return the code and endpoints that the reward of a configuration uses beyond the built-in rewards."""
    return find_code_parts(
        reward_spec(config, working_directory),
        modules=config.rewards.modules,
        args=config.rewards.args,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
        with_defaults=with_defaults,
    )


def correct_parts(config: Config, working_directory: Path) -> list[CodePart]:
    """Return the code and endpoints of the reward that `evaluation.correct` names; none if that is built in."""
    spec, modules = correct_spec(config)
    if spec is None:
        return []
    return find_code_parts(
        {"evaluation.correct": spec} if not is_name(spec) else spec,
        modules=modules,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )


def environment_parts(config: Config, working_directory: Path, root: Path) -> list[CodePart]:
    """Return the code of environments and tools beyond the built-in ones, MCP servers, and private files named."""
    asked = config.environment
    names = asked.name if isinstance(asked.name, dict) else {} if asked.name is None else {"": asked.name}
    specs = {f"environment.name.{key}".rstrip("."): str(spec) for key, spec in names.items()}
    specs |= {f"environment.tools.{place}": tool for place, tool in enumerate(asked.tools)}
    parts = find_code_parts(
        {key: spec for key, spec in specs.items() if not is_name(spec)},
        modules=asked.modules,
        working_directory=working_directory,
    )
    for key, value in asked.args.items():
        if isinstance(value, str):
            parts += [CodePart("private", f"environment.args.{key}", str(f), f) for f in _private_files(value, root)]
    for place, item in enumerate(asked.mcp):
        server, key = McpServer.read(item, working_directory), f"environment.mcp.{place}"
        if server.url:
            parts.append(CodePart("server", key, server.text))
        else:  # another directory may have other programs and modules for the same words
            parts.append(CodePart("command", key, server.text, server.directory))
        named = [(word, Path(os.path.realpath(server.directory / word))) for word in server.command]
        parts += [CodePart("file", key, word, file) for word, file in named if file.is_file()]
    return parts


def data_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the data that is code, on a hub, or in private files outside the run's directory.

    An evaluation writes its problems into the run's directory, where the run's author may be able to read them. So the
    user must permit data, weights and a chat template that other users may not read, and everything that the user's
    account at a hub may open.
    """
    parts = []
    # With a mixture too, `training.test_data_dir` is read by the settings outside it.
    sets = {"data": config} | {f"data.mixture.{name}": one.config for name, one in data_sets(config).items()}
    for key, of_set in sets.items():
        source = of_set.training.data_source or of_set.data.source
        paths = (of_set.data.path, of_set.training.train_data_dir, of_set.training.test_data_dir)
        for path in filter(None, paths):
            if source in _SOURCES_WITH_CODE or source_of_scheme(path) in _SOURCES_WITH_CODE:
                parts.append(CodePart("dataset", key, path))
            elif source in SCHEMES.values() or "://" in path:
                parts.append(CodePart("hub", key, path))
            parts += [CodePart("private", key, str(file), file) for file in _private_files(path, root)]
        for name, settings in of_set.data.tasks.items():
            if set(settings or {}) - set(TASK_KEYS):
                parts.append(CodePart("task", f"{key}.tasks.{name}", str(dict(settings))))
    return parts + policy_parts(config, root)


def policy_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the sources of a run's policy that are on hubs, or are private files outside the run's directory."""
    template = config.prompt.chat_template
    paths: dict[str, list[str | None]] = {
        "model.path": [config.model.path],
        "training.init_checkpoint": [*_initial_paths(config)],
        "prompt.chat_template": [None if template and "\n" in template else template],
    }
    named = [(key, path) for key, some in paths.items() for path in some if path]
    parts = [CodePart("hub", key, path) for key, path in named if "://" in path]
    for key, path in named:
        parts += [CodePart("private", key, str(file), file) for file in _private_files(path, root)]
    return list(dict.fromkeys(parts + checkpoint_parts(config, root)))


def checkpoint_parts(config: Config, root: Path) -> list[CodePart]:
    """Return the private files outside a run's directory that are its checkpoints or the targets of links in them."""
    path = config.training.checkpoint_dir or str(root / "checkpoints")
    return [CodePart("private", "training.checkpoint_dir", str(file), file) for file in _private_files(path, root)]


def _initial_paths(config: Config) -> list[str]:
    """Return the paths of the run that `training.init_checkpoint` names, and of its checkpoints and model."""
    given = config.training.init_checkpoint
    if given is None:
        return []
    try:
        run, _ = find_initial(given)
    except AgentTunixError:  # without a run, nothing is read
        return [given]
    return [str(run.root), str(run.checkpoints), *filter(None, [run.config.model.path])]


def _private_files(path: str, root: Path) -> list[Path]:
    """Return the files that match a path or pattern, are outside a directory, and are not readable by everyone.

    Return the path itself in three cases: more than `_MOST_FILES` files match; it is a pattern of any depth, which may
    take forever to match; it leads through `/proc`, where `/dev/fd/7` may mean another file later.
    """
    inside = os.path.realpath(root)
    found: dict[Path, None] = {}
    try:
        named = Path(os.path.abspath(os.path.expanduser(path)))
        if any(os.path.realpath(one).startswith("/proc/") for one in (named, *named.parents)):
            return [named]
        if not os.path.lexists(named) and ("**" in path or sum(map(glob.has_magic, named.parts)) > _MOST_WILDCARDS):
            return [named]
        for number, name in enumerate(_walk(path)):
            if number > _MOST_FILES:
                return [Path(os.path.realpath(os.path.expanduser(path)))]
            file = Path(os.path.realpath(name))
            with contextlib.suppress(OSError):  # a missing file cannot be read later either
                if not file.is_relative_to(inside) and (file.is_relative_to("/proc") or is_private(file)):
                    found[file] = None
    except ValueError:  # not a valid path
        return []
    return list(found)


def _walk(path: str) -> Iterator[str]:
    """Yield the matches of a path or pattern, and everything below matching directories, links included."""
    # Data sources do the same: `Path` drops a slash or `/.` at the end, and an existing path is not a pattern, whatever
    # characters it contains.
    named = str(Path(os.path.expanduser(path)))
    for start in [named] if os.path.lexists(named) else glob.iglob(named, recursive=True):
        yield start
        for directory, inner, names in os.walk(start, followlinks=True):
            yield from (os.path.join(directory, name) for name in (*inner, *names))
