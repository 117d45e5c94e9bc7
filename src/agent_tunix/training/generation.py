"""`agent-tunix generate`: completions of a run's policy, or of any model directory.

Importing this module does not load JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_tunix.config.checks import check
from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, DataConfig, ModelConfig, PromptConfig
from agent_tunix.data import Example, PromptEncoder, RowError, make_problem
from agent_tunix.data.messages import messages_for
from agent_tunix.errors import ConfigError, DataError, RewardError
from agent_tunix.runs.exported_prompts import find_prompts, with_prompts
from agent_tunix.runs.found_run import FoundRun, Step, find_run
from agent_tunix.runs.weights.trained_policy import TrainedPolicy, load_trained_policy

if TYPE_CHECKING:
    from agent_tunix.rewards import Mixture, Sample, Score
    from agent_tunix.runs.environment_setup import EpisodeHost
    from agent_tunix.sampling.token_choice import SamplingParams

# Completions generated at once; this bounds the memory of the key-value cache.
_COMPLETIONS_AT_ONCE = 64
# Prompts are padded to a power of two of at least this, so that a few compiled programs serve every length.
_SHORTEST_PADDED = 64
# Prompts of episodes also contain tools and the text of `reset`. Their arrays are as wide as the longest of a batch.
_LONGEST_OF_EPISODES = 2**12
_RAW_TEMPLATE = "{%- for message in messages %}{{- message.content }}{%- endfor %}"


@dataclass(frozen=True)
class PolicySource:
    """The policy that generates completions."""

    run: FoundRun  # the run. A model directory has a run with default settings
    step: Step
    is_run: bool  # True for a run, which has a reward of its own; False for a model directory
    prompts: Path | None = None  # file of an exported model with the settings of its prompts


def find_source(place: Path | str, step: Step) -> PolicySource:
    """Return the policy of a run's directory, or of a model.

    Args:
        place: Directory of a run or of a Hugging Face model; as a text also a name of `conf/model`, or what
            `model.path` accepts.
        step: Step of the run's checkpoint; None for a model.

    Raises:
        ConfigError: The config.yaml of the run, or the file with the prompts of an export, is damaged or has a value
            out of range. Or a step is given for a model directory.
        ModelError: The path is neither.
    """
    name, place = str(place), Path(place)
    # A model that was exported into a run's directory counts as a model.
    in_run = (place.absolute().parent / "config.yaml").is_file() and not (place / "config.json").is_file()
    if (place / "config.yaml").is_file() or in_run:
        run = find_run(place, "RUN")
        check(run.config)  # somebody else may have written it
        return PolicySource(run, step, is_run=True)
    if step is not None:
        raise ConfigError(
            f"--step requires a run, but {place} is a model directory without a checkpoint of step {step}; remove "
            "--step",
            code="invalid_request",
        )
    from agent_tunix.policy.families import read_architecture
    from agent_tunix.policy.files.directory import find_model_directory

    path = name if place.is_dir() else _path_of_name(name)
    directory = find_model_directory(ModelConfig(path=path))
    model = ModelConfig(model_family=read_architecture(directory).model_type, model_size="", path=path)
    config = Config(model=model)
    if (prompts := find_prompts(directory)) is not None:
        config = with_prompts(config, prompts)
        check(config)
    return PolicySource(FoundRun(place, config, place / "checkpoints"), 0, is_run=False, prompts=prompts)


def _path_of_name(name: str) -> str | None:
    """Return `model.path` of a file of `conf/model`, or a name that is no such file."""
    from agent_tunix.rewards.judges import find_model_file
    from agent_tunix.rewards.judges.local import ModelKey
    from agent_tunix.runs.weights.judge_models import model_config

    return name if find_model_file(name) is None else model_config(ModelKey(name, None, "auto")).path


def with_prompt(source: PolicySource, name: str | None, *, raw: bool) -> PolicySource:
    """Return the source with the prompt configuration that the user chose, if any.

    Args:
        source: Policy of a run or model.
        name: Name of a file of `conf/prompt`; None for the prompt of the run, the export or the model.
        raw: True to use the text unchanged, without a template.

    Raises:
        ConfigError: There is no file of that name.
    """
    config = source.run.config
    if not raw and name is None:
        return source
    if raw:
        config = dataclasses.replace(config, prompt=PromptConfig(system=None, chat_template=_RAW_TEMPLATE))
    else:
        prompt_config = compose_overrides([f"prompt={name}"])
        generation = dataclasses.replace(config.generation, stop_strings=prompt_config.generation.stop_strings)
        config = dataclasses.replace(config, prompt=prompt_config.prompt, generation=generation)
    return dataclasses.replace(source, run=dataclasses.replace(source.run, config=config), prompts=None)


def make_prompt(prompt: str, number: int, data: DataConfig) -> Example:
    """Return the example of a prompt without other columns; `number` counts from 1."""
    return make_problem({data.prompt_column: prompt, "question": prompt}, number, data)


@dataclass(frozen=True)
class Completion:
    """A completion and its score."""

    sample: Sample
    score: Score | None  # score of the run's reward; None if completions are not scored

    def to_row(self, line: int) -> dict[str, Any]:
        """Return a row of the output.

        Args:
            line: Line number of the prompt in its file.
        """
        sample = self.sample
        row: dict[str, Any] = {
            "row": line,
            "prompt": sample.prompt,
            "completion": sample.response,
            "tokens": list(sample.tokens),
            "ended": sample.ended,
        }
        if sample.episode is not None:
            row["messages"] = [dict(message) for message in sample.completion_messages]
            row["stop_reason"] = sample.episode.stop_reason
        if self.score is not None:
            row["score"] = self.score.value
            row["components"] = dict(self.score.components)
            row["outcome"] = str(self.score.outcome)
        return row


class Generator:
    """A policy that completes prompts.

    Args:
        source: The policy.
        sampling: Sampling parameters.
        num_generations: Number G of completions of each prompt.
        seed: Seed. The same seed, options and prompts give the same completions.
        mixture: Reward that scores completions, with its weights at the step of the checkpoint; None to leave them
            unscored.
        environments: Environments in which the policy acts; None for completions of one turn.

    Raises:
        CheckpointError, ModelError, ConfigError: The policy cannot be loaded, or it cannot encode prompts.
    """

    def __init__(
        self,
        source: PolicySource,
        sampling: SamplingParams,
        *,
        num_generations: int,
        seed: int,
        mixture: Mixture | None = None,
        environments: EpisodeHost | None = None,
    ) -> None:
        from agent_tunix.sampling.sampler import Sampler
        from agent_tunix.serving.episode_samplers import make_episode_sampler

        self.config = source.run.config
        self._trained: TrainedPolicy = load_trained_policy(source.run, source.step)
        self._sampler = Sampler(
            self._trained.policy,
            self._trained.tokenizer,
            self._trained.mesh,
            self.config.generation.eos_tokens,
            self.config.generation.stop_strings,
        )
        self._episodes = make_episode_sampler(self.config, self._sampler, environments, self._trained.tokenizer)
        self._encoder = PromptEncoder(self._trained.tokenizer, self.config.prompt)
        self._sampling = sampling
        self._num_generations = num_generations
        self._seed = seed
        self._num_batches = 0
        self._mixture = mixture

    def complete(self, examples: Sequence[Example]) -> Iterator[list[Completion]]:
        """Yield the completions of each example, in order.

        Raises:
            DataError: An example cannot be turned into a prompt.
            ModelError: The chat template refuses the messages.
        """
        size = max(_COMPLETIONS_AT_ONCE // self._num_generations, 1)
        for start in range(0, len(examples), size):
            some = examples[start : start + size]
            yield from self.complete_messages(some, [self.messages(example) for example in some])

    def messages(self, example: Example, *, is_first: bool = True) -> list[dict[str, Any]]:
        """Return the conversation that prompts for an example.

        Args:
            example: The example.
            is_first: False for a later turn, without the system message and the worked examples.

        Raises:
            DataError: The example cannot be turned into a prompt.
        """
        try:
            if is_first:
                return self._encoder.messages(example)
            return messages_for(dataclasses.replace(self.config.prompt, system=None, few_shot=[]), example)
        except RowError as error:
            raise DataError(f"row {example.index}: {error.reason}: {error.detail}", code="invalid_row") from error

    def complete_messages(
        self, examples: Sequence[Example], messages: Sequence[list[dict[str, Any]]]
    ) -> list[list[Completion]]:
        """Return the completions of a batch of conversations.

        Args:
            examples: [B] examples, whose columns rewards receive.
            messages: [B] conversations before the model's turn.

        Returns:
            [B][G] completions.
        """
        from agent_tunix.data.prompt_batch import PromptBatch
        from agent_tunix.sampling.keys import Use, derive_key
        from agent_tunix.sampling.samples import make_samples

        # The tools of an environment are declared when an episode begins.
        token_ids = [
            self._encoder.encode(conversation, () if self._episodes else example.tools)
            for example, conversation in zip(examples, messages, strict=True)
        ]
        batch = PromptBatch(
            prompts=[example.prompt for example in examples],
            messages=messages,
            token_ids=token_ids,
            columns=[example.columns for example in examples],
        )
        longest = max(_SHORTEST_PADDED, *map(len, token_ids))
        sampler = self._episodes or self._sampler
        completions = sampler.sample_batch(
            batch,
            derive_key(self._seed, Use.GENERATION, self._num_batches),
            self._sampling,
            num_generations=self._num_generations,
            max_prompt_length=_LONGEST_OF_EPISODES if self._episodes else 1 << (longest - 1).bit_length(),
        )
        self._num_batches += 1
        samples = make_samples(
            batch,
            completions,
            format=self.config.prompt.format,
            num_generations=self._num_generations,
            step=self._trained.step,
            max_steps=self._trained.max_steps,
        )
        scores = [None] * len(samples) if self._mixture is None else self._mixture.score(samples)
        scored_completions = [Completion(sample, score) for sample, score in zip(samples, scores, strict=True)]
        G = self._num_generations
        return [scored_completions[start : start + G] for start in range(0, len(scored_completions), G)]


def resolve_scoring(config: Config, examples: Sequence[Example], run: Path) -> Mixture:
    """Return the reward of a run, ready to score completions of examples.

    Args:
        config: The run's, which is the user's own or trusted.
        examples: At least one example.
        run: Directory of the run.

    Raises:
        RewardError: The reward cannot be found.
        DataError: An example lacks a column that the reward requires.
    """
    from agent_tunix.runs.preflight import settle_rewards
    from agent_tunix.runs.reward_setup import resolve_from_config

    mixture = resolve_from_config(config, Path.cwd(), run)
    for example in examples:
        try:
            mixture.check_parameters(example.columns)
        except RewardError as error:
            raise DataError(f"row {example.index} cannot be scored: {error}", code="invalid_row") from error
    settle_rewards(mixture, examples[0], config)
    return mixture


class Conversation:
    """A conversation with the model. Each answer becomes part of the next prompt."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._messages: list[dict[str, Any]] = []

    def answer(self, line: str) -> Completion:
        """Return the model's answer to a line of the user.

        Raises:
            DataError: `prompt.template` needs more columns than a question.
        """
        generator = self._generator
        column = generator.config.data.prompt_column
        example = Example(prompt=line, columns={"question": line, column: line}, index=1)
        messages = generator.messages(example, is_first=not self._messages)
        self._messages += messages
        completion = generator.complete_messages([example], [self._messages])[0][0]
        self._messages += [dict(message) for message in completion.sample.completion_messages]
        return completion
