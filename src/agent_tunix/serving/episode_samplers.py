"""The sampler of a run's episodes: the run itself takes turns with environments, or agents call the policy."""

from collections.abc import Callable

from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.distributed import here
from agent_tunix.engines.sampler import EngineSampler, WaitingSource
from agent_tunix.environments.agents import AgentPool
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.runs.environment_setup import EpisodeHost, log_call_format, make_episode_encoder
from agent_tunix.runs.environment_setup import make_episode_sampler as make_environment_sampler
from agent_tunix.sampling.requests import TokenSource
from agent_tunix.sampling.sampler import BatchSampler, Sampler

_CALLS_OF_AGENT = 32  # calls of one agent that may wait at once


def make_engine_sampler(
    config: Config,
    sampler: Sampler,
    host: EpisodeHost | None,
    tokenizer: Tokenizer,
    source: TokenSource,
    *,
    alone: bool = False,
) -> BatchSampler:
    """Return the sampler of a run's completions or episodes whose tokens come from engines; see below.

    With `alone`, completions of one turn are not shared with the other processes of the run, and nothing is logged.
    """
    episodes = make_episode_sampler(config, sampler, host, tokenizer, source, tells=not alone)
    return episodes or EngineSampler(source, sampler, None if alone else here().from_first)


def make_episode_sampler(
    config: Config,
    sampler: Sampler,
    host: EpisodeHost | None,
    tokenizer: Tokenizer,
    source: TokenSource | None = None,
    *,
    tells: bool = True,
) -> BatchSampler | None:
    """Return the sampler of a run's episodes; None for completions of one turn.

    Args:
        config: The configuration, with the longest prompt measured.
        sampler: Sampler of the policy.
        host: What acts with the policy.
        tokenizer: The policy's tokenizer.
        source: Source of tokens; None for the policy on the devices of this process.
        tells: False to log nothing of environments.
    """
    if host is None:
        return None
    if not isinstance(host, AgentPool):
        return make_environment_sampler(config, sampler, host, tokenizer, source, tells=tells)
    from agent_tunix.sampling.continuous import ContinuousSampler
    from agent_tunix.serving.agent_sampler import AgentSampler, DrivenSource, RolloutLimits

    agent = config.environment.agent
    encoder = make_episode_encoder(config, tokenizer, sampler.eos_ids)
    log_call_format(encoder)
    context, stops = prompt_tokens(config) + episode_tokens(config), tuple(config.generation.stop_strings)
    limits = RolloutLimits(agent.max_calls, agent.max_tokens, context, stops)

    def make_source(version: Callable[[], int]) -> DrivenSource:
        if source is not None:
            return WaitingSource(source, sampler.eos_ids)
        return ContinuousSampler(
            sampler,
            num_places=agent.max_concurrency,
            max_context=context,
            max_waiting=agent.max_concurrency * _CALLS_OF_AGENT,
            version=version,
        )

    return AgentSampler(make_source, tokenizer, host, encoder, limits)
