"""PRNG keys from a seed and the numbers of what they are for, in one compiled call."""

import functools

import jax
import numpy as np

from agent_tunix.policy.programs import Call, Programs


def derive_key(programs: Programs, seed: int, *numbers: int) -> jax.Array:
    """The key of a seed with some numbers folded in, from first to last: equal numbers give equal keys.

    Args:
        programs: What makes it is one of them.
        seed: The run's.
        numbers: Each from 0 to 2³² - 1.
    """
    args = tuple(np.uint32(number) for number in numbers)
    key: jax.Array = programs.run(Call("key", _derive, args, {"seed": seed}, shapes=len(args), is_small=True))
    return key


def shape_of_key() -> jax.ShapeDtypeStruct:
    """What `derive_key` gives as a shape, for a program that is compiled while its first key is."""
    key = jax.eval_shape(jax.random.key, 0)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=place)  # type: ignore[no-untyped-call]


# One after the other each would be a small program of its own, several of them to be compiled as a run starts.
@functools.partial(jax.jit, static_argnames="seed")
def _derive(*numbers: jax.Array, seed: int) -> jax.Array:
    return functools.reduce(jax.random.fold_in, numbers, jax.random.key(seed))
