"""Compaction of the batch: rows that have ended leave, and the others move to fewer places.

A decode loop runs in stages with fewer and fewer places. `planning/cache_plan.py` chooses the stages. A stage has
slots. Each slot has the prefix of one prompt and the same number of places for its completions, because rows attend to
a prefix that they share (`policy/network/attention.py`). When the remaining rows fit into the next stage, they are
gathered there. A prompt takes as many slots as its rows need.

Axes: B prompts, G completions of each, n places of a stage.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from agent_tunix.planning.cache_plan import Stage


def fits(live_BG: Bool[Array, "B G"], stage: Stage) -> Bool[Array, ""]:
    """Return True if a stage has places for the live rows."""
    return _slots_needed(live_BG, stage).sum() <= stage.slots


def _slots_needed(live_BG: Bool[Array, "B G"], stage: Stage) -> Int[Array, " B"]:
    return -(-live_BG.sum(axis=1, dtype=jnp.int32) // stage.places)


class Arrangement(NamedTuple):
    """The places of the rows.

    Attributes:
        row: Row of the batch at each place; B × G at a place without a row.
        place: Place of each row; n for a row without a place.
        prompt: Prompt of each slot; arbitrary for a slot without rows.
    """

    row: Int[Array, " n"]
    place: Int[Array, " BG"]
    prompt: Int[Array, " slots"]


def arrange(live_BG: Bool[Array, "B G"], stage: Stage) -> Arrangement:
    """Assign places to the live rows, in the order of the batch. The rows must fit."""
    B, G = live_BG.shape
    needed_B = _slots_needed(live_BG, stage)
    first_slot_B = jnp.cumsum(needed_B) - needed_B
    rank_BG = jnp.cumsum(live_BG, axis=1, dtype=jnp.int32) - 1
    # A prompt's slots are adjacent, so its rows take consecutive places.
    place = jnp.where(live_BG, first_slot_B[:, None] * stage.places + rank_BG, stage.size).reshape(-1)
    # Comparing all pairs is faster than a scatter, which is a loop on a CPU.
    row = jnp.where(place == jnp.arange(stage.size)[:, None], jnp.arange(B * G), B * G).min(axis=1)
    # All rows of a slot have one prompt, and a slot with any row has one at its first place.
    return Arrangement(row, place, jnp.minimum(row[:: stage.places] // G, B - 1))


def live_rows(done_n: Bool[Array, " n"], num_prompts: int, arrangement: Arrangement | None) -> Bool[Array, "B G"]:
    """Return True at the rows of the batch that have not ended. `done_n` is of a stage; None: of all rows."""
    if arrangement is None:
        return ~done_n.reshape(num_prompts, -1)
    return ~done_n.at[arrangement.place].get(mode="fill", fill_value=True).reshape(num_prompts, -1)


def goes_on(
    done_n: Bool[Array, " n"], num_prompts: int, arrangement: Arrangement | None, smaller: Stage | None
) -> Bool[Array, ""]:
    """Return True while a stage has rows to write that do not fit into the next smaller stage, if there is one."""
    going = ~done_n.all()
    return going if smaller is None else going & ~fits(live_rows(done_n, num_prompts, arrangement), smaller)


def prompts_of(prefix: Any, arrangement: Arrangement) -> Any:
    """Return the prompt of each slot of a stage."""
    return jax.tree.map(lambda x: x[arrangement.prompt], prefix)


def move_rows(arrays: Any, before: Arrangement | None, after: Arrangement) -> Any:
    """Move the rows of arrays to their next places. A place without a row holds a copy of another row."""
    source_n = after.row if before is None else before.place.at[after.row].get(mode="clip")
    return jax.tree.map(lambda x: x if x.ndim == 0 else x.at[source_n].get(mode="clip"), arrays)


def has_row(arrangement: Arrangement) -> Bool[Array, " n"]:
    """Return True at the places that have a row."""
    return arrangement.row < arrangement.place.shape[0]


def collect_rows(whole: Any, part: Any, arrangement: Arrangement) -> Any:
    """Write the rows of a stage back to their rows of the batch."""
    place_N = arrangement.place
    here_N = place_N < arrangement.row.shape[0]

    def put(whole: jax.Array, part: jax.Array) -> jax.Array:
        here = here_N.reshape(-1, *[1] * (whole.ndim - 1))
        return jnp.where(here, part.at[place_N].get(mode="clip"), whole)

    return jax.tree.map(put, whole, part)
