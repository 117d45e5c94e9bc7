"""The longest prompt of a run, which is the width of its batches.

With `generation.max_prompt_length=null` it is measured: it is the longest prompt of training and evaluation, rounded up
so that small changes of the data need no other compiled programs, and within the model's context. Streamed rows are
measured by the first ones of each set. In an environment, the declarations of tools and the text of `reset` count.
`reset` is called for a few rows only, and its longest text there counts for all rows, with a reserve if the texts
differ.
"""

import dataclasses
import logging
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agent_tunix.config.episodes import episode_tokens, has_agent
from agent_tunix.config.schema import Config
from agent_tunix.data.episode_prompts import EpisodeEncoder
from agent_tunix.data.examples import Example
from agent_tunix.environments.episode import Episode, StopReason
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.errors import ConfigError, DataError, EnvironmentFailedError, ModelError

_LOGGER = logging.getLogger("agent_tunix.run")

# The measured length is rounded up to a multiple of this.
_MULTIPLE = 64
# An agent writes its own prompts, whose lengths nobody knows before it runs.
_LEAST_OF_AGENT = 1024
# Rows of each environment for which `reset` is called.
_BEGUN = 8


class PromptLimit(NamedTuple):
    """Longest prompt that fits."""

    tokens: int | None  # None for no limit
    reason: str  # where the limit comes from
    remedy: str = ""  # advice if prompts are longer, with a placeholder for the longest


def prompt_limit(config: Config, context: int | None) -> PromptLimit:
    """Return the limit on prompts: the configured one or, with null, what the cache and the model's context leave.

    Args:
        config: The configuration.
        context: Longest text of the model in tokens; None if it is unknown.

    Raises:
        ConfigError: Nothing is left.
    """
    generation = config.generation
    if generation.max_prompt_length is not None:
        key = f"generation.max_prompt_length={generation.max_prompt_length}"
        return PromptLimit(generation.max_prompt_length, key, "set generation.max_prompt_length={longest}")
    rest = episode_tokens(config)
    bounds = [] if context is None else [(context, f"the model's context of {context} tokens")]
    if (slots := generation.cache_size) is not None:
        bounds.append((slots, f"generation.cache_size={slots}"))
    if not bounds:
        return PromptLimit(None, "")
    tokens, what = min(bounds)
    if tokens <= rest:
        raise ConfigError(
            f"prompts require room before {rest} tokens that follow them, but {what} leaves none; lower "
            "generation.max_generation_steps, the limits of environment.*, or set generation.max_prompt_length"
        )
    remedy = f"allow fewer than {rest} tokens after the prompt, or shorten the prompts"
    return PromptLimit(tokens - rest, f"{tokens - rest} ({what}, less {rest} after the prompt)", remedy)


class MeasuredPrompts(NamedTuple):
    """Prompts of a run, as far as their lengths matter: see `Prompts`."""

    examples: Sequence[Example]
    messages: Sequence[Sequence[Mapping[str, Any]]]
    lengths: Sequence[int]  # tokens of each prompt, with the declarations of its tools

    def joined(self, others: "MeasuredPrompts") -> "MeasuredPrompts":
        """Return these prompts and others."""
        return MeasuredPrompts(
            [*self.examples, *others.examples], [*self.messages, *others.messages], [*self.lengths, *others.lengths]
        )


def with_prompt_length(
    config: Config,
    measured: MeasuredPrompts,
    limit: PromptLimit,
    overhead: "EpisodeOverhead | None",
    *,
    is_sample: bool = False,
) -> Config:
    """Return the configuration with the longest prompt as `generation.max_prompt_length`, unless that is set.

    Args:
        config: The configuration.
        measured: All prompts, or the first ones of a stream.
        limit: Longest prompt that fits.
        overhead: Measures what environments add; None for completions of one turn.
        is_sample: True for the first prompts of a stream, for which a power of two leaves room.

    Raises:
        DataError: No prompt fits a given limit together with the text of `reset`.
    """
    if config.generation.max_prompt_length is not None:
        if overhead is not None:
            _check_shortest(config.generation.max_prompt_length, measured, overhead)
        return config
    if not measured.lengths:
        return _replaced(config, _MULTIPLE)
    beginnings = overhead.begin(measured, overhead.some(measured)) if overhead is not None else []
    added_tokens = [tokens - before for before, tokens in beginnings]
    reserve = max(added_tokens) - min(added_tokens) if added_tokens else 0
    longest = max(max(measured.lengths) + max([0, *added_tokens]) + reserve, *(tokens for _, tokens in beginnings), 1)
    width = 1 << (longest - 1).bit_length() if is_sample else longest
    width = max(-(-width // _MULTIPLE) * _MULTIPLE, _LEAST_OF_AGENT if has_agent(config) else 0)
    width = width if limit.tokens is None else max(1, min(width, limit.tokens))
    _LOGGER.info(
        "generation.max_prompt_length=%d: the longest of %d prompts has %d tokens%s, their median is %d",
        width,
        len(measured.lengths),
        longest,
        ", with tools and the text of reset" if overhead is not None else "",
        statistics.median_low(measured.lengths),
    )
    return _replaced(config, width)


def _check_shortest(limit: int, measured: MeasuredPrompts, overhead: "EpisodeOverhead") -> None:
    """Raise DataError if even the shortest prompt does not fit once its episode has begun."""
    shortest = sorted(range(len(measured.lengths)), key=measured.lengths.__getitem__)[:1]
    for _, tokens in overhead.begin(measured, shortest):
        if tokens > limit:
            raise DataError(
                f"prompts must have at most generation.max_prompt_length={limit} tokens, but with its tools and the "
                f"text of reset the shortest has {tokens}; set generation.max_prompt_length=null, which fits all "
                f"prompts, or {tokens} or more",
                code="invalid_prompt",
            )


def _replaced(config: Config, width: int) -> Config:
    return dataclasses.replace(config, generation=dataclasses.replace(config.generation, max_prompt_length=width))


class EpisodeOverhead:
    """The tokens that environments add to the prompts of rows.

    Args:
        encoder: Encoder of prompts.
        environments: Environments of the run.
    """

    def __init__(self, encoder: EpisodeEncoder, environments: EnvironmentSet) -> None:
        self._encoder = encoder
        self._environments = environments
        self._of_tools: dict[str | None, int] = {}

    def of_tools(self, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], length: int) -> int:
        """Return the tokens of the declared tools of a row, measured on the first row of its environment.

        Args:
            row: Columns of the row.
            messages: Its conversation.
            length: Tokens of the conversation alone.

        Raises:
            ModelError: The chat template refuses the messages.
        """
        name = self._environments.name_of(row)
        if name not in self._of_tools:
            tools = self._environments.declared_tools(row)
            self._of_tools[name] = len(self._encoder.encode_prompt(messages, tools)) - length if tools else 0
        return self._of_tools[name]

    def begin(self, measured: MeasuredPrompts, places: Sequence[int]) -> list[tuple[int, int]]:
        """Begin and close the episodes of some rows.

        An episode that fails to begin is left out; the run reports it when it samples.

        Returns:
            For each, the tokens of its prompt without and with the text of `reset`.
        """
        tokens_of_tools: dict[int, int] = {}

        def begin(place: int) -> None:
            columns = measured.examples[place].columns
            episode = Episode(lambda: self._environments.open(columns), self._encoder.call_format)
            episode.begin(columns, [dict(message) for message in measured.messages[place]], 0)
            try:
                if not episode.error:
                    tokens_of_tools[place] = len(
                        self._encoder.encode_prompt(episode.messages, episode.environment.tools)
                    )
            except (ModelError, EnvironmentFailedError):
                pass  # the sampler stops such an episode with the reason
            episode.stop(StopReason.ERROR, "only the prompt was measured")
            episode.conclude()

        self._environments.for_each(begin, places)
        return [(measured.lengths[place], tokens) for place, tokens in sorted(tokens_of_tools.items())]

    def some(self, measured: MeasuredPrompts) -> list[int]:
        """Return some rows of each environment: the longest, and others at equal distances."""
        of_environment: dict[str | None, list[int]] = {}
        for place, example in enumerate(measured.examples):
            of_environment.setdefault(self._environments.name_of(example.columns), []).append(place)
        places: dict[int, None] = {}
        for own in of_environment.values():
            places[max(own, key=measured.lengths.__getitem__)] = None
            places |= dict.fromkeys(own[:: -(-len(own) // (_BEGUN - 1))])
        return list(places)
