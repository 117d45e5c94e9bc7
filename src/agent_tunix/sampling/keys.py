"""PRNG keys from a seed, what they are for, and the numbers of that."""

import enum
from typing import Any

import jax
import numpy as np


class Use(enum.IntEnum):
    """What a key is for: no two uses have a key in common."""

    TRAINING = 0
    EVALUATION = 1
    PILOT = 2
    GENERATION = 3


def derive_key(seed: int, use: Use, *numbers: int) -> jax.Array:
    """The key of a seed, a use and some numbers: equal ones give equal keys, and any others unrelated ones.

    NumPy's `SeedSequence` derives it, on the host: JAX's own `fold_in` would be a program for each count of numbers,
    and to be compiled before anything is sampled.

    Args:
        seed: The run's, from 0 to 2³² - 1.
        use: What the key is for.
        numbers: Of what it is for, each from 0 to 2³² - 1.
    """
    words: Any = np.random.SeedSequence(seed, spawn_key=(use, *numbers)).generate_state(2)
    key: jax.Array = jax.random.wrap_key_data(words, impl="threefry2x32")
    return key
