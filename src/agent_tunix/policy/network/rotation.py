"""Rotary positions (https://arxiv.org/abs/2104.09864), and the scaling of their frequencies by families.

Axes: B rows, T tokens, N heads of any kind, H width of a head.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from agent_tunix.policy.architecture import Rope
from agent_tunix.policy.network.attention import wide

Angles = tuple[Float[Array, "B T 1 H/2"], Float[Array, "B T 1 H/2"]]


def rotation(rope: Rope, head_dim: int, positions: Int[Array, "B T"]) -> Angles:
    """Return cosines and sines of each position's angles, times the magnitude of a rotation.

    They are float32, because bfloat16 cannot tell position 257 from 256.
    """
    angles = positions[..., None].astype(jnp.float32) * frequencies(rope, head_dim)
    # Without the barrier, XLA computes them again in each kernel that rotates a query or a key.
    turned = jnp.cos(angles) * rope.magnitude, jnp.sin(angles) * rope.magnitude
    cos, sin = jax.lax.optimization_barrier(turned)  # type: ignore[no-untyped-call]
    return cos[:, :, None, :], sin[:, :, None, :]


def frequencies(rope: Rope, head_dim: int) -> Float[Array, " H/2"]:
    """Return the radians per position of each pair of a head's rotated dimensions.

    The frequency of pair i is theta^(-2i/H). `linear` divides all frequencies by the factor. `llama3` divides those
    with wavelengths beyond `original_length / low_freq_factor`, with a linear transition to those that do not change.
    `yarn` does too, but its transition is linear in i, between whole numbers. `proportional` rotates only the first
    pairs.
    """
    # On the host in float64, because an error is multiplied by the position.
    if rope.kind == "default":
        head_dim = int(head_dim * rope.rotated_share)
    plain = rope.theta ** (-np.arange(0, head_dim, 2) / head_dim)
    stretched = plain / rope.factor
    kept: Any = 1.0
    if rope.kind == "proportional":
        # The other pairs keep their values: they have the frequency 0.
        plain = stretched = np.where(np.arange(head_dim // 2) < int(rope.rotated_share * head_dim // 2), stretched, 0.0)
    elif rope.kind == "linear":
        kept = 0.0
    elif rope.kind == "llama3":
        turns = rope.original_length * plain / (2 * math.pi)
        kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    elif rope.kind == "yarn":
        # The pair that makes `turns` turns in the original length. Sums of logarithms are finite for finite numbers.
        length = math.log(rope.original_length) - math.log(2 * math.pi)
        first, last = (
            head_dim / 2 * (length - math.log(turns)) / math.log(rope.theta)
            for turns in (rope.high_freq_factor, rope.low_freq_factor)
        )
        low, high = max(math.floor(first), 0), min(math.ceil(last), head_dim - 1)
        kept = 1 - (np.arange(head_dim // 2) - low) / (high - low or 1e-3)
    kept = np.clip(kept, 0.0, 1.0)
    return jnp.asarray(kept * plain + (1 - kept) * stretched, jnp.float32)


def rotate(x: Float[Array, "B T N H"], angles: Angles) -> Float[Array, "B T N H"]:
    """Rotate each pair (i, i + H/2) of a head by its angle. Dimensions beyond those of the angles do not change."""
    cos, sin = angles
    half = cos.shape[-1]
    a, b, rest = jnp.split(x.astype(wide(x.dtype)), [half, 2 * half], axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1).astype(x.dtype)
