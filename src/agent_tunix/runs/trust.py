"""Trust in runs: those that this installation started are the user's own, others need `--trust`.

A run's configuration names code that scores completions, commands that start tools, and endpoints that judges call.
Each run that starts or resumes is recorded in `AGENT_TUNIX_HOME`. Code, commands and endpoints of a run without a
record are used only if the user says so. A run that was copied or moved has no record. Listing what a run would use
executes nothing of it.
"""

import json
import logging
import os
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.episodes import verifiers_name
from agent_tunix.config.schema import Config
from agent_tunix.data.sources.remote import source_of_scheme
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.errors import StoreError, UntrustedRunError
from agent_tunix.rewards.registry import is_name
from agent_tunix.runs.code_parts import CodePart, find_code_parts
from agent_tunix.runs.reward_setup import correct_spec, reward_directories, reward_spec
from agent_tunix.store.home import home, make_home
from agent_tunix.visible_text import one_line

_LOGGER = logging.getLogger("agent_tunix.run")
# One JSON object a line: the real path of a run that this installation started.
_RECORDS = "own_runs.jsonl"
_LONGEST_LINE = 1000
# Data sources that import code named by the dataset.
_SOURCES_WITH_CODE = ("tfds", "verifiers")


def record_run(root: Path) -> None:
    """Record a run that starts or resumes, which makes it the user's own.

    Without a record, later commands require `--trust`. So an error is only logged as a warning.
    """
    if is_own_run(root):
        return
    try:
        path = make_home() / _RECORDS
        is_cut = path.exists() and not path.read_bytes().endswith(b"\n")  # a full disk or a power cut
        with path.open("ab") as file:
            file.write((b"\n" if is_cut else b"") + _record_of(root) + b"\n")
    except (OSError, StoreError) as error:
        _LOGGER.warning(
            "the run could not be recorded as yours, so commands require --trust to use its code: %s", error
        )


def is_own_run(root: Path) -> bool:
    """Return True if this installation started or resumed the run of a directory."""
    try:
        records = (home() / _RECORDS).read_bytes().splitlines()
    except OSError:  # nothing was recorded yet
        return False
    return _record_of(root) in records


def _record_of(root: Path) -> bytes:
    return json.dumps({"run": os.path.realpath(root)}).encode()


def require_trust(
    root: Path, parts: Sequence[CodePart], *, trust: bool = False, own_parts: Collection[CodePart] = ()
) -> None:
    """Refuse a run that is not the user's own and would use code, commands or endpoints.

    Args:
        root: Directory of the run.
        parts: The parts that the command would use.
        trust: True if the user trusts the run.
        own_parts: Parts that the user names in the command; they need no trust.

    Raises:
        UntrustedRunError: The run is neither the user's own nor trusted; the message lists the parts.
    """
    foreign = [part for part in dict.fromkeys(parts) if part not in own_parts]
    if trust or not foreign or is_own_run(root):
        return
    lines = "\n".join(map(_line_of, foreign))
    raise UntrustedRunError(
        f"{one_line(str(root))} was not started by this installation of agent_tunix, and would\n{lines}\nCheck the "
        "listed items. Then allow them with --trust (evaluate.py: trust=true), or name your own reward, if the command "
        "accepts one"
    )


def _line_of(part: CodePart) -> str:
    # A line feed in a text of the run would look like a line of ours.
    text = one_line(part.describe())
    return f"  - {text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + ' …'}"


def reward_parts(config: Config, working_directory: Path, *, with_defaults: bool = True) -> list[CodePart]:
    """Return the code and endpoints that the reward of a configuration uses beyond the built-in rewards.

    Uploaded rewards are isolated, so they count only if the configuration allows them without isolation.
    """
    parts = find_code_parts(
        reward_spec(config, working_directory),
        modules=config.rewards.modules,
        args=config.rewards.args,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
        with_defaults=with_defaults,
    )
    return _without_isolated(parts, config)


def correct_parts(config: Config, working_directory: Path) -> list[CodePart]:
    """Return the code and endpoints of the reward that `evaluation.correct` names; none if that is built in."""
    spec, modules = correct_spec(config)
    if spec is None:
        return []
    parts = find_code_parts(
        {"evaluation.correct": spec} if not is_name(spec) else spec,
        modules=modules,
        reward_directories=reward_directories(working_directory),
        working_directory=working_directory,
    )
    return _without_isolated(parts, config)


def _without_isolated(parts: Sequence[CodePart], config: Config) -> list[CodePart]:
    return [part for part in parts if part.kind != "uploaded" or config.rewards.allow_unsandboxed]


def environment_parts(config: Config, working_directory: Path) -> list[CodePart]:
    """Return the code of environments, tools and agents beyond the built-in ones, the commands, and the MCP servers."""
    environment, agent = config.environment, config.environment.agent
    names = environment.name
    specs = {f"environment.name.{key}": str(spec) for key, spec in names.items()} if isinstance(names, dict) else {}
    installed = verifiers_name(config)
    if isinstance(names, str) and installed is None:
        specs["environment.name"] = names
    specs |= {f"environment.tools.{place}": tool for place, tool in enumerate(environment.tools)}
    specs |= {} if agent.function is None else {"environment.agent.function": agent.function}
    parts = find_code_parts(
        {key: spec for key, spec in specs.items() if not is_name(spec)},
        modules=environment.modules,
        working_directory=working_directory,
    )
    if installed is not None:
        parts.append(CodePart("module", "environment.name", installed, working_directory))
    if agent.command is not None:
        text = agent.command if isinstance(agent.command, str) else shlex.join(map(str, agent.command))
        parts.append(CodePart("command", "environment.agent.command", text, working_directory))
    for place, item in enumerate(environment.mcp):
        server, key = McpServer.read(item, working_directory), f"environment.mcp.{place}"
        if server.url:
            parts.append(CodePart("server", key, server.text))
        else:
            parts.append(CodePart("command", key, server.text, server.directory))
    return parts


def data_parts(config: Config) -> list[CodePart]:
    """Return the datasets that are code."""
    parts = []
    # With a mixture too, `training.test_data_dir` is read by the settings outside it.
    sets = {"data": config} | {f"data.mixture.{name}": one.config for name, one in data_sets(config).items()}
    for key, of_set in sets.items():
        source = of_set.training.data_source or of_set.data.source
        for path in filter(None, (of_set.data.path, of_set.training.train_data_dir, of_set.training.test_data_dir)):
            if source in _SOURCES_WITH_CODE or source_of_scheme(path) in _SOURCES_WITH_CODE:
                parts.append(CodePart("dataset", key, path))
    return parts
