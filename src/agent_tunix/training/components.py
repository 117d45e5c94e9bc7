"""The parts of a run, built from its configuration: prompts, policy, sampler, updater, reference policy."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
import optax
from flax import nnx

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.episodes import episode_tokens
from agent_tunix.config.optimizers import REST, parameter_groups, summary
from agent_tunix.config.schema import Config
from agent_tunix.data import BatchOrder, Example, PromptEncoder, load_evaluation, load_splits, make_order
from agent_tunix.data.pass_rates import PassRateOrder
from agent_tunix.data.prompt_lengths import EpisodeOverhead, prompt_limit, with_prompt_length
from agent_tunix.data.prompting import Prompts, encode_examples, fingerprint_prompts, measure_stream, settle_prompts
from agent_tunix.data.set_shares import SetShareOrder
from agent_tunix.data.step_batches import Batches, LoadedBatches, PrefetchedBatches, StreamedBatches
from agent_tunix.data.tool_schemas import read_tools
from agent_tunix.distributed import here
from agent_tunix.environments.running import EnvironmentSet
from agent_tunix.errors import ConfigError
from agent_tunix.grpo.ahead import SamplingAhead, VersionedSampler, settle_correction
from agent_tunix.grpo.loss import make_policy_loss
from agent_tunix.grpo.reference import ReferencePolicy
from agent_tunix.grpo.replay_buffer import ReplayBuffer
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.grpo.teacher import Teacher
from agent_tunix.grpo.teacher_prompts import TeacherPrompts
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.planning.open_mesh import open_mesh
from agent_tunix.policy.chat.teacher_template import DEFAULT, TeacherTemplate
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.config_file import read_context_length
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.files.model_digest import digest_model
from agent_tunix.policy.files.teacher import (
    SELF,
    TEACHER,
    check_teacher,
    has_teacher_model,
    is_initial_policy,
    teacher_model,
)
from agent_tunix.policy.model import copy_reference, count_parameters, load_frozen, load_policy
from agent_tunix.policy.optimizer import check_groups, make_labels, make_optimizer
from agent_tunix.policy.schedules import RateSchedule, make_schedules
from agent_tunix.rewards import Mixture
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.sample import ScoringFunction
from agent_tunix.runs.environment_setup import EpisodeHost, episode_overhead, make_episode_encoder
from agent_tunix.runs.shown_prompts import PromptShower, ShownPrompt
from agent_tunix.runs.weights.initial import load_initial
from agent_tunix.runs.weights.judge_models import judge_configs, load_judges
from agent_tunix.sampling.sampler import BatchSampler, Sampler
from agent_tunix.serving.episode_samplers import make_engine_sampler, make_episode_sampler
from agent_tunix.startup.timeline import spend

if TYPE_CHECKING:
    from agent_tunix.engines.session import EngineSession

_LOGGER = logging.getLogger("agent_tunix.run")


@dataclass(frozen=True)
class TrainingComponents:
    """The parts of a run."""

    config: Config  # the configuration, with its prompts settled
    first_prompt: ShownPrompt | None  # the prompt of the first row of the first step, for the report
    prompting: str
    directory: Path
    model_digest: str  # digest of that model
    batches: Batches
    held_out: Prompts
    sampler: Sampler
    episodes: BatchSampler | None  # samples episodes, or all that engines sample; None if `sampler` samples
    engines: "EngineSession | None"  # the inference engines; None without any
    updater: PolicyUpdater
    reference: ReferencePolicy | None  # the reference policy; None without a KL penalty
    teacher: Teacher | None  # the teacher; None without one
    teacher_prompts: TeacherPrompts | None  # writer of its prompts; None if it sees those of the policy
    teacher_directory: Path | None  # None also if the teacher is the policy itself
    teacher_digest: str | None
    # Function from the number of earlier updates to the learning rate of an update.
    learning_rate: Callable[[int], float]

    @property
    def batch_sampler(self) -> BatchSampler:
        """The sampler of training and evaluation."""
        return self.episodes or self.sampler

    @functools.cached_property
    def ahead(self) -> SamplingAhead | None:
        """The completions that are sampled ahead; None if sampling waits for each update."""
        if self.config.engine.max_staleness == 0:
            return None
        return SamplingAhead(self.config, cast(VersionedSampler, self.batch_sampler), self.batches, here())

    @functools.cached_property
    def buffer(self) -> ReplayBuffer | None:
        """The groups that may train again; None without replay."""
        grpo = self.config.grpo
        if grpo.replay_groups == 0:
            return None
        if here().count > 1:
            raise ConfigError(
                f"grpo.replay_groups={grpo.replay_groups} must be 0 in a run of several processes, which are not "
                "supported yet; set it to 0, or train in one process",
                code="invalid_replay",
            )
        return ReplayBuffer(self.config.seed, grpo.replay_groups, grpo.replay_max_age, grpo.num_generations)

    @property
    def by_pass_rate(self) -> PassRateOrder | SetShareOrder | None:
        """The order of the rows if it depends on pass rates, and so belongs in a checkpoint, else None."""
        order = self.batches.order if isinstance(self.batches, LoadedBatches) else None
        return order if isinstance(order, PassRateOrder | SetShareOrder) else None

    @property
    def moving_reference(self) -> ReferencePolicy | None:
        """The reference policy if it follows the policy and so belongs in a checkpoint, else None."""
        return self.reference if self.config.grpo.reference_sync_steps > 0 else None


def build_components(
    config: Config,
    *,
    environments: EpisodeHost | None = None,
    num_rows: int | None = None,
    judges: Sequence[Judge[Any]] = (),
    engines: "EngineSession | None" = None,
) -> TrainingComponents:
    """Load data, tokenizer and policy, and build the other parts of the run.

    Args:
        config: Configuration of the run.
        environments: Environments or agents; None for completions of one turn.
        num_rows: Rows of a micro-batch; by default the completions of its prompts.
        judges: Judges whose models the run samples. These are loaded.
        engines: Engines that sample in place of this process.

    Raises:
        EngineError: An engine does not answer, or serves another model.
        DataError, ModelError, ConfigError, CheckpointError: A part cannot be built; the message says what to do.
    """
    directory = find_model_directory(config.model)
    config = settle_correction(settle_prompts(config))
    teacher_directory = None
    if has_teacher_model(config):
        teacher_directory = find_model_directory(teacher_model(config), TEACHER)
        check_teacher(config, directory, teacher_directory)
    with spend("data"):
        tokenizer = Tokenizer(directory, config.prompt)
        config, batches, held_out = load_batches(config, tokenizer, read_context_length(directory), environments)
        check_eos_tokens(config, tokenizer)
    if engines is not None:
        engines.start(config, directory)
    num_rows = num_rows or micro_batch_size(config) * config.grpo.num_generations
    mesh = open_mesh(config, read_architecture(directory), num_rows=num_rows, judges=judge_configs(judges))
    updates = config.grpo.num_iterations
    schedules = make_schedules(config.optimizer, config.scheduler, batches.num_steps * updates, updates)
    with spend("model"):
        policy = load_policy(directory, config.model, mesh, config.seed)
        load_judges(judges, config, policy, mesh)
        load_initial(config, policy)
    total, trained = count_parameters(policy)
    kind = policy.config.model_type
    _LOGGER.info("model: %s, %s weights, %s of them trained (%s)", kind, f"{total:,}", f"{trained:,}", directory)
    _LOGGER.info("optimizer: %s", summary(config.optimizer, config.scheduler))
    for group, count in check_groups(config.optimizer, policy).items():
        _LOGGER.info("optimizer.groups.%s: %d tensors", group, count)
    with spend("learner"):
        updater = make_updater(config, policy, make_optimizer(config.optimizer), mesh, schedules)
        reference = make_reference(config, policy)
    teacher = None
    if config.grpo.teacher is not None:
        with spend("teacher"):
            teacher = make_teacher(config, teacher_directory, policy, reference, mesh)
    generation = config.generation
    sampler = Sampler(policy, tokenizer, mesh, generation.eos_tokens, generation.stop_strings)
    if engines is None:
        episodes = make_episode_sampler(config, sampler, environments, tokenizer)
    else:
        with spend("engines"):
            prompt = list(batches.batch(1).token_ids[0])
            engines.connect(policy, directory, prompt, lambda: updater.num_updates)
        make = functools.partial(make_engine_sampler, config, sampler, environments, tokenizer)
        episodes = engines.sampler(make)
    return TrainingComponents(
        config=config,
        first_prompt=_first_prompt(config, tokenizer, batches, environments),
        prompting=fingerprint_prompts(config.prompt, tokenizer),
        directory=directory,
        model_digest=digest_model(directory),
        batches=batches,
        held_out=held_out,
        sampler=sampler,
        episodes=episodes,
        engines=engines,
        updater=updater,
        reference=reference,
        teacher=teacher,
        teacher_prompts=make_teacher_prompts(config, tokenizer, environments, read_context_length(directory)),
        teacher_directory=teacher_directory,
        teacher_digest=config.grpo.teacher if teacher_directory is None else digest_model(teacher_directory),
        learning_rate=lambda count: float(_rate(schedules[REST], np.int32(count))),
    )


@jax.jit
def _rate(schedule: RateSchedule, count: Any) -> jax.Array:
    return schedule(count)


def make_updater(
    config: Config,
    policy: nnx.Module,
    optimizer: optax.GradientTransformation,
    mesh: jax.sharding.Mesh,
    schedules: Mapping[str, RateSchedule] | None = None,
) -> PolicyUpdater:
    """Return the updater of a run by GRPO."""
    groups: Sequence[Any] = parameter_groups(config.optimizer)
    return PolicyUpdater(
        policy,
        optimizer,
        make_policy_loss(config),
        mesh,
        accumulation=config.training.batch_size // micro_batch_size(config),
        labels=make_labels(config.optimizer) if groups else None,
        frozen=[group.name for group in groups if group.freeze],
        schedules=schedules,
    )


def make_reference(config: Config, policy: nnx.Module) -> ReferencePolicy | None:
    """Return the reference policy; None without a KL penalty."""
    return ReferencePolicy(policy, config.generation.temperature) if config.grpo.beta != 0.0 else None


def make_teacher(
    config: Config,
    directory: Path | None,
    policy: nnx.Module,
    reference: ReferencePolicy | None,
    mesh: jax.sharding.Mesh,
) -> Teacher:
    """Return the teacher of a run.

    The policy itself is no copy. If the teacher is the policy before training, it is the reference policy, or it shares
    the frozen weights of the policy.

    Args:
        config: Configuration of the run.
        directory: Directory of the teacher; None for the policy itself.
        policy: The policy before training.
        reference: The reference policy; None without a KL penalty.
        mesh: Mesh of the policy.
    """
    if directory is None:
        model = policy
    elif not is_initial_policy(config):
        model = load_frozen(directory, teacher_model(config), mesh)
    elif reference is not None and config.grpo.reference_sync_steps == 0:
        model = reference.model
    else:
        model = copy_reference(policy)
    return Teacher(model, config.generation.temperature, config.grpo.teacher_top_k)


def make_teacher_prompts(
    config: Config, tokenizer: Tokenizer, environments: EpisodeHost | None, context: int | None
) -> TeacherPrompts | None:
    """Return the writer of the teacher's prompts; None if it sees those of the policy."""
    grpo = config.grpo
    if grpo.teacher is None or (grpo.teacher_prompt is None and grpo.teacher != SELF):
        return None
    encoder, of_episodes = PromptEncoder(tokenizer, config.prompt), make_episode_encoder(config, tokenizer)

    def split(messages: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]) -> list[str]:
        if isinstance(environments, EnvironmentSet):
            return of_episodes.split_prompt(messages, environments.declared_tools(columns))
        return encoder.split(messages, () if environments else read_tools(columns, is_padded=True))

    return TeacherPrompts(
        TeacherTemplate(DEFAULT if grpo.teacher_prompt is None else grpo.teacher_prompt),
        tokenizer,
        split,
        of_episodes.shorten,
        limit=None if context is None else context - episode_tokens(config),
        num_generations=grpo.num_generations,
        pass_at=config.data.pass_at,
        share=here().from_first,
    )


def make_trainer(components: TrainingComponents, mixture: Mixture, score: ScoringFunction | None = None) -> GrpoTrainer:
    """Return the trainer of a run by GRPO.

    Args:
        components: The parts of the run.
        mixture: The reward.
        score: Scores samples, if that is not `mixture.score`.
    """
    return GrpoTrainer(
        components.config,
        components.sampler,
        components.updater,
        components.reference,
        mixture,
        score,
        components.batches.num_steps,
        components.episodes,
        components.teacher,
        components.ahead,
        components.buffer,
        components.teacher_prompts,
    )


def load_batches(
    config: Config,
    tokenizer: Tokenizer,
    context: int | None = None,
    environments: EpisodeHost | None = None,
) -> tuple[Config, Batches, Prompts]:
    """Return the configuration with the longest prompt, the prompts of each step, and those of the evaluation.

    Args:
        config: Configuration from `settle_prompts`.
        tokenizer: The policy's tokenizer.
        context: Longest text of the model in tokens; None if it is unknown.
        environments: Environments or agents; None for completions of one turn.

    Raises:
        DataError: A file cannot be read, or too few of its rows can be used.
    """
    overhead = episode_overhead(config, tokenizer, environments)
    if config.data.streaming:
        evaluation = load_evaluation(config)
        _LOGGER.info("training examples are streamed\n%s", evaluation.describe("evaluation"))
        settled = _with_measured_length(config, lambda: measure_stream(config, tokenizer, context, overhead))
        batches = PrefetchedBatches(StreamedBatches(settled, tokenizer, overhead))
        return settled, batches, _encode("evaluation", evaluation.examples, tokenizer, settled, context, overhead)
    train_examples, held_out_examples, report = load_splits(config)
    _LOGGER.info("%s", report.describe())
    train_prompts = _encode("training", train_examples, tokenizer, config, context, overhead)
    held_out = _encode("evaluation", held_out_examples, tokenizer, config, context, overhead)
    measurements = train_prompts.measured.joined(held_out.measured)
    limit = prompt_limit(config, context)
    settled = _with_measured_length(config, lambda: with_prompt_length(config, measurements, limit, overhead))
    order = make_order(train_prompts.examples, settled)
    if isinstance(order, BatchOrder) and (remainder := order.describe_remainder()):
        _LOGGER.warning("%s", remainder)
    return settled, LoadedBatches(train_prompts, order), held_out


def _first_prompt(
    config: Config, tokenizer: Tokenizer, batches: Batches, environments: EpisodeHost | None
) -> ShownPrompt | None:
    """Return the prompt of the first row of the first step; None in other processes, which run no environments."""
    if not (here().is_first and isinstance(batches, LoadedBatches) and batches.num_steps > 0):
        return None
    row = int(batches.order.batch_indices(1)[0])
    return PromptShower(config, tokenizer, environments).show(batches.prompts.examples[row])


def _with_measured_length(config: Config, measure: Callable[[], Config]) -> Config:
    """Return the configuration with the longest prompt that the first process measures; its environments run there."""
    width = here().from_first(lambda: measure().generation.max_prompt_length)
    return replace(config, generation=replace(config.generation, max_prompt_length=width))


def _encode(
    purpose: str,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    config: Config,
    context: int | None,
    overhead: EpisodeOverhead | None,
) -> Prompts:
    without_evaluation = purpose == "evaluation" and config.evaluation.num_samples == 0
    prompts = encode_examples(
        examples, tokenizer, config, may_be_empty=without_evaluation, context=context, overhead=overhead
    )
    if prompts.dropped.total:
        _LOGGER.warning("dropped %d %s prompts: %s", prompts.dropped.total, purpose, prompts.dropped.describe())
    return prompts


def check_eos_tokens(config: Config, tokenizer: Tokenizer) -> None:
    """Refuse end-of-sequence ids that the tokenizer does not have: no completion would end.

    Raises:
        ConfigError: The message lists the ids that are out of range.
    """
    unknown = [token for token in config.generation.eos_tokens or [] if token >= tokenizer.vocab_size]
    if unknown:
        raise ConfigError(
            f"generation.eos_tokens must be among the tokenizer's {tokenizer.vocab_size} ids, not {unknown}; its own "
            f"are {tokenizer.eos_ids}",
            code="invalid_tokenizer",
        )
