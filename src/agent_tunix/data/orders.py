"""Construction of the training order of a configuration: plain, weighted mixture, curriculum, or by pass rate."""

from collections.abc import Sequence

import numpy as np

from agent_tunix.config.data_sets import data_sets
from agent_tunix.config.schema import Config
from agent_tunix.data.batches import BatchOrder, Order, RowIndices, count_steps
from agent_tunix.data.dataset import SET_COLUMN
from agent_tunix.data.draws import CurriculumDraws, Draws, PassDraws, read_difficulty
from agent_tunix.data.examples import Example
from agent_tunix.data.mixing import Interleaving, MixedOrder
from agent_tunix.data.pass_rates import PassRateOrder
from agent_tunix.data.set_shares import SetShareOrder
from agent_tunix.errors import DataError


def make_order(examples: Sequence[Example], config: Config) -> Order:
    """Return the order that chooses the examples in the batch of each step.

    Args:
        examples: Examples from `load_splits`, without those whose prompts do not fit.
        config: The run's configuration.

    Raises:
        DataError: There are fewer rows than a batch needs, a set has none, or there are fewer than curriculum stages.
    """
    training, sets = config.training, data_sets(config)
    by_pass_rate = config.data.sampling == "pass_rate"
    if not (sets or by_pass_rate) and config.data.curriculum.column is None:
        return BatchOrder(
            num_rows=len(examples),
            batch_size=training.batch_size,
            seed=config.seed,
            num_batches=training.num_batches,
            num_epochs=training.num_epochs,
            shuffle=config.data.shuffle,
        )
    num_steps = count_steps(len(examples), training.batch_size, training.num_batches, training.num_epochs)
    interleaving = Interleaving(tuple(one.weight for one in sets.values()) or (1.0,))
    rows = _rows_by_set(examples, list(sets))
    num_draws = interleaving.counts(num_steps * training.batch_size)
    configs = [one.config for one in sets.values()] or [config]
    draws = [
        _make_draws([examples[row] for row in rows[number]], configs[number], number, num_draws[number])
        for number in range(len(configs))
    ]
    shares = None
    if config.data.set_shares == "pass_rate":
        weights = {name: one.weight for name, one in sets.items()}
        shares = SetShareOrder(weights, rows, draws, training.batch_size, num_steps)
    if by_pass_rate:
        return PassRateOrder(rows, interleaving, training.batch_size, num_steps, config.seed, shares)
    return shares or MixedOrder(rows, draws, interleaving, training.batch_size, num_steps)


def _rows_by_set(examples: Sequence[Example], names: Sequence[str]) -> list[RowIndices]:
    if not names:
        return [np.arange(len(examples))]
    rows: dict[str, list[int]] = {name: [] for name in names}
    for number, example in enumerate(examples):
        rows[example.columns[SET_COLUMN]].append(number)
    for name, own in rows.items():
        if not own:
            raise DataError(
                f"data.mixture.{name} must have at least one training row, but none is left; remove the set, or "
                "check why its rows were dropped",
                code="no_rows",
            )
    return [np.array(own, np.int64) for own in rows.values()]


def _make_draws(examples: Sequence[Example], config: Config, number: int, num_draws: int) -> Draws:
    seeds = set_seeds(config, number)
    curriculum, shuffle = config.data.curriculum, config.data.shuffle
    if curriculum.column is None:
        return PassDraws(len(examples), seeds, shuffle)
    difficulties = [read_difficulty(example.columns, curriculum) for example in examples]
    return CurriculumDraws(difficulties, num_draws, curriculum, seeds, shuffle)


def set_seeds(config: Config, number: int) -> tuple[int, int]:
    """Return the seeds of the random order of a set; `number` is its position in the mixture, from 0."""
    return config.seed, number + 1
