"""Limits of episodes, from the configuration. Without an environment an episode is a completion: one turn."""

from collections.abc import Iterator

from agent_tunix.config.schema import Config, EnvironmentConfig, GrpoConfig

# Prefix of the names of installed environments of the library verifiers.
VERIFIERS = "verifiers:"
# Keys of environments that an agent does not read, and those with a counterpart for agents.
_OF_ENVIRONMENTS = ("name", "tools", "mcp", "max_turns", "max_result_tokens", "schedule", "on_tool_error", "execution")
_OF_AGENTS = {"timeout_s": "environment.agent.timeout_s", "num_workers": "environment.agent.max_concurrency"}


def has_environment(config: Config) -> bool:
    """Return True if the policy acts in an environment, has tools, or is called by an agent."""
    environment = config.environment
    return environment.name is not None or bool(environment.tools or environment.mcp) or has_agent(config)


def has_agent(config: Config) -> bool:
    """Return True if an agent drives the episodes."""
    agent = config.environment.agent
    return agent.function is not None or agent.command is not None or verifiers_name(config) is not None


def verifiers_name(config: Config) -> str | None:
    """Return NAME of `environment.name=verifiers:NAME`, which drives its episodes as an agent does; None for others."""
    name = config.environment.name
    return name.removeprefix(VERIFIERS) if isinstance(name, str) and name.startswith(VERIFIERS) else None


def turn_tokens(config: Config) -> int:
    """Return the limit on the tokens of one turn."""
    own = config.environment.max_turn_tokens if has_environment(config) else None
    return config.generation.max_generation_steps if own is None else own


def episode_tokens(config: Config) -> int:
    """Return the limit on the tokens after the prompt."""
    return config.environment.max_episode_tokens if has_environment(config) else config.generation.max_generation_steps


# Length of prompts that a plan assumes if the configuration gives none and the prompts are not at hand.
ASSUMED_PROMPT_TOKENS = 512


def prompt_tokens(config: Config) -> int:
    """Return the longest prompt: as configured, as the run has measured it, or as a plan assumes it."""
    given = config.generation.max_prompt_length
    return ASSUMED_PROMPT_TOKENS if given is None else given


def environment_problems(config: Config) -> Iterator[str]:
    """Yield a line for each problem of the group `environment`."""
    environment = config.environment
    if not has_environment(config):
        if environment.args:
            yield "environment.args requires environment.name, but it is null; set environment.name"
        return
    if has_agent(config):
        yield from _agent_problems(config)
    names = environment.name.values() if isinstance(environment.name, dict) else [environment.name or ""]
    if not all(isinstance(name, str) for name in names) or environment.name == {}:
        yield (
            "environment.name must be a name, a dotted path, file.py:Class or a mapping of them, not "
            f"{environment.name!r}"
        )
    if turn_tokens(config) > environment.max_episode_tokens:
        key = (
            "generation.max_generation_steps" if environment.max_turn_tokens is None else "environment.max_turn_tokens"
        )
        yield (
            f"environment.max_episode_tokens must be at least {key}={turn_tokens(config)}, not "
            f"{environment.max_episode_tokens}; raise it, or lower {key}"
        )
    if config.distributed.mode != "none" and environment.schedule == "arrival":
        yield (
            "environment.schedule=arrival requires a run of one process, but distributed.mode is "
            f"{config.distributed.mode}; set environment.schedule=lockstep"
        )


def credit_problems(config: Config) -> Iterator[str]:
    """Yield a line for each setting that contradicts the credit of turns, or that it would not read."""
    grpo, default = config.grpo, GrpoConfig()
    readers = {
        "discount": ("turn", "gigpo", "hgpo", "role"),
        "step_advantage_weight": ("gigpo",),
        "anchor_state": ("gigpo", "hgpo"),
        "history_turns": ("hgpo",),
    }
    for name, kinds in readers.items():
        if grpo.credit not in kinds and getattr(grpo, name) != getattr(default, name):
            needed = " or ".join(kinds)
            yield f"grpo.{name} requires grpo.credit={needed}, but it is {grpo.credit}; set it, or remove the key"
    if grpo.credit == "episode":
        return
    if not has_environment(config):
        yield (
            f"grpo.credit={grpo.credit} requires episodes of several turns, but there is no environment, tool or "
            "agent; set environment.name, or grpo.credit=episode"
        )
    if grpo.credit == "role" and not has_agent(config):
        yield (
            "grpo.credit=role requires an agent, whose requests have roles, but there is none; set environment.agent, "
            "or use grpo.credit=turn"
        )
    if grpo.credit in ("gigpo", "hgpo") and has_agent(config):
        yield (
            f"grpo.credit={grpo.credit} requires an environment whose replies are the states of the turns, but an "
            "agent drives the episodes; use grpo.credit=turn or role"
        )
    if grpo.loss in ("gspo", "gmpo"):
        yield (
            f"grpo.credit must be episode with grpo.loss={grpo.loss}, which has one loss per completion, but is "
            f"{grpo.credit}; use grpo.loss=grpo or gspo_token"
        )
    if grpo.dynamic_sampling_rounds:
        yield (
            f"grpo.dynamic_sampling_rounds must be 0 with grpo.credit={grpo.credit}, which also learns from groups "
            "with equal totals; set it to 0"
        )


def _agent_problems(config: Config) -> Iterator[str]:
    """Yield a line for each setting that an agent contradicts."""
    environment, default = config.environment, EnvironmentConfig()
    agent = environment.agent
    if agent.function is not None and agent.command is not None:
        yield "environment.agent.function and environment.agent.command exclude each other; set one of them to null"
    if not isinstance(agent.command, str | list | None) or agent.command in ("", []):
        yield f"environment.agent.command must be a text or a list of words, not {agent.command!r}"
    for name in (*_OF_ENVIRONMENTS, *_OF_AGENTS):
        # An environment of verifiers is an agent itself, which the limits of agents concern.
        is_itself = name == "name" and agent.function is None and agent.command is None
        if getattr(environment, name) != getattr(default, name) and not is_itself:
            instead = f"set {_OF_AGENTS[name]} instead" if name in _OF_AGENTS else f"remove environment.{name}"
            yield (
                f"environment.{name}={getattr(environment, name)} contradicts environment.agent: an agent has its own "
                f"tools and turns, and runs in a worker process; {instead}"
            )
    if verifiers_name(config) is not None and config.data.source != "verifiers" and not config.data.mixture:
        yield f"environment.name={environment.name} requires the rows of the environment; set data={environment.name}"
    if agent.command is not None and environment.args:
        yield "environment.args requires environment.agent.function to be a class, but the agent is a command"
    if config.distributed.mode != "none":
        yield (
            f"environment.agent requires a run of one process, but distributed.mode is {config.distributed.mode}; set "
            "distributed.mode=none"
        )
