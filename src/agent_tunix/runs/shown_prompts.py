"""Prompts as the model sees them, as text and as tokens. Importing and using this module loads no JAX."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config
from agent_tunix.data import Dropped, Example, PromptEncoder, RowError, iter_examples, nothing_left
from agent_tunix.data.sources import Split
from agent_tunix.environments.agents import AgentPool
from agent_tunix.environments.episode import Episode, StopReason
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.errors import ModelError
from agent_tunix.runs.environment_setup import EpisodeHost, episode_overhead, make_episode_encoder, open_environments

if TYPE_CHECKING:
    from agent_tunix.policy.chat.tokenizer import Tokenizer


# Rows of each set by which a plan judges the longest prompt.
_MEASURED = 256


@dataclasses.dataclass(frozen=True)
class ShownPrompt:
    """The prompt of a row."""

    row: int  # number of the row in its source, from 1
    columns: Mapping[str, Any]
    tools: Sequence[str] = ()  # names of the tools that the prompt declares
    text: str = ""  # the prompt, with the special tokens of the chat template
    tokens: Sequence[tuple[int, str]] = ()  # id and text of each token
    problem: str = ""  # why the row has no prompt; "" if it has one

    def to_data(self) -> dict[str, Any]:
        """Return the prompt as plain data."""
        return {**dataclasses.asdict(self), "num_tokens": len(self.tokens)}


class PromptShower:
    """Rendering of prompts as a run makes them.

    Args:
        config: Configuration from `settle_prompts`.
        tokenizer: The policy's tokenizer.
        environments: Environments in which the policy acts; None for completions of one turn.
    """

    def __init__(self, config: Config, tokenizer: "Tokenizer", environments: EpisodeHost | None) -> None:
        self._tokenizer = tokenizer
        self._environments = environments if isinstance(environments, EnvironmentSet) else None
        self._is_of_agent = isinstance(environments, AgentPool)
        self._encoder = PromptEncoder(tokenizer, config.prompt)
        self._episodes = None if self._environments is None else make_episode_encoder(config, tokenizer)

    def show(self, example: Example) -> ShownPrompt:
        """Return the prompt of a row. In an environment, its episode is begun and closed."""
        shown = ShownPrompt(example.index, example.columns)
        if self._is_of_agent:
            return dataclasses.replace(shown, problem="the agent writes its own prompts, which the rollouts show")
        try:
            messages = self._encoder.messages(example)
            if self._environments is not None:
                return self._of_episode(shown, messages)
            names = [tool["function"]["name"] for tool in example.tools]
            return self._filled(shown, names, self._encoder.split(messages, example.tools))
        except RowError as error:
            return dataclasses.replace(shown, problem=f"{error.reason} {error.detail}".strip())
        except ModelError as error:
            return dataclasses.replace(shown, problem=str(error))

    def _of_episode(self, shown: ShownPrompt, messages: Sequence[dict[str, Any]]) -> ShownPrompt:
        environments, encoder = self._environments, self._episodes
        assert environments is not None
        assert encoder is not None
        episode = Episode(lambda: environments.open(shown.columns), encoder.call_format)
        episode.begin(shown.columns, messages, 0)
        try:
            if episode.error:
                return dataclasses.replace(shown, problem=episode.error)
            tools = episode.environment.tools
            return self._filled(shown, [tool.name for tool in tools], encoder.split_prompt(episode.messages, tools))
        finally:
            episode.stop(StopReason.ERROR, "only the prompt is shown")
            episode.conclude()

    def _filled(self, shown: ShownPrompt, tools: Sequence[str], parts: Sequence[str]) -> ShownPrompt:
        (ids,) = self._tokenizer.encode_prompts([parts])
        pieces = self._tokenizer.pieces(ids)
        text = "".join(parts)
        first = pieces[0] if pieces and not text.startswith(pieces[0]) else ""  # a beginning-of-sequence token
        return dataclasses.replace(
            shown, tools=tools, text=f"{first}{text}", tokens=list(zip(ids, pieces, strict=True))
        )


def show_prompts(config: Config, working_directory: Path, split: Split, count: int) -> Iterator[ShownPrompt]:
    """Yield the prompts of the first rows of a split; of a mixture, those of the first rows of each set.

    Args:
        config: The composed configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        split: The rows: `train` or `test`.
        count: Most rows of each set.

    Raises:
        ConfigError, DataError, ModelError: The rows, the tokenizer or the environment cannot be used.
    """
    from agent_tunix.data.prompting import settle_prompts
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.files.directory import find_model_directory

    config = settle_prompts(config)
    tokenizer = Tokenizer(find_model_directory(config.model), config.prompt)
    with open_environments(config, working_directory) as environments:
        shower = PromptShower(config, tokenizer, environments)
        for examples in _first_examples(config, split, count):
            yield from map(shower.show, examples)


def measure_prompts(config: Config) -> Config:
    """Return the configuration with the longest prompt of the first rows, without calling an environment's `reset`.

    Raises:
        AgentTunixError: The rows or the tokenizer cannot be used.
    """
    from agent_tunix.data.prompt_lengths import prompt_limit, with_prompt_length
    from agent_tunix.data.prompting import encode_examples, settle_prompts
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.files.config_file import read_context_length
    from agent_tunix.policy.files.directory import find_model_directory

    directory = find_model_directory(config.model)
    settled = settle_prompts(config)
    tokenizer, context = Tokenizer(directory, settled.prompt), read_context_length(directory)
    examples = [example for of_set in _first_examples(settled, "train", _MEASURED) for example in of_set]
    with open_environments(config, Path.cwd()) as environments:
        overhead = episode_overhead(settled, tokenizer, environments)
        prompts = encode_examples(examples, tokenizer, settled, context=context, overhead=overhead)
    measured = with_prompt_length(settled, prompts.measured, prompt_limit(settled, context), None)
    return dataclasses.replace(config, generation=measured.generation)


def _first_examples(config: Config, split: Split, count: int) -> Iterator[list[Example]]:
    """Yield the first rows of each set."""
    parts: dict[str | None, Config] = {name: one.config for name, one in data_sets(config).items()} or {None: config}
    for name, part in parts.items():
        dropped = Dropped()
        first = list(itertools.islice(iter_examples(part, split, dropped, name), count))
        if not first:
            raise nothing_left(split, dropped, name)
        yield first
