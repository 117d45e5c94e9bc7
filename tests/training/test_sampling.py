"""Choosing a token: what is kept against an oracle, how often each is drawn, and the keys of its randomness."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.token_choice import (
    KEEP_ALL,
    RowSampling,
    SamplingParams,
    choose,
    choose_by_row,
    keep,
    pick,
    uniforms,
)
from tests.training.reference_sampler import kept


def weights_of(logits_NV: Any) -> jax.Array:
    logits_NV = jnp.asarray(logits_NV)
    return jnp.exp(logits_NV - logits_NV.max(axis=-1, keepdims=True))


_keep = jax.jit(keep, static_argnums=(1, 2, 3))
_choose = jax.jit(choose, static_argnums=(2, 3))


@settings(max_examples=60, deadline=None)
@given(
    logits_V=hnp.arrays(np.float32, 12, elements=st.integers(-40, 40).map(lambda n: n / 8)),
    top_k=st.none() | st.sampled_from([1, 2, 5, 12, 20]),
    top_p=st.sampled_from([0.03, 0.31, 0.57, 0.83, 1.0]),
    min_p=st.sampled_from([0.0, 0.021, 0.37]),
)
def test_what_is_kept_is_that_of_an_oracle(logits_V: np.ndarray, top_k: int | None, top_p: float, min_p: float) -> None:
    weights_V = np.asarray(weights_of(logits_V[None]))[0]
    found_V = np.asarray(_keep(weights_V[None], top_k, top_p, min_p))[0]
    stays_V = kept(logits_V, top_k, top_p, min_p)
    assert np.array_equal(found_V > 0, stays_V)
    assert np.array_equal(found_V[stays_V], weights_V[stays_V])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((2, 1.0, 0.0), [False, True, True, True]),  # as likely as the second: stays
        ((None, 0.1, 0.0), [False, True, True, True]),
        ((None, 1.0, 1e-9), [True, True, True, True]),
        ((None, 1.0, 0.5), [False, True, True, True]),
    ],
)
def test_equally_likely_tokens_stay_or_go_together(settings: Any, expected: list[bool]) -> None:
    found = np.asarray(keep(weights_of([[1.0, 3.0, 3.0, 3.0]]), *settings))[0]
    assert (found > 0).tolist() == expected


@pytest.mark.parametrize("settings", [(3, 1.0, 0.0), (None, 0.999999, 0.0), (None, 1.0, 1e-30)])
def test_a_word_without_weight_is_never_kept(settings: Any) -> None:
    found = np.asarray(keep(weights_of([[1.0, -np.inf, 0.0]]), *settings))[0]
    assert (found > 0).tolist() == [True, False, True]


def test_the_largest_of_many_words_is_found_whatever_the_size_of_the_vocabulary() -> None:
    for size in (1, 3, 33, 1024):
        likeliest = size // 2
        logits_1V = jnp.zeros((1, size)).at[0, likeliest].set(50.0)
        for greedy in (True, False):
            token_N, _ = _choose(logits_1V, jnp.full((1, 2), 0.5), SamplingParams(1, greedy=greedy), None)
            assert token_N.tolist() == [likeliest]


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24])
def test_no_number_picks_a_word_without_weight(uniform: float) -> None:
    weights_1V = jnp.zeros((1, 300)).at[0, jnp.array([17, 18, 290])].set(1.0)
    for other in (0.0, 0.5, 1 - 2**-24):
        word = int(pick(weights_1V, jnp.array([[uniform, other]]))[0])
        assert word in (17, 18, 290)


def test_words_are_picked_in_proportion_to_their_weights() -> None:
    """An even grid of numbers meets each word as often as its weight says, but for one cell at each end."""
    rng = np.random.default_rng(0)
    weights_V = np.exp(2 * rng.normal(size=40)).astype(np.float32)
    side = 512
    grid = (np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2) + 0.5) / side
    words = np.asarray(pick(jnp.broadcast_to(weights_V, (side**2, 40)), jnp.asarray(grid, jnp.float32)))
    shares_V = np.bincount(words, minlength=40) / side**2
    # A run is met to within a number of the first, a word of it to within one of the second.
    np.testing.assert_allclose(shares_V, weights_V / weights_V.sum(), atol=2 / side)
    assert abs(shares_V - weights_V / weights_V.sum()).sum() < 0.02


def test_the_randomness_of_a_row_depends_on_key_position_and_row_alone() -> None:
    key = jax.random.key(3)
    np.testing.assert_array_equal(uniforms(key, 5, 4), uniforms(key, 5, 9)[:4])
    numbers = {float(x) for t in range(20) for x in np.asarray(uniforms(key, t, 30)).ravel()}
    assert len(numbers) > 0.999 * 20 * 30 * 2
    assert not np.array_equal(uniforms(key, 5, 4), uniforms(jax.random.key(4), 5, 4))


def test_log_probabilities_are_over_all_words_whatever_was_left_out() -> None:
    logits_NV = jnp.asarray(np.random.default_rng(1).normal(size=(5, 30)), jnp.float32)
    sampling = SamplingParams(1, temperature=0.7, top_k=3, top_p=0.5, min_p=0.1)
    token_N, logp_N = _choose(logits_NV, uniforms(jax.random.key(0), 0, 5), sampling, 4)
    expected_NV = jax.nn.log_softmax(logits_NV / 0.7, axis=-1)
    np.testing.assert_allclose(logp_N, expected_NV[jnp.arange(5), token_N], atol=1e-6)


@pytest.mark.parametrize("forbidden", [None, 3])
def test_rows_with_parameters_of_their_own_choose_as_all_rows_with_these(forbidden: int | None) -> None:
    logits_NV = np.random.default_rng(0).normal(size=(64, 40)).astype(np.float32) * 3
    uniforms_N2 = uniforms(jax.random.key(0), 0, 64)
    kinds = [
        SamplingParams(1),
        SamplingParams(1, temperature=1.7, top_k=5),
        SamplingParams(1, top_p=0.6),
        SamplingParams(1, temperature=0.4, min_p=0.2),
        SamplingParams(1, top_k=12, top_p=0.7, min_p=0.05),
        SamplingParams(1, greedy=True),
    ]
    for chosen in (kinds, kinds[:1], kinds[4:]):
        rows = [chosen[number % len(chosen)] for number in range(64)]
        by_row = RowSampling(
            jnp.array([row.temperature for row in rows], jnp.float32),
            jnp.array([row.top_k or KEEP_ALL for row in rows], jnp.int32),
            jnp.array([row.top_p for row in rows], jnp.float32),
            jnp.array([row.min_p for row in rows], jnp.float32),
            jnp.array([row.greedy for row in rows]),
        )
        tokens_N, logps_N = jax.jit(choose_by_row, static_argnums=3)(logits_NV, uniforms_N2, by_row, forbidden)
        for kind in chosen:
            expected = _choose(logits_NV, uniforms_N2, kind, forbidden)
            own_N = np.array([row is kind for row in rows])
            assert np.array_equal(tokens_N[own_N], expected[0][own_N])
            np.testing.assert_allclose(logps_N[own_N], expected[1][own_N], atol=1e-5)


def test_a_forbidden_token_that_outweighs_all_others_is_not_chosen() -> None:
    logits_1V = jnp.array([[500.0, 1.0, 0.0]])
    for sampling in (SamplingParams(1, greedy=True), SamplingParams(1), SamplingParams(1, top_p=0.1)):
        token_N, logp_N = choose(logits_1V, jnp.array([[0.1, 0.1]]), sampling, forbidden=0)
        assert token_N.tolist() == [1]
        assert float(logp_N[0]) == pytest.approx(-499.0)


# As users compile; tests compile faster, and compute softcapped logits only once.
AS_USERS: dict[str, str | bool] = {
    "xla_backend_optimization_level": "3",
    "xla_llvm_disable_expensive_passes": False,
    "xla_cpu_use_fusion_emitters": True,
}


def test_a_greedy_choice_is_the_largest_of_softcapped_logits() -> None:
    """Compiled with the softcap, which XLA may compute twice, with different roundings."""

    def choose_capped(hidden_ND: jax.Array, head_DV: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits_NV = jnp.tanh(hidden_ND @ head_DV / 30) * 30
        return choose(logits_NV, None, SamplingParams(1, greedy=True), forbidden=0)

    for seed in range(5):
        rng = np.random.default_rng(seed)
        hidden_ND, head_DV = rng.normal(size=(3, 32)).astype(np.float32), rng.normal(size=(32, 1024)).astype(np.float32)
        chosen_N, _ = jax.jit(choose_capped).lower(hidden_ND, head_DV).compile(AS_USERS)(hidden_ND, head_DV)
        np.testing.assert_array_equal(chosen_N, 1 + (hidden_ND @ head_DV)[:, 1:].argmax(axis=1))


def test_logits_that_are_no_numbers_give_a_word() -> None:
    token_N, _ = choose(jnp.full((1, 5), jnp.nan), jnp.array([[0.5, 0.5]]), SamplingParams(1), None)
    assert 0 <= int(token_N[0]) < 5


def words(key: jax.Array) -> tuple[int, ...]:
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_no_two_uses_or_numbers_have_a_key_in_common() -> None:
    seeds = 0, 1, 2**32 - 1
    numbers = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (2**32 - 1,)]
    keys = [words(derive_key(seed, use, *told)) for seed, use, told in itertools.product(seeds, Use, numbers)]
    assert len(set(keys)) == len(keys)
