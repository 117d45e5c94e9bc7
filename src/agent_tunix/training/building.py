"""Configuration → what a run works on: prompts, their order, the policy, the learner, the reward's workers."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout
from tunix.sft.utils import is_lora_enabled

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.optimizers import parameter_groups, summary
from agent_tunix.config.schema import Config, GrpoConfig
from agent_tunix.data import Example, load_evaluation, load_splits, make_order
from agent_tunix.errors import ConfigError
from agent_tunix.policy import compat, sharing
from agent_tunix.policy.compiling import jit_forward
from agent_tunix.policy.decoder import Decoder
from agent_tunix.policy.directory import find_model_directory
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.foreseen import Foreseen
from agent_tunix.policy.mesh import ROWS
from agent_tunix.policy.model import (
    copy_reference,
    count_parameters,
    load_policy,
)
from agent_tunix.policy.model_digest import digest_model
from agent_tunix.policy.open_mesh import open_mesh
from agent_tunix.policy.optimizer import check_groups, make_labels, make_optimizer
from agent_tunix.policy.programs import Call, Programs, kept_directory
from agent_tunix.policy.schedules import make_schedule
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.rewards import Mixture
from agent_tunix.training import bridge
from agent_tunix.training.ahead import Ahead
from agent_tunix.training.batches import Batches, LoadedBatches, PrefetchedBatches, StreamedBatches
from agent_tunix.training.evaluation import begin_evaluation
from agent_tunix.training.initial import load_initial
from agent_tunix.training.learner import GrpoLearner
from agent_tunix.training.losses import ObjectiveSettings
from agent_tunix.training.program_identity import identify
from agent_tunix.training.prompting import Prompts, encode_examples, fingerprint_prompts, settle_prompts
from agent_tunix.training.rollout import Rollout
from agent_tunix.training.sampling import Sampling
from agent_tunix.training.timeline import spend

_LOGGER = logging.getLogger("agent_tunix.run")


@dataclass(kw_only=True)
class GrpoAlgorithm(grpo_learner.GRPOConfig):  # type: ignore[misc]
    """Tunix's algorithm configuration with what our loss reads; Tunix's own loss, and its keys, are not used."""

    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    mask_truncated: bool = False
    reference_sync_steps: int = 0
    reference_sync_mix: float = 1.0


@dataclass(frozen=True)
class Material:
    """What a run works on: its settled configuration, the prompts of each step and of an evaluation, and who learns.

    `prompting` is the fingerprint of what makes the prompts, `model_digest` that of the model that was loaded from
    `directory`. `learning_rate` tells that of an update by the number of those before it.
    """

    config: Config
    prompting: str
    directory: Path
    model_digest: str
    batches: Batches
    held_out: Prompts
    learner: GrpoLearner
    learning_rate: Callable[[int], float]
    mesh: jax.sharding.Mesh


def build_material(
    config: Config,
    mixture: Mixture,
    *,
    num_rows: int | None = None,
    ahead: Ahead | None = None,
    foreseen: Foreseen | None = None,
) -> Material:
    """Load the data, the tokenizer and the policy, and build the learner.

    Args:
        config: The run.
        mixture: Its reward.
        num_rows: Rows of a micro-batch; None: the completions of its prompts.
        ahead: Begins the first evaluation while the learner is built, unless the run is to go on with another; it is
            the learner's from then on.
        foreseen: Programs that are being loaded.
    """
    directory = find_model_directory(config.model)
    config = settle_prompts(config)
    with spend("data"):
        tokenizer = Tokenizer(directory, config.prompt)
        batches, held_out = load_batches(config, tokenizer)
        check_ends(config, tokenizer)
    num_rows = num_rows or micro_batch_size(config) * config.grpo.num_generations
    mesh = open_mesh(config, read_architecture(directory), num_rows=num_rows)
    updates = config.grpo.num_iterations
    schedule = make_schedule(config.optimizer, config.scheduler, batches.num_steps * updates, updates)
    with spend("model"):
        policy = load_policy(directory, config.model, mesh, config.seed)
        load_initial(config, policy)
    total, trained = count_parameters(policy)
    name = f"{policy.config.model_type} {config.model.model_size}"
    _LOGGER.info("model: %s, %s weights, %s of them trained (%s)", name, f"{total:,}", f"{trained:,}", directory)
    _LOGGER.info("optimizer: %s", summary(config.optimizer, config.scheduler))
    for group, count in check_groups(config.optimizer, policy).items():
        _LOGGER.info("optimizer.groups.%s: %d tensors", group, count)
    programs = Programs(kept_directory(), identify(config, directory, batches.num_steps), foreseen)
    with spend("learner"):
        if ahead is not None and not config.training.resume:
            begin_evaluation(ahead, make_rollout(config, policy, tokenizer, mesh, programs), held_out, config, mesh)
        optimizer = make_optimizer(config.optimizer, schedule)
        if mesh.size == 1:
            # On several devices its state lies as the weights do.
            optimizer = _with_state(optimizer, policy, programs)
        learner = build_learner(config, policy, tokenizer, mesh, optimizer, mixture, micro_batch_size(config), programs)
        if ahead is not None:
            learner.ahead = ahead
    prompting = fingerprint_prompts(config.prompt, tokenizer)
    compiled = _as_program(programs, "schedule", schedule)

    def learning_rate(count: int) -> float:
        return float(compiled(np.int32(count)))

    return Material(
        config, prompting, directory, digest_model(directory), batches, held_out, learner, learning_rate, mesh
    )


def _with_state(
    optimizer: optax.GradientTransformationExtraArgs, policy: Decoder, programs: Programs
) -> optax.GradientTransformationExtraArgs:
    """The optimiser with its first state made at once, by one program, where each array of it would be one."""
    init = _as_program(programs, "optimizer", optimizer.init, policy.config.num_layers)
    params = nnx.state(policy, nnx.LoRAParam if is_lora_enabled(policy) else nnx.Param)
    structure: Any = jax.tree.structure(params)
    made = [init(params)]

    def give(given: Any) -> Any:
        return made.pop() if made and jax.tree.structure(given) == structure else init(given)

    return optax.GradientTransformationExtraArgs(give, optimizer.update)


def _as_program(
    programs: Programs, name: str, function: Callable[[Any], Any], num_layers: int = 0
) -> Callable[[Any], Any]:
    """A function of one argument compiled as a whole, where each of its operations would be a program of its own."""
    compiled = jit_forward(function)(num_layers)
    return lambda argument: programs.run(Call(name, compiled, (argument,), is_small=True))


def load_batches(config: Config, tokenizer: Tokenizer) -> tuple[Batches, Prompts]:
    """The prompts of each step, and those of the evaluation.

    Raises:
        DataError: A file cannot be read, or too few rows of it can be used.
    """
    if config.data.streaming:
        evaluation = load_evaluation(config)
        _LOGGER.info("training examples are streamed\n%s", evaluation.describe("evaluation"))
        batches = PrefetchedBatches(StreamedBatches(config, tokenizer))
        return batches, _encode("evaluation", evaluation.examples, tokenizer, config)
    train_examples, held_out_examples, report = load_splits(config)
    _LOGGER.info("%s", report.describe())
    train_prompts = _encode("training", train_examples, tokenizer, config)
    held_out = _encode("evaluation", held_out_examples, tokenizer, config)
    return LoadedBatches(train_prompts, make_order(train_prompts.examples, config)), held_out


def _encode(purpose: str, examples: Sequence[Example], tokenizer: Tokenizer, config: Config) -> Prompts:
    prompts = encode_examples(examples, tokenizer, config)
    if prompts.dropped.total:
        _LOGGER.warning("dropped %d %s prompts: %s", prompts.dropped.total, purpose, prompts.dropped.describe())
    return prompts


def check_ends(config: Config, tokenizer: Tokenizer) -> None:
    """Refuse end-of-sequence ids that the tokenizer does not have, with which nothing would ever end.

    Raises:
        ConfigError: With the ids that are out of range.
    """
    unknown = [token for token in config.generation.eos_tokens or [] if token >= tokenizer.vocab_size]
    if unknown:
        raise ConfigError(
            f"generation.eos_tokens {unknown} are not among the tokenizer's {tokenizer.vocab_size} ids;"
            f" its own are {tokenizer.eos_ids}",
            code="unknown_end_token",
        )


def build_learner(
    config: Config,
    policy: nnx.Module,
    tokenizer: Tokenizer,
    mesh: jax.sharding.Mesh,
    optimizer: optax.GradientTransformation,
    mixture: Mixture,
    micro_batch: int,
    programs: Programs | None = None,
) -> GrpoLearner:
    """The cluster of policy, reference and sampler, and the learner on it."""
    compat.check_version()
    compat.report_no_memory()
    bridge.register_with_tunix()
    training, grpo = config.training, config.grpo
    roles = (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT)
    training_config = rl_cluster_lib.RLTrainingConfig(
        actor_optimizer=optimizer,
        # Evaluation, metrics and checkpoints are the run's; Tunix's are switched off.
        eval_every_n_steps=1,
        metrics_logging_options=None,
        checkpoint_root_directory=None,
        mini_batch_size=training.batch_size,
        train_micro_batch_size=micro_batch,
        data_sharding_axis=(ROWS,),
    )
    compat.accumulate_only_where_needed(training_config)
    cluster = rl_cluster_lib.RLCluster(
        actor=policy,
        reference=copy_reference(policy) if grpo.beta != 0.0 else None,
        tokenizer=tokenizer,
        cluster_config=rl_cluster_lib.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine=Rollout,
            rollout_config=_rollout_config(config),
            training_config=training_config,
        ),
    )
    learner = GrpoLearner(
        rl_cluster=cluster,
        algo_config=GrpoAlgorithm(
            num_generations=grpo.num_generations,
            num_iterations=grpo.num_iterations,
            beta=grpo.beta,
            objective=_objective(grpo),
            loss_agg_mode=grpo.loss_agg_mode,
            mask_truncated=grpo.mask_truncated,
            reference_sync_steps=grpo.reference_sync_steps,
            reference_sync_mix=grpo.reference_sync_mix,
            reward_manager=bridge.NAME,
            advantage_estimator=bridge.NAME,
            policy_loss_fn=bridge.NAME,
        ),
        reward_fns=mixture,
    )
    groups = parameter_groups(config.optimizer)
    compat.guard_train_step(
        cluster.actor_trainer,
        make_labels(config.optimizer) if groups else None,
        frozen=[group.name for group in groups if group.freeze],
    )
    sharing.release_anchor(cluster)
    cluster.rollout.programs = programs or Programs()
    sharing.update_trained_only(cluster.actor_trainer, mesh, cluster.rollout.programs)
    return learner


def _objective(grpo: GrpoConfig) -> ObjectiveSettings:
    return ObjectiveSettings(
        loss=grpo.loss,
        epsilon=grpo.epsilon,
        epsilon_high=grpo.epsilon if grpo.epsilon_high is None else grpo.epsilon_high,
        epsilon_c=grpo.epsilon_c,
        beta=grpo.beta,
        kl_estimator=grpo.kl_estimator,
    )


def make_rollout(
    config: Config, policy: nnx.Module, tokenizer: Tokenizer, mesh: jax.sharding.Mesh, programs: Programs | None = None
) -> Rollout:
    """The sampler alone, for who only evaluates."""
    rollout = Rollout(policy, tokenizer, mesh, _rollout_config(config))
    rollout.programs = programs or Programs()
    return rollout


def _rollout_config(config: Config) -> base_rollout.RolloutConfig:
    generation = config.generation
    return base_rollout.RolloutConfig(
        max_tokens_to_generate=generation.max_generation_steps,
        max_prompt_length=generation.max_prompt_length,
        temperature=generation.temperature,
        top_p=generation.top_p,
        top_k=generation.top_k,
        eos_tokens=generation.eos_tokens,
        kv_cache_size=generation.max_prompt_length + generation.max_generation_steps,
    )


def training_sampling(config: Config) -> Sampling:
    """How completions are sampled in training."""
    generation = config.generation
    return Sampling(
        max_new_tokens=generation.max_generation_steps,
        temperature=generation.temperature,
        top_k=generation.top_k,
        top_p=generation.top_p,
        min_p=generation.min_p,
    )
