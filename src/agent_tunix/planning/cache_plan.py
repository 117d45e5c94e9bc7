"""The stages of the decode loop, and the keys and values that they hold; loads no JAX.

Axes: B prompts, G completions each, N = B G, P slots of a prompt, T of a completion.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.policy.architecture import Architecture

_FLOAT32 = 4
# A step with fewer rows costs as much: reading weights and launching kernels then takes all of its time.
_ROWS_AT_ONCE = 8
# Every stage adds code to compile, and copies the cache when it begins. A shorter loop does not repay that.
_SHORTEST_LOOP = 16
# Pairs (longest loop that the entry applies to, shares of all rows in its later stages), in order of length.
_SHARES = ((63, (1 / 3,)), (127, (1 / 2, 1 / 4)), (math.inf, (1 / 2, 1 / 8)))
_LONG_LOOP = 128
# Maximum tokens of a served prompt that are read at once.
LONGEST_PIECE = 512


class Stage(NamedTuple):
    """The size of a stage of the decode loop. A place holds one row, and the places of a slot share a prefix."""

    slots: int  # number of slots, each with one prefix
    places: int  # places of each slot
    length: int  # tokens that the cache of a place holds

    @property
    def size(self) -> int:
        """The number of places, n."""
        return self.slots * self.places


def plan_stages(num_prompts: int, num_generations: int, prompt_length: int, num_tokens: int) -> tuple[Stage, ...]:
    """Return the stages of a loop: all rows first, then fewer.

    A loop shorter than 16 tokens has one stage. Longer loops have further stages with a share of the rows, rounded up
    to a multiple of 8 rows: a third; from 64 tokens on, a half and a quarter; from 128 tokens on, a half and an eighth.
    A slot of a later stage has so many places, as far as G allows, that its copy of the prefix is no longer than the
    cache of its rows. From 128 tokens on, the cache of the first stage is only a quarter as long, because a step reads
    all of it, filled or not.

    Args:
        num_prompts: B.
        num_generations: G.
        prompt_length: Slots of a prefix.
        num_tokens: Maximum tokens of a completion.
    """
    stages = [Stage(num_prompts, num_generations, num_tokens)]
    if num_tokens < _SHORTEST_LOOP:
        return tuple(stages)
    places = 1
    while places * num_tokens < prompt_length and 2 * places <= num_generations:
        places *= 2
    step = math.lcm(_ROWS_AT_ONCE, places)
    for share in next(shares for longest, shares in _SHARES if num_tokens <= longest):
        size = math.ceil(share * num_prompts * num_generations / step) * step
        if size < stages[-1].size:
            stages.append(Stage(size // places, places, num_tokens))
    if num_tokens >= _LONG_LOOP:
        stages.insert(0, stages[0]._replace(length=-(-num_tokens // 4)))
    return tuple(stages)


def plan_cache(architecture: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes of keys and values that a device holds, in training or in evaluation, whichever needs more.

    Args:
        architecture: Architecture of the policy.
        config: Configuration of the run. Its `model.mesh_shape` is ignored.
        compute_bytes: Bytes of a number in the type that the policy computes in: 4 or 2.
        shape: Shape of the mesh.
    """
    P, T = prompt_tokens(config), episode_tokens(config)
    of_slot, of_state = slot_bytes(architecture, compute_bytes, shape), state_bytes(architecture, compute_bytes, shape)

    def of_batch(num_prompts: int, num_generations: int) -> int:
        prompts, completions = map(shape.rows_per_device, (num_prompts, num_prompts * num_generations))
        # Rows move to smaller stages only on one device. A row has one state, whatever its length, and shares none.
        stages = plan_stages(num_prompts, num_generations, P, T) if shape.row_shards == 1 else ()
        copied = copied_slots(stages, P, T)
        copied_states = copied_slots([stage._replace(length=1) for stage in stages], 0, 1)
        slots, states = prompts * P + completions * T + copied, prompts + completions + copied_states
        return slots * of_slot + states * of_state

    evaluation = config.evaluation
    return max(
        of_batch(config.training.batch_size, config.grpo.num_generations),
        of_batch(max(1, min(evaluation.batch_size, evaluation.num_samples)), 1),
    )


def count_places(
    architecture: Architecture, compute_bytes: int, shape: MeshShape, *, max_context: int, available: int
) -> int:
    """Return how many requests a served policy can answer at a time.

    Each needs a place in the cache, and as much again while a program works on it.

    Args:
        architecture: Architecture of the policy.
        compute_bytes: Bytes of a number in the type that the policy computes in: 4 or 2.
        shape: Shape of the mesh.
        max_context: Maximum tokens of a prompt and its reply together.
        available: Bytes of a device beside the weights.

    Raises:
        ConfigError: There is no memory for one request.
    """
    slots = (max_context + LONGEST_PIECE) * slot_bytes(architecture, compute_bytes, shape)
    each = 2 * (slots + state_bytes(architecture, compute_bytes, shape))
    if each > available:
        raise ConfigError(
            f"a context of {max_context} tokens requires {each / 1e9:.2f} GB for keys and values, but a device has "
            f"{max(0, available) / 1e9:.2f} GB beside the weights; lower the maximum context, or set "
            "model.dtype=bfloat16",
            code="not_enough_memory",
        )
    return available // each


def slot_bytes(architecture: Architecture, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes of a token's keys and values on one device, in all layers that store them."""
    a = architecture
    heads = a.num_kv_heads // shape.tp if a.num_kv_heads % shape.tp == 0 else a.num_kv_heads
    widths = (
        a.head_dim_of(layer)
        for layer, kind in enumerate(a.layer_kinds)
        if kind != "linear_attention" and not a.is_borrowing(layer)
    )
    return 2 * heads * sum(widths) * compute_bytes


def state_bytes(architecture: Architecture, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes of a text's recurrent states on one device, in all layers with linear attention."""
    sizes = architecture.delta_net
    if sizes is None:
        return 0
    heads = sizes.value_heads // shape.tp if sizes.value_heads % shape.tp == 0 else sizes.value_heads
    memory = heads * sizes.key_dim * sizes.value_dim * _FLOAT32
    return architecture.num_linear_layers * (memory + (sizes.conv_width - 1) * sizes.conv_channels * compute_bytes)


def copied_slots(stages: Sequence[Stage], prompt_slots: int, completion_slots: int) -> int:
    """Return the most extra slots: while rows move, two stages and their copies of prefixes exist at once."""
    if not stages:
        return 0

    def slots_of(stage: Stage) -> int:
        own_prefixes = stage.slots * prompt_slots if stage.size < stages[0].size else 0
        return stage.size * stage.length + own_prefixes

    most = max(
        slots_of(one) + slots_of(other) for one, other in zip(stages, (*stages[1:], Stage(0, 0, 0)), strict=True)
    )
    return max(0, most - stages[0].size * completion_slots)
