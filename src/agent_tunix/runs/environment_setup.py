"""The environments of a configuration. Importing this module does not load JAX."""

import contextlib
import importlib.util
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent_tunix.config.episodes import has_agent, has_environment, verifiers_name
from agent_tunix.config.schema import Config
from agent_tunix.data import Example, RowError
from agent_tunix.environments import EnvironmentRecipe
from agent_tunix.environments import agents as own_agents
from agent_tunix.environments.agents import AgentLimits, AgentPool, AgentRecipe
from agent_tunix.environments.agents.recipe import read_command
from agent_tunix.environments.conventions.mcp_server import McpServer
from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
from agent_tunix.environments.verifiers import agent_of, open_agents
from agent_tunix.errors import ConfigError, InvalidEnvironmentError
from agent_tunix.policy.files.directory import find_model_directory, is_on_hub
from agent_tunix.tracking.own_code import explaining_missing

if TYPE_CHECKING:
    from agent_tunix.data.episode_prompts import EpisodeEncoder
    from agent_tunix.data.prompt_lengths import EpisodeOverhead
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.sampling.episodes import EpisodeSampler
    from agent_tunix.sampling.requests import TokenSource
    from agent_tunix.sampling.sampler import Sampler

_LOGGER = logging.getLogger("agent_tunix.environments")


# What acts with the policy: environments, or agents.
EpisodeHost = EnvironmentSet | AgentPool


@contextlib.contextmanager
def open_environments(config: Config, working_directory: Path, run: Path | None = None) -> Iterator[EpisodeHost | None]:
    """Yield the environments or the agents of a run; None without any. Workers start with the first episodes.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        run: Directory of the run that the configuration belongs to; None for a new one.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: An environment or tool cannot be used.
    """
    if not has_environment(config):
        yield None
        return
    asked = config.environment
    if has_agent(config):
        with explaining_missing(run):
            pool = _open_agents(config, working_directory)
        with pool:
            yield pool
        return
    template = EnvironmentRecipe(None, asked.args, tuple(asked.modules), working_directory=working_directory)
    limits = HostingLimits(asked.execution, asked.timeout_s, asked.memory_mb, asked.num_workers)
    servers = [McpServer.read(one, working_directory) for one in asked.mcp]
    with explaining_missing(run):
        opened = EnvironmentSet(make_recipes(asked.name, asked.tools, template), limits, servers)
    with opened as environments:
        yield environments


def agent_recipe(config: Config, working_directory: Path) -> AgentRecipe:
    """Return the agent of a configuration that has one.

    Raises:
        InvalidEnvironmentError: The command cannot be read.
    """
    agent = config.environment.agent
    if (name := verifiers_name(config)) is not None:
        recipe = agent_of(name, config.environment.args, working_directory)
        return replace(recipe, modules=tuple(config.environment.modules))
    command = () if agent.command is None else read_command(agent.command)
    modules, args = tuple(config.environment.modules), config.environment.args
    return AgentRecipe(agent.function, args, modules, working_directory=working_directory, command=command)


def _open_agents(config: Config, working_directory: Path) -> AgentPool:
    if importlib.util.find_spec("uvicorn") is None or importlib.util.find_spec("fastapi") is None:
        raise InvalidEnvironmentError(
            "environment.agent requires the server's packages, but fastapi or uvicorn is missing; install "
            "agent_tunix[agents]",
            code="missing_package",
        )
    recipe, asked = agent_recipe(config, working_directory), config.environment
    limits = AgentLimits(asked.agent.timeout_s, asked.memory_mb, asked.agent.max_concurrency)
    if verifiers_name(config) is not None:  # reading its rows has checked it
        return open_agents(recipe, limits)
    return own_agents.open_agents(recipe, limits)


def check_environments(config: Config, working_directory: Path, examples: Mapping[str | None, Example]) -> None:
    """Check that the environments can be used with the rows of the data.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        examples: A row of each data set.

    Raises:
        UnknownEnvironmentError, InvalidEnvironmentError: An environment or tool cannot be used, or requires a column
            that rows lack.
    """
    with open_environments(config, working_directory) as environments:
        if isinstance(environments, EnvironmentSet):
            for example in examples.values():
                environments.check_row(example.columns)
            _check_lengths(config, environments, examples)


def _check_lengths(config: Config, environments: EnvironmentSet, examples: Mapping[str | None, Example]) -> None:
    """Check that `generation.max_prompt_length` has room for a row of each data set with the tools of its environment.

    Raises:
        ConfigError: A prompt is longer.
        ModelError: The tokenizer or its chat template cannot be used.
    """
    from agent_tunix.data.messages import messages_for
    from agent_tunix.policy.chat.tokenizer import Tokenizer

    limit = config.generation.max_prompt_length
    if limit is None or is_on_hub(config.model):
        return
    # Worked examples are drawn later, and only make prompts longer.
    config = replace(config, prompt=replace(config.prompt, num_few_shot=0))
    encoder = make_episode_encoder(config, Tokenizer(find_model_directory(config.model), config.prompt))
    for example in examples.values():
        try:
            messages = messages_for(config.prompt, example)
        except RowError:  # encoding the prompts drops and counts this row
            continue
        tools = environments.declared_tools(example.columns)
        length = len(encoder.encode_prompt(messages, tools))
        if length > limit:
            raise ConfigError(
                f"generation.max_prompt_length={limit} must have room for the tools, but the prompt of row "
                f"{example.index} with {', '.join(tool.name for tool in tools) or 'no tools'} has {length} tokens; set "
                f"generation.max_prompt_length=null, which fits all prompts, or {length} or more",
                code="invalid_prompt",
            )


def make_episode_sampler(
    config: Config,
    sampler: "Sampler",
    environments: EnvironmentSet,
    tokenizer: "Tokenizer",
    source: "TokenSource | None" = None,
    *,
    tells: bool = True,
) -> "EpisodeSampler":
    """Return the sampler of the episodes of a run with environments, whose tokens may come from a source.

    With `tells`, log the environments and the format of tool calls.
    """
    from agent_tunix.distributed import here
    from agent_tunix.distributed.shared_environments import SharedEnvironments
    from agent_tunix.engines.episodes import EngineEpisodeSampler
    from agent_tunix.sampling.episodes import EpisodeLimits, EpisodeSampler

    asked = config.environment
    limits = EpisodeLimits(
        asked.max_turns,
        asked.max_episode_tokens,
        asked.max_result_tokens,
        fail_on_tool_error=asked.on_tool_error == "fail",
        waits_for_all=asked.schedule == "lockstep",
    )
    if tells:
        _LOGGER.info("environment: %s", environments.describe())
    shared = environments if here().count == 1 else SharedEnvironments(environments, here())
    encoder = make_episode_encoder(config, tokenizer, sampler.eos_ids)
    if tells and environments.may_have_tools:
        log_call_format(encoder)
    if source is not None:
        from_first = None if here().count == 1 else here().from_first
        return EngineEpisodeSampler(source, sampler, shared, encoder, limits, from_first)
    return EpisodeSampler(sampler, shared, encoder, limits)


def episode_overhead(config: Config, tokenizer: "Tokenizer", host: EpisodeHost | None) -> "EpisodeOverhead | None":
    """Return what measures the tokens that environments add to prompts; None for agents, which write their own."""
    from agent_tunix.data.prompt_lengths import EpisodeOverhead

    if not isinstance(host, EnvironmentSet):
        return None
    return EpisodeOverhead(make_episode_encoder(config, tokenizer), host)


def make_episode_encoder(
    config: Config, tokenizer: "Tokenizer", eos_ids: Sequence[int] | None = None
) -> "EpisodeEncoder":
    """Return the encoder of a run's episodes.

    Args:
        config: The configuration, with its worked examples drawn.
        tokenizer: The policy's tokenizer.
        eos_ids: Tokens that end a turn; None for those of the tokenizer.
    """
    from agent_tunix.data.episode_prompts import EpisodeEncoder

    return EpisodeEncoder(tokenizer, config.prompt, eos_ids, config.environment.call_format)


def log_call_format(encoder: "EpisodeEncoder") -> None:
    """Log the format in which tool calls are read, and why; as a warning if nothing shows it."""
    remedy = "; set environment.call_format if the model writes another one" if encoder.is_guessed_format else ""
    level = logging.WARNING if encoder.is_guessed_format else logging.INFO
    _LOGGER.log(level, "tool calls: format %s, because %s%s", encoder.call_format, encoder.format_reason, remedy)
