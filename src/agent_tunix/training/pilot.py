"""Sampling of some training problems before training, scored as in training.

`agent-tunix rewards plan` bases its forecast on the scores. Nothing is updated or written.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.data import BatchOrder, load_examples, make_order
from agent_tunix.data.prompt_lengths import prompt_limit, with_prompt_length
from agent_tunix.data.prompting import Prompts, encode_examples, measure_stream, settle_prompts
from agent_tunix.data.step_batches import StreamedBatches
from agent_tunix.planning.open_mesh import open_mesh
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.config_file import read_context_length
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.model import load_policy
from agent_tunix.rewards import Mixture
from agent_tunix.runs.weights.initial import load_initial
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.samples import make_samples
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.components import check_eos_tokens

# Completions generated at once; this bounds the memory of the key-value cache.
_COMPLETIONS_AT_ONCE = 512


@dataclasses.dataclass(frozen=True)
class Pilot:
    """Scores of completions before training."""

    prompts: Sequence[str]  # the P problems
    totals: dict[float, NDArray[np.float64]]  # temperature → [P, K] totals; NaN for unscored completions
    clipped_share: dict[float, float]  # temperature → share of completions that were cut at the length limit


def run_pilot(
    config: Config, mixture: Mixture, *, num_problems: int, num_samples: int, temperatures: Sequence[float]
) -> Pilot:
    """Sample completions of the first training problems and score them.

    Args:
        config: The configuration of the planned run.
        mixture: Its reward, which scores as at the first step.
        num_problems: Number P of problems: the first that training draws, or all if there are fewer.
        num_samples: Number K of completions of each problem.
        temperatures: Sampling temperatures, each above 0.

    Raises:
        DataError, ModelError, ConfigError: The planned run cannot load; the message says what to do.
    """
    directory = find_model_directory(config.model)
    config = settle_prompts(config)
    tokenizer = Tokenizer(directory, config.prompt)
    check_eos_tokens(config, tokenizer)
    mesh = open_mesh(config, read_architecture(directory), num_rows=None)
    policy = load_policy(directory, config.model, mesh, config.seed)
    load_initial(config, policy)
    generation = config.generation
    sampler = Sampler(policy, tokenizer, mesh, generation.eos_tokens, generation.stop_strings)
    context = read_context_length(directory)
    prompts, rows = _first_prompts(config, tokenizer, num_problems, context)
    config = with_prompt_length(config, prompts.measured, prompt_limit(config, context), None)
    totals, clipped = {}, {}
    for number, temperature in enumerate(temperatures):
        parts = list(_sample(config, mixture, sampler, prompts, rows, num_samples, temperature, number))
        totals[temperature] = np.concatenate([part[0] for part in parts])
        clipped[temperature] = float(np.concatenate([part[1] for part in parts]).mean())
    return Pilot([prompts.examples[row].prompt for row in rows], totals, clipped)


def _first_prompts(
    config: Config, tokenizer: Tokenizer, num_problems: int, context: int | None
) -> tuple[Prompts, list[int]]:
    """Return prompts, and the rows of the different ones that training draws first."""
    if config.data.streaming:
        config = measure_stream(config, tokenizer, context, None)
        first = StreamedBatches(config, tokenizer).first_prompts(num_problems)
        return first, list(range(len(first.examples)))
    prompts = encode_examples(load_examples(config, "train").examples, tokenizer, config, context=context)
    order = make_order(prompts.examples, config)
    if isinstance(order, BatchOrder):  # goes through all rows; the run itself may draw fewer
        order = dataclasses.replace(order, batch_size=1, num_batches=None, num_epochs=1)
    rows: dict[int, None] = {}
    for step in range(1, order.num_steps + 1):
        if len(rows) >= num_problems:
            break
        rows |= dict.fromkeys(order.batch_indices(step).tolist())
    return prompts, list(rows)[:num_problems]


def _sample(
    config: Config,
    mixture: Mixture,
    sampler: Sampler,
    prompts: Prompts,
    rows: Sequence[int],
    num_samples: int,
    temperature: float,
    number: int,
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Yield, for each batch of b problems, [b, K] totals and [b, K] True for completions cut at the limit."""
    sampling = dataclasses.replace(SamplingParams.of_training(config), temperature=temperature)
    size = min(max(_COMPLETIONS_AT_ONCE // num_samples, 1), len(rows))
    for chunk in range(math.ceil(len(rows) / size)):
        chunk_rows = rows[chunk * size : (chunk + 1) * size]
        # The last batch is padded with its last row, so that one compiled program serves all batches.
        batch = prompts.batch([*chunk_rows, *[chunk_rows[-1]] * (size - len(chunk_rows))])
        completions = sampler.sample(
            batch.token_ids,
            derive_key(config.seed, Use.PILOT, number, chunk),
            sampling,
            num_generations=num_samples,
            max_prompt_length=prompt_tokens(config),
        )
        num_kept = len(chunk_rows) * num_samples
        samples = make_samples(
            batch, completions, format=config.prompt.format, num_generations=num_samples, step=1, max_steps=1
        )[:num_kept]
        totals = mixture.totals(mixture.score(samples))
        yield (
            totals.reshape(len(chunk_rows), num_samples),
            ~completions.ended[:num_kept].reshape(len(chunk_rows), num_samples),
        )
