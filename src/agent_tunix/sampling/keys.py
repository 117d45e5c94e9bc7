"""PRNG keys, derived from a seed, a use and numbers."""

import enum
from typing import Any

import jax
import numpy as np


class Use(enum.IntEnum):
    """The uses of keys. No two uses have a key in common."""

    TRAINING = 0
    EVALUATION = 1
    PILOT = 2
    GENERATION = 3
    JUDGE = 4
    REQUEST = 5


def derive_key(seed: int, use: Use, *numbers: int) -> jax.Array:
    """Return the key of a seed, a use and some numbers. Equal arguments give equal keys, others unrelated keys.

    NumPy's `SeedSequence` derives the key on the host. JAX's own `fold_in` would need a compiled program for each count
    of numbers before anything is sampled.

    Args:
        seed: Seed of the run, from 0 to 2³² - 1.
        use: Use of the key.
        numbers: Numbers that identify the key within its use, such as the step; each from 0 to 2³² - 1.
    """
    key: jax.Array = jax.random.wrap_key_data(key_words(seed, use, *numbers), impl="threefry2x32")
    return key


def derive_seed(key: jax.Array, *numbers: int) -> int:
    """Return a seed from 0 to 2³² - 1 from a key and numbers that identify its use, such as the row of a batch."""
    words = [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]
    return int(np.random.SeedSequence(words, spawn_key=numbers).generate_state(1)[0])


def key_words(seed: int, use: Use, *numbers: int) -> Any:
    """Return the two words of the key that `derive_key` returns, a NumPy array."""
    return np.random.SeedSequence(seed, spawn_key=(use, *numbers)).generate_state(2)
