"""Keys: one for each use and number, the same in every process."""

import itertools

import jax
import numpy as np

from agent_tunix.sampling.keys import Use, derive_key


def words(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_equal_arguments_give_equal_keys() -> None:
    assert words(derive_key(7, Use.TRAINING, 3, 0)) == words(derive_key(7, Use.TRAINING, 3, 0))


def test_a_key_is_what_it_was() -> None:
    """A run that is resumed with a later version samples what it would have sampled."""
    assert words(derive_key(42, Use.TRAINING, 1, 0)) == (1457006321, 1004304558)


def test_no_two_uses_or_numbers_have_a_key_in_common() -> None:
    seeds = 0, 1, 2**32 - 1
    numbers = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2**32 - 1,)]
    keys = [words(derive_key(seed, use, *told)) for seed, use, told in itertools.product(seeds, Use, numbers)]
    assert len(set(keys)) == len(keys)


def test_nothing_is_compiled_for_one() -> None:
    told: list[str] = []

    def listen(event: str, *_: object, **__: object) -> None:
        told.append(event)

    jax.clear_caches()  # type: ignore[no-untyped-call]
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        derive_key(0, Use.EVALUATION, 5, 6, 7)
        assert not [event for event in told if "compile" in event]
        jax.jit(lambda x: x + 1)(1)
        assert [event for event in told if "compile" in event]
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
