"""A generator with its sampling, its reward and its environments, for `agent-tunix generate` and `Run.generate`.

Importing this module does not load JAX.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.episodes import has_environment, turn_tokens
from agent_tunix.config.schema import INFERENCE_CONFIGS
from agent_tunix.data import Example
from agent_tunix.errors import ConfigError
from agent_tunix.runs.trust import environment_parts, require_trust, reward_parts
from agent_tunix.startup import devices
from agent_tunix.training.generation import Generator, PolicySource, resolve_scoring

if TYPE_CHECKING:
    from agent_tunix.rewards import Mixture
    from agent_tunix.runs.environment_setup import EpisodeHost
    from agent_tunix.sampling.token_choice import SamplingParams

_LONGEST_OF_A_MODEL = 512


@dataclass(frozen=True)
class GenerationSettings:
    """Settings of a generation; a sampling value of None is that of `inference_config`, or greedy without one."""

    inference_config: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    max_new_tokens: int | None = None  # None: as in the run, or 512 for a model without its settings
    num_generations: int = 1  # completions of each prompt
    seed: int = 0

    def sampling_values(self) -> dict[str, Any]:
        """Return fields of `SamplingParams`: those of the inference configuration, with the values that are set.

        Without a configuration and values, sampling is greedy. Values without a configuration change plain sampling at
        temperature 1.

        Raises:
            ConfigError: Greedy sampling is combined with a value that it would ignore, or with several completions.
        """
        values = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "min_p": self.min_p}
        settings: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        if self.inference_config is None and settings:
            return settings
        name = self.inference_config or "greedy"
        if name == "greedy" and settings:
            raise ConfigError(
                f"greedy sampling always takes the likeliest token, so it cannot be combined with "
                f"{', '.join(settings)}; remove one of them",
                code="invalid_request",
            )
        if name == "greedy" and self.num_generations > 1:
            raise ConfigError(
                f"more than one completion of each prompt requires sampling, because {self.num_generations} greedy "
                "completions would be identical; add --inference-config standard or --temperature 1 (in Python, "
                "inference_config='standard' or temperature=1.0)",
                code="invalid_request",
            )
        base = dict(zip(("temperature", "top_k", "top_p"), INFERENCE_CONFIGS[name], strict=True))
        return base | {"greedy": name == "greedy"} | settings


@contextlib.contextmanager
def open_generator(
    source: PolicySource, settings: GenerationSettings, scored: Sequence[Example] | None = None, *, trust: bool = False
) -> Iterator[Generator]:
    """Yield a generator, with the run's reward and environments in their workers.

    Args:
        source: The policy.
        settings: Sampling, number and seed.
        scored: Examples whose completions the run's reward scores; None to score none.
        trust: True to use code, commands and endpoints of a run of others.

    Raises:
        ConfigError: The settings contradict each other.
        UntrustedRunError: The run is neither the user's own nor trusted.
        AgentTunixError: The policy, the reward or the environment cannot be loaded.
    """
    devices.prepare(source.run.config.distributed)
    sampling = _choose(source, settings)
    with _scoring(source, scored, trust) as mixture, _acting(source, trust) as environments:
        import absl.logging

        devices.require(source.run.config.distributed)
        absl.logging.set_verbosity(absl.logging.ERROR)  # Orbax logs each file that it reads
        yield Generator(
            source,
            sampling,
            num_generations=settings.num_generations,
            seed=settings.seed,
            mixture=mixture,
            environments=environments,
        )


def _choose(source: PolicySource, settings: GenerationSettings) -> "SamplingParams":
    from agent_tunix.sampling.token_choice import SamplingParams

    longest = turn_tokens(source.run.config) if source.is_run or source.prompts else _LONGEST_OF_A_MODEL
    return SamplingParams(settings.max_new_tokens or longest, **settings.sampling_values())


@contextlib.contextmanager
def _scoring(source: PolicySource, scored: Sequence[Example] | None, trust: bool) -> "Iterator[Mixture | None]":
    """Yield the run's reward in its workers; None without examples to score."""
    if scored is None:
        yield None
        return
    from agent_tunix.runs.reward_setup import make_reward_runner

    config = source.run.config
    require_trust(source.run.root, reward_parts(config, Path.cwd()), trust=trust)
    with make_reward_runner(resolve_scoring(config, scored, source.run.root), config.rewards) as runner:
        yield runner.reward


@contextlib.contextmanager
def _acting(source: PolicySource, trust: bool) -> "Iterator[EpisodeHost | None]":
    """Yield the environments in which the run's policy acts; None without any."""
    from agent_tunix.runs.environment_setup import open_environments

    config = source.run.config
    if has_environment(config):
        require_trust(source.run.root, environment_parts(config, Path.cwd()), trust=trust)
    with open_environments(config, Path.cwd(), source.run.root if source.is_run else None) as environments:
        yield environments
