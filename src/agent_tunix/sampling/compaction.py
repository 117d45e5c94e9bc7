"""Rows that have ended leave the batch: where the others go; `planning/cache_plan.py` says into which stages.

A decode loop runs in stages of ever fewer places. A stage has slots, each with the prefix of one prompt and the same
number of places for its completions, since rows attend to a prefix that they share (`policy/network/attention.py`).
When the rows that go on fit into the next stage they are gathered there: a prompt takes as many slots as its rows need.

Axes: B prompts, G completions of each, n places of a stage.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from agent_tunix.planning.cache_plan import Stage


def fits(live_BG: Bool[Array, "B G"], stage: Stage) -> Bool[Array, ""]:
    """Whether a stage has places for the rows that go on."""
    return _slots_needed(live_BG, stage).sum() <= stage.slots


def _slots_needed(live_BG: Bool[Array, "B G"], stage: Stage) -> Int[Array, " B"]:
    return -(-live_BG.sum(axis=1, dtype=jnp.int32) // stage.places)


class Arrangement(NamedTuple):
    """Which row is where.

    Attributes:
        row: Row of the batch at each place; B × G where there is none.
        place: Place of each row; n where it has none.
        prompt: Prompt of each slot; any where no row needs it.
    """

    row: Int[Array, " n"]
    place: Int[Array, " BG"]
    prompt: Int[Array, " slots"]


def arrange(live_BG: Bool[Array, "B G"], stage: Stage) -> Arrangement:
    """Places for the rows that go on, in the order of the batch; they must fit."""
    B, G = live_BG.shape
    needed_B = _slots_needed(live_BG, stage)
    first_slot_B = jnp.cumsum(needed_B) - needed_B
    rank_BG = jnp.cumsum(live_BG, axis=1, dtype=jnp.int32) - 1
    # The places of a prompt's slots follow one another, and so do its rows.
    place = jnp.where(live_BG, first_slot_B[:, None] * stage.places + rank_BG, stage.size).reshape(-1)
    # Found by comparing all with all: a scatter is a loop on a CPU.
    row = jnp.where(place == jnp.arange(stage.size)[:, None], jnp.arange(B * G), B * G).min(axis=1)
    # Rows of a slot have one prompt, and the first place of a slot is taken if any is.
    return Arrangement(row, place, jnp.minimum(row[:: stage.places] // G, B - 1))
