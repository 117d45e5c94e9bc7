"""PRNG keys from a seed and the numbers of what they are for, in one compiled call."""

import functools

import jax
import numpy as np


def derive_key(seed: int, *numbers: int) -> jax.Array:
    """The key of a seed with some numbers folded in, from first to last: equal numbers give equal keys.

    Args:
        seed: The run's.
        numbers: Each from 0 to 2³² - 1.
    """
    key: jax.Array = _derive(seed, *(np.uint32(number) for number in numbers))
    return key


# One after the other each would be a small program of its own, several of them to be compiled as a run starts.
@functools.partial(jax.jit, static_argnums=0)
def _derive(seed: int, *numbers: jax.Array) -> jax.Array:
    return functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))
