"""Every objective in every aggregation, values and gradients, against the papers' sums in NumPy."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agent_tunix.config.schema import GrpoConfig
from agent_tunix.grpo.loss import objective_settings
from agent_tunix.grpo.losses import AGGREGATIONS, LossBatch, ObjectiveSettings, completion_weights, policy_objective
from agent_tunix.grpo.losses.objective import trains_without_advantages
from agent_tunix.grpo.losses.terms import MASKS, TERMS
from tests.grpo.losses.support import (
    GENERATIONS,
    MAX_LENGTH,
    NUM_ROWS,
    Batch,
    batches,
    correction,
    gradient,
    near_a_kink,
    objective,
)
from tests.tiers import in_tiers

OBJECTIVES = {
    "GRPO": (ObjectiveSettings("grpo", 0.2, 0.2, None, 0.04), "sequence-mean-token-mean"),
    "GRPO with k2": (ObjectiveSettings("grpo", 0.2, 0.2, None, 0.5, "mse_kl"), "sequence-mean-token-mean"),
    "GRPO with a dual clip": (ObjectiveSettings("grpo", 0.2, 0.2, 3.0), "sequence-mean-token-mean"),
    "Dr. GRPO": (ObjectiveSettings("grpo", 0.2, 0.2), "sequence-mean-token-sum-norm"),
    "DAPO": (ObjectiveSettings("grpo", 0.2, 0.28), "token-mean"),
    "GSPO": (ObjectiveSettings("gspo", 3e-4, 4e-4), "sequence-mean-token-mean"),
    "GSPO of wide bounds": (ObjectiveSettings("gspo", 0.2, 0.28, 3.0, 0.1), "sequence-mean-token-mean"),
    "GSPO-token": (ObjectiveSettings("gspo_token", 0.2, 0.28), "sequence-mean-token-mean"),
    "GSPO-token over all tokens": (ObjectiveSettings("gspo_token", 0.2, 0.28), "token-mean"),
    "CISPO": (ObjectiveSettings("cispo", epsilon_high=1.0), "token-mean"),
    "ScaleRL": (ObjectiveSettings("cispo", epsilon_high=4.0), "prompt-mean-token-mean"),
    "SAPO": (ObjectiveSettings("sapo", tau_positive=1.0, tau_negative=1.5), "sequence-mean-token-mean"),
    "GMPO": (ObjectiveSettings("gmpo", 0.4, 0.4), "sequence-mean-token-mean"),
    "GRPO with an unbiased KL": (
        ObjectiveSettings("grpo", 0.2, 0.2, None, 0.3, "unbiased_kl"),
        "sequence-mean-token-mean",
    ),
    "GRPO with an entropy bonus": (ObjectiveSettings(entropy_coefficient=0.05), "token-mean"),
    "GRPO of the top entropies": (ObjectiveSettings(top_entropy_share=0.2), "token-mean"),
    "GRPO with off-policy masking": (ObjectiveSettings(off_policy_threshold=0.05), "sequence-mean-token-mean"),
    "GRPO with positive examples": (ObjectiveSettings(positive_nll=0.1), "token-mean"),
    "GRPO with corrected tokens": (ObjectiveSettings(sampler_correction="token"), "token-mean"),
    "RLOO with corrected sequences": (
        ObjectiveSettings("reinforce", sampler_correction="sequence", sampler_correction_cap=3.0),
        "sequence-mean-token-sum",
    ),
    "GRPO with IcePop": (
        ObjectiveSettings(sampler_correction="icepop", sampler_correction_cap=5.0, sampler_correction_floor=0.5),
        "token-mean",
    ),
    "RLOO with masked sequences": (
        ObjectiveSettings("reinforce", sampler_correction="sequence_mask", sampler_correction_floor=0.2),
        "token-mean",
    ),
    "GRPO with a geometric mask": (
        ObjectiveSettings(
            sampler_correction="geometric_mask", sampler_correction_cap=1.001, sampler_correction_floor=0.999
        ),
        "sequence-mean-token-mean",
    ),
    "DPPO": (ObjectiveSettings("dppo_tv", 0.15, 0.15), "sequence-mean-token-sum-norm"),
    "DPPO of KL": (ObjectiveSettings("dppo_kl", 0.05, 0.08), "token-mean"),
    "LUSPO": (ObjectiveSettings("gspo_token", 0.2, 0.28), "sequence-mean-token-sum"),
    "VL Norm": (ObjectiveSettings("grpo", 0.2, 0.3), "length-weighted-token-sum"),
    "All terms": (
        ObjectiveSettings(
            "grpo", beta=0.1, entropy_coefficient=0.1, top_entropy_share=0.5, off_policy_threshold=0.1, positive_nll=0.2
        ),
        "sequence-mean-token-sum-norm",
    ),
    "RLOO": (ObjectiveSettings("reinforce", beta=0.04), "sequence-mean-token-sum"),
}


def as_jax(batch: Batch, mode: str, rows: slice = slice(None), *, on_policy: bool = False) -> LossBatch:
    """Some rows of a batch, with weights taken over all of it; NaN wherever nothing may be read."""

    def hidden(values: NDArray[np.float64]) -> jax.Array:
        return jnp.asarray(np.where(batch.mask, values, np.nan)[rows], float)

    weights = completion_weights(batch.mask.sum(axis=1), mode, MAX_LENGTH, GENERATIONS)
    return LossBatch(
        logps=hidden(batch.logps),
        old_logps=None if on_policy else hidden(batch.old),
        reference_logps=hidden(batch.reference),
        advantages=jnp.asarray(batch.advantages[rows], float),
        mask=jnp.asarray(batch.mask[rows]),
        weights=jnp.asarray(weights[rows], float),
        sampled_logps=hidden(batch.old),
        entropies=None if batch.entropies is None else hidden(batch.entropies),
    )


@jax.jit
def value_and_gradient(batch: LossBatch, chosen: ObjectiveSettings) -> tuple[jax.Array, jax.Array]:
    def loss(logps: jax.Array) -> jax.Array:
        return policy_objective(batch._replace(logps=logps), chosen)[0]

    value, slope = jax.value_and_grad(loss)(batch.logps)
    return value, slope


jitted_objective = jax.jit(policy_objective)
each_objective = pytest.mark.parametrize("name", OBJECTIVES)


@each_objective
@settings(max_examples=30)
@given(batch=batches(shift=25.0))
def test_in_float32_the_loss_is_that_of_the_paper_to_its_rounding(name: str, batch: Batch) -> None:
    chosen, mode = OBJECTIVES[name]
    assume(not near_a_kink(batch, chosen, 1e-6))
    value, _ = value_and_gradient(as_jax(batch, mode), chosen)
    np.testing.assert_allclose(value, objective(batch, chosen, mode), rtol=2e-4, atol=2e-5)


@each_objective
@settings(max_examples=30)
@given(batch=batches(shift=25.0))
def test_the_loss_is_that_of_the_paper(name: str, batch: Batch) -> None:
    chosen, mode = OBJECTIVES[name]
    assume(not near_a_kink(batch, chosen, 1e-6))
    with jax.enable_x64(True):
        value, _ = value_and_gradient(as_jax(batch, mode), chosen)
    assert value.dtype == jnp.float64
    np.testing.assert_allclose(value, objective(batch, chosen, mode), rtol=1e-6, atol=1e-6)


@each_objective
@settings(max_examples=30)
@given(batch=batches(shift=5.0))
def test_the_gradient_is_that_of_the_paper(name: str, batch: Batch) -> None:
    """With old log-probabilities that are the policy's own, too, where every ratio is 1."""
    chosen, mode = OBJECTIVES[name]
    assume(not near_a_kink(batch, chosen))
    with jax.enable_x64(True):
        _, slope = value_and_gradient(as_jax(batch, mode), chosen)
    expected = paper_gradient(batch, chosen, mode)
    np.testing.assert_allclose(slope, expected, rtol=1e-6, atol=1e-6 * max(1.0, float(np.abs(expected).max())))


def paper_gradient(batch: Batch, chosen: ObjectiveSettings, mode: str) -> NDArray[np.float64]:
    """Central differences; of CISPO and GSPO-token, which stop a gradient, in closed form. Of GSPO-token it is

    ∇ = sg[s_i] Â_i ∇ log π(o_it) for each token that is not clipped, weighed as it is aggregated.
    """
    weights = completion_weights(batch.mask.sum(axis=1), mode, MAX_LENGTH, GENERATIONS)
    if chosen.loss == "cispo":
        ratios = np.minimum(np.exp(np.where(batch.mask, batch.logps - batch.old, 0.0)), 1 + chosen.epsilon_high)
        return np.where(batch.mask, (-weights * batch.advantages)[:, None] * ratios, 0.0)
    if chosen.sampler_correction is not None:
        batch = replace(batch, correction=correction(batch, chosen))
    if chosen.loss != "gspo_token":
        return gradient(batch, chosen, mode)
    lengths = np.maximum(batch.mask.sum(axis=1), 1)
    ratios = np.exp(np.where(batch.mask, batch.logps - batch.old, 0.0).sum(axis=1) / lengths)
    clipped = np.where(batch.advantages > 0, ratios > 1 + chosen.epsilon_high, ratios < 1 - chosen.epsilon)
    return np.where(batch.mask, (-weights * ratios * batch.advantages * ~clipped)[:, None], 0.0)


ONE_UPDATE = {
    "sequence_mask": ObjectiveSettings("reinforce", sampler_correction="sequence_mask", sampler_correction_cap=3.0),
    **{
        f"{name} in a band": ObjectiveSettings(
            "reinforce", sampler_correction=name, sampler_correction_cap=cap, sampler_correction_floor=floor
        )
        for name, floor, cap in (
            ("icepop", 0.5, 5.0),
            ("sequence_mask", 0.5, 2.0),
            ("geometric_mask", 0.7, 1.4),
        )
    },
}


@pytest.mark.parametrize("name", ONE_UPDATE)
@settings(max_examples=20)
@given(batch=batches(shift=5.0))
def test_with_one_update_a_mask_is_an_importance_weight(name: str, batch: Batch) -> None:
    """Loss and gradient: the ratio within the band, 0 outside; the geometric mask is 1 within it."""
    chosen, mode = ONE_UPDATE[name], "sequence-mean-token-mean"
    assume(not near_a_kink(batch, chosen))
    factors = correction(batch, chosen, one_update=True)
    data = as_jax(batch, mode, on_policy=True)._replace(reference_logps=None)
    with jax.enable_x64(True):
        value, slope = value_and_gradient(data, chosen)
    expected = replace(batch, correction=factors)
    scale = max(1.0, float(np.abs(factors).max()))
    np.testing.assert_allclose(value, objective(expected, chosen, mode), rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(slope, gradient(expected, chosen, mode), rtol=1e-4, atol=1e-5 * scale)
    _, statistics = jitted_objective(data, chosen)
    masked = (factors == 0)[batch.mask].mean() if batch.mask.any() else 0.0
    assert float(statistics["sampler_masked_share"]) == pytest.approx(masked, abs=1e-6)


@pytest.mark.parametrize("name", ["token", "sequence", None])
def test_only_a_mask_tells_what_it_masks(name: str | None) -> None:
    logps = np.full((1, MAX_LENGTH), -1.0)
    batch = as_jax(Batch(logps, logps, logps, np.ones(1), np.ones((1, MAX_LENGTH), bool)), "token-mean")
    _, statistics = policy_objective(batch, ObjectiveSettings(sampler_correction=name))
    assert "sampler_masked_share" not in statistics


@settings(max_examples=15)
@given(batch=batches(shift=5.0), seed=st.integers(0, 1000))
def test_observed_tokens_are_predicted_beside_the_policy_loss(batch: Batch, seed: int) -> None:
    """ECHO: λ times the mean over episodes of the mean of −log π over their observed tokens, and its gradient."""
    rng = np.random.default_rng(seed)
    observed = ~batch.mask & (rng.random(batch.mask.shape) < 0.6)
    lengths = observed.sum(axis=1)
    weights = completion_weights(lengths, "sequence-mean-token-mean", MAX_LENGTH)[:, None] * observed
    with jax.enable_x64(True):
        plain = as_jax(batch, "token-mean")
        logps = jnp.asarray(np.where(batch.mask | observed, batch.logps, np.nan), float)
        taught = plain._replace(logps=logps, observation_weights=jnp.asarray(weights))
        chosen = ObjectiveSettings()
        value, slope = (np.asarray(x) for x in value_and_gradient(plain, chosen))
        new_value, new_slope = value_and_gradient(taught, replace(chosen, observation_nll=0.3))
        _, statistics = jitted_objective(taught, replace(chosen, observation_nll=0.3))
    episodes = [-batch.logps[i, observed[i]].mean() for i in range(NUM_ROWS) if lengths[i]]
    expected = float(np.mean(episodes)) if episodes else 0.0
    assert float(statistics["observation_nll"]) == pytest.approx(expected, rel=1e-6)
    assert float(statistics["observation_weight"]) == pytest.approx(float(bool(episodes)))
    np.testing.assert_allclose(new_value, value + 0.3 * expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(new_slope, slope - 0.3 * weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("exponent", [0.0, 0.75, 1.0])
def test_long_completions_weigh_their_length_to_the_power_of_minus_alpha(exponent: float) -> None:
    lengths = np.array([1, 4, 0, 5])
    powers = lengths[lengths > 0] ** -exponent
    expected = np.zeros(4)
    expected[lengths > 0] = powers / (powers.sum() * 10)
    found = completion_weights(lengths, "length-weighted-token-sum", 10, length_exponent=exponent)
    np.testing.assert_allclose(found, expected)


# The threshold of the top entropies is that of the part.
DIVISIBLE = [name for name, (chosen, _) in OBJECTIVES.items() if chosen.top_entropy_share is None]


@pytest.mark.parametrize("name", in_tiers(DIVISIBLE, "DAPO", "GSPO of wide bounds"))
@settings(max_examples=20)
@given(batch=batches(), cut=st.sampled_from([1, 3]))
def test_parts_of_a_batch_sum_to_the_whole(name: str, batch: Batch, cut: int) -> None:
    """Loss and gradient, however the rows are divided and however ragged they are."""
    chosen, mode = OBJECTIVES[name]
    halves = slice(0, cut), slice(cut, NUM_ROWS)
    parts = [value_and_gradient(as_jax(batch, mode, rows), chosen) for rows in halves]
    value, slope = value_and_gradient(as_jax(batch, mode), chosen)
    scale = max(1.0, float(np.abs(np.asarray(slope)).max()))
    # The losses of tokens may cancel; they are about as large as their gradients.
    np.testing.assert_allclose(sum(float(part[0]) for part in parts), value, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(np.concatenate([part[1] for part in parts]), slope, rtol=1e-5, atol=1e-6 * scale)


@each_objective
def test_a_batch_without_tokens_has_no_loss_and_no_gradient(name: str) -> None:
    """Not even NaN, of which `as_jax` puts one into every place outside the mask."""
    chosen, mode = OBJECTIVES[name]
    ones = np.full((NUM_ROWS, MAX_LENGTH), -1.0)
    batch = Batch(ones, ones, ones, np.array([1.0, -1.0, 1.0, 1.0]), np.zeros((NUM_ROWS, MAX_LENGTH), bool), ones)
    value, slope = value_and_gradient(as_jax(batch, mode), chosen)
    assert float(value) == 0.0
    assert not np.asarray(slope).any()


@pytest.mark.parametrize("name", in_tiers(list(OBJECTIVES), "GRPO", "GSPO-token"))
@settings(max_examples=20)
@given(batch=batches(shift=5.0))
def test_without_old_logps_every_ratio_is_one_and_nothing_is_clipped(name: str, batch: Batch) -> None:
    chosen, mode = OBJECTIVES[name]
    _, statistics = jitted_objective(as_jax(batch, mode, on_policy=True), chosen)
    present = float(batch.mask.any())
    assert float(statistics["ratio_mean"]) == present
    assert float(statistics["ratio_max"]) == present
    assert float(statistics["clip_share_low"]) == float(statistics["clip_share_high"]) == 0.0


@given(batch=batches(shift=5.0))
@settings(max_examples=30, deadline=None)
def test_on_policy_all_families_have_the_gradient_of_reinforce(batch: Batch) -> None:
    """Each is the policy gradient where the ratio is 1; they differ only in what they do away from there."""
    mode = "sequence-mean-token-mean"
    data = as_jax(batch, mode, on_policy=True)._replace(reference_logps=None)
    _, expected = value_and_gradient(data, ObjectiveSettings("reinforce"))
    for loss in ("grpo", "gspo", "gspo_token", "cispo", "sapo", "gmpo"):
        _, found = value_and_gradient(data, ObjectiveSettings(loss))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7, err_msg=loss)


# --- statistics -------------------------------------------------------------------------------------------------------


def shares(ratio: float, advantage: float, chosen: ObjectiveSettings) -> tuple[float, float, float]:
    """Clip shares, low and high, and the size of the gradient, of one token of that ratio."""
    logps = jnp.log(jnp.full((1, 1), 0.5))
    batch = LossBatch(
        logps=logps,
        old_logps=logps - jnp.log(ratio),
        reference_logps=None,
        advantages=jnp.array([advantage]),
        mask=jnp.ones((1, 1), bool),
        weights=jnp.ones(1),
    )
    _, statistics = jitted_objective(batch, chosen)
    _, slope = value_and_gradient(batch, chosen)
    return float(statistics["clip_share_low"]), float(statistics["clip_share_high"]), abs(float(slope[0, 0]))


@pytest.mark.parametrize("loss", ["grpo", "gspo", "gspo_token"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high"),
    [
        (0.5, 1.0, 0, 0),  # too unlikely, and good: it may come back
        (0.5, -1.0, 1, 0),
        (0.79, -1.0, 1, 0),
        (0.81, -1.0, 0, 0),
        (1.0, 1.0, 0, 0),
        (1.29, 1.0, 0, 0),
        (1.31, 1.0, 0, 1),
        (2.9, -1.0, 0, 0),  # too likely, and bad: it may come back
        (3.1, -1.0, 0, 1),  # but only so far
        (9.0, 0.0, 0, 0),
    ],
)
def test_clipped_tokens_are_those_of_no_slope(loss: str, ratio: float, advantage: float, low: int, high: int) -> None:
    found = shares(ratio, advantage, ObjectiveSettings(loss, 0.2, 0.3, 3.0))
    assert found[:2] == (low, high)
    assert (found[2] == 0) == bool(low or high or advantage == 0)


def test_the_kl_is_what_beta_weighs() -> None:
    rng = np.random.default_rng(0)
    logps, reference = -rng.exponential(size=(2, 4, MAX_LENGTH))
    batch = Batch(logps, logps, reference, np.zeros(4), np.arange(MAX_LENGTH) < np.array([[6], [1], [3], [0]]))
    for mode in AGGREGATIONS:
        data = as_jax(batch, mode)
        loss, statistics = policy_objective(data, ObjectiveSettings(beta=0.3))
        assert float(loss) == pytest.approx(0.3 * float(statistics["kl"]), rel=1e-6)
        assert float(statistics["kl"]) == pytest.approx(objective(batch, ObjectiveSettings(beta=1.0), mode), rel=1e-5)


def test_the_mismatch_is_the_divergence_of_the_sampler_from_the_policy() -> None:
    rng = np.random.default_rng(0)
    logps = -rng.exponential(size=(2, MAX_LENGTH))
    sampled = logps + 0.01 * rng.normal(size=logps.shape)
    mask = np.arange(MAX_LENGTH) < np.array([[6], [2]])
    batch = as_jax(Batch(logps, sampled, logps, np.ones(2), mask), "token-mean")
    _, statistics = policy_objective(batch, ObjectiveSettings())
    expected = (np.exp(logps - sampled) - (logps - sampled) - 1)[mask].mean()
    assert float(statistics["sampler_mismatch_kl"]) == pytest.approx(expected, abs=1e-6, rel=1e-3)


def test_the_share_of_masked_tokens_is_told() -> None:
    logps = np.full((2, MAX_LENGTH), -1.0)
    entropies = np.arange(2.0 * MAX_LENGTH).reshape(2, MAX_LENGTH)
    mask = np.ones((2, MAX_LENGTH), bool)
    batch = as_jax(Batch(logps, logps, logps, np.ones(2), mask, entropies), "token-mean")
    _, statistics = policy_objective(batch, ObjectiveSettings(top_entropy_share=0.25))
    assert float(statistics["masked_share"]) == 0.75
    assert "masked_share" not in policy_objective(batch, ObjectiveSettings())[1]


@pytest.mark.parametrize(("entropy", "expected"), [(0.0, 0.1), (0.3, 0.04), (0.5, 0.0), (2.0, 0.0)])
def test_the_bonus_shrinks_towards_the_target(entropy: float, expected: float) -> None:
    grpo = replace(GrpoConfig(), entropy_coefficient=0.1, entropy_target=0.5)
    assert objective_settings(grpo, entropy).entropy_coefficient == pytest.approx(expected)


def test_parts_that_are_not_set_are_not_in_the_program() -> None:
    optional = (*MASKS, *TERMS, "observation_nll", "sampler_correction", "sampler_correction_floor")
    assert all(getattr(objective_settings(GrpoConfig()), name) is None for name in optional)


def test_the_numbers_that_the_default_program_takes_are_few() -> None:
    """A number that is an input is part of the program, even if nothing reads it."""
    settings = objective_settings(GrpoConfig())
    paths = [path[0].name for path, _ in jax.tree_util.tree_leaves_with_path(settings)]
    expected = ["epsilon", "epsilon_high", "beta", "tau_positive", "tau_negative"]
    assert paths == [*expected, "sampler_correction_cap", "teacher_coefficient"]


@pytest.mark.parametrize(
    ("correction", "given", "floor", "cap"),
    [
        ("token", {}, None, 2.0),
        ("sequence", {"sampler_correction_cap": 4.0}, None, 4.0),
        ("icepop", {}, 0.5, 5.0),
        ("icepop", {"sampler_correction_floor": 0.2}, 0.2, 5.0),
        ("sequence_mask", {}, None, 3.0),
        ("geometric_mask", {}, 0.999, 1.001),
    ],
)
def test_bounds_of_corrections_are_those_of_their_papers(
    correction: str, given: dict[str, Any], floor: float | None, cap: float
) -> None:
    found = objective_settings(replace(GrpoConfig(), sampler_correction=correction, **given))
    assert (found.sampler_correction_floor, found.sampler_correction_cap) == (floor, cap)


# --- what a loss rewards ----------------------------------------------------------------------------------------------


def test_a_small_divergence_is_not_lost_to_rounding() -> None:
    """exp(d) − d − 1 in float32 is 0 or negative for d = 1e-4; half its square is 5e-9."""
    logps = np.full((1, MAX_LENGTH), -1.0)
    reference = (logps - 1e-4).astype(np.float32).astype(np.float64)
    batch = Batch(logps, logps, reference, np.zeros(1), np.ones((1, MAX_LENGTH), bool))
    _, statistics = policy_objective(as_jax(batch, "token-mean"), ObjectiveSettings(beta=1.0))
    assert float(statistics["kl"]) == pytest.approx(5e-9, rel=0.05)


def test_an_unknown_aggregation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be one of .*token-mean.*, not 'mean'"):
        completion_weights([1], "mean", 1)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_computed_in_float32(dtype: jnp.dtype) -> None:
    logps = jnp.full((1, 4), -1.5, dtype)
    batch = LossBatch(logps, logps, None, jnp.ones(1, dtype), jnp.ones((1, 4), bool), jnp.full(1, 0.25))
    loss, _ = policy_objective(batch, replace(ObjectiveSettings(), loss="grpo"))
    assert loss.dtype == jnp.float32
    assert float(loss) == -1.0


@pytest.mark.parametrize(
    ("settings", "has_teacher", "expected"),
    [
        (ObjectiveSettings(beta=0.5, positive_nll=0.1, epsilon_c=3.0), False, False),
        (ObjectiveSettings(entropy_coefficient=0.01), False, True),
        (ObjectiveSettings(entropy_coefficient=0.0), False, False),  # above the entropy that it aims at
        (ObjectiveSettings(observation_nll=0.05), False, True),
        (ObjectiveSettings(observation_nll=0.0), False, False),  # no token was observed
        (ObjectiveSettings(loss="none"), True, True),
        (ObjectiveSettings(teacher_coefficient=0.0), True, False),
        (ObjectiveSettings(loss="my_losses.py:own"), False, True),
    ],
)
def test_only_some_terms_train_without_advantages(
    settings: ObjectiveSettings, has_teacher: bool, expected: bool
) -> None:
    assert trains_without_advantages(settings, has_teacher) is expected
