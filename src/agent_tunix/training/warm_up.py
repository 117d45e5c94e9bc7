"""Compile the programs of the first step in threads, while the run evaluates the policy before training.

A program is compiled for shapes. The shapes of the first step are known in advance, except for the length of its
longest completion, which is assumed to be the maximum. If it is shorter, the program is compiled when it is needed.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from agent_tunix.config.episodes import has_environment, prompt_tokens
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import DataError
from agent_tunix.grpo.micro_batches import make_loss_inputs, place_micro_batches
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.startup.timeline import spend
from agent_tunix.training.components import TrainingComponents

_NUM_PROGRAMS = 3


@contextlib.contextmanager
def warm_up(components: TrainingComponents) -> Iterator[None]:
    """Compile in threads for as long as the context is open.

    Several devices or processes compile nothing ahead: processes would have to compile in the same order. Episodes do
    not either, because the lengths of their turns are not known.

    Args:
        components: The parts of the run.
    """
    batch: PromptBatch | None = None
    if components.sampler.mesh.size == 1 and not has_environment(components.config):
        with contextlib.suppress(DataError):  # the first step reports it
            batch = components.batches.batch(1)
    if batch is None:
        yield
        return
    executor = ThreadPoolExecutor(_NUM_PROGRAMS, thread_name_prefix="compile")
    try:
        with spend("tracing"):
            _compile(executor, components, batch)
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _compile(executor: ThreadPoolExecutor, components: TrainingComponents, batch: PromptBatch) -> None:
    config, sampler = components.config, components.sampler
    completions = _expected(batch, components)
    micro_batches = place_micro_batches(completions, config, sampler.mesh, None)
    first, N = micro_batches[0], len(completions.texts)
    advantages = np.zeros(N if config.grpo.credit == "episode" else (N, 1), np.float32)
    example = make_loss_inputs(micro_batches, completions, advantages, config, sampler.mesh)[0][0]
    if components.reference is not None:
        example = dataclasses.replace(example, reference_logps=jax.device_put(np.zeros(first.tokens.shape, np.float32)))
    if components.teacher is not None:
        judged = jax.eval_shape(components.teacher.judge, first.prompts, first.prompt_lengths, first.tokens)
        example = dataclasses.replace(example, teacher=judged)
    if components.teacher_prompts is not None:
        example = dataclasses.replace(example, taught=jax.device_put(np.ones(len(first.tokens), np.bool_)))
    # The update takes longest to compile, so it starts first.
    components.updater.compile_ahead(executor, example)
    if components.engines is None:
        sampler.compile_ahead(
            executor,
            batch.token_ids,
            derive_key(config.seed, Use.TRAINING, 1, 0),
            SamplingParams.of_training(config),
            num_generations=config.grpo.num_generations,
            max_prompt_length=prompt_tokens(config),
        )
    if components.reference is not None:
        components.reference.compile_ahead(executor, first.prompts, first.prompt_lengths, first.tokens)
    if components.teacher is not None and components.teacher_prompts is None:  # the lengths of its own are not known
        components.teacher.compile_ahead(executor, first.prompts, first.prompt_lengths, first.tokens)


def _expected(batch: PromptBatch, components: TrainingComponents) -> Completions:
    """Return placeholder completions of the greatest length, which give the shapes of the first step."""
    generation, G = components.config.generation, components.config.grpo.num_generations
    lengths = np.repeat([len(ids) for ids in batch.token_ids], G).astype(np.int32)
    N, T = len(lengths), generation.max_generation_steps
    return Completions(
        prompt_tokens=np.zeros((N, prompt_tokens(components.config)), np.int32),
        prompt_lengths=lengths,
        tokens=np.zeros((N, T), np.int32),
        lengths=np.full(N, T, np.int32),
        ended=np.ones(N, np.bool_),
        texts=[""] * N,
        logps=np.zeros((N, T), np.float32),
    )
