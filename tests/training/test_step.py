"""One step of the algorithm: what is minimised, what it may change, and when it changes nothing."""

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from agent_tunix.config.schema import Config
from agent_tunix.errors import RewardFailureRateError
from agent_tunix.grpo import updater
from agent_tunix.grpo.loss import objective_settings
from agent_tunix.grpo.training_rows import training_rows
from agent_tunix.policy import mesh
from agent_tunix.rewards import Outcome, Score
from agent_tunix.sampling.sampler import Completions
from tests.grpo.losses.support import Batch, objective
from tests.grpo.test_training_rows import complete, record
from tests.raising import raises
from tests.training import reference_sampler
from tests.training.support import Bench, BenchMaker, assert_same, changed

pytestmark = pytest.mark.slow

ADVANTAGES = np.tile([1.0, -0.5, 0.25, -0.75], 4)


# What is minimised.


def logps_of(model: nnx.Module, completions: Completions, temperature: float) -> np.ndarray:
    """[N, T] from a full forward pass over unpadded prompts, row by row."""
    logits = reference_sampler.logits_of(model, completions.prompt_tokens.shape[1] + completions.tokens.shape[1])
    rows = zip(completions.prompt_tokens, completions.tokens, strict=True)
    return np.array([reference_sampler.logps_of(logits, prompt[prompt != 0], ids, temperature) for prompt, ids in rows])


def test_the_loss_is_the_clipped_objective_with_the_kl_penalty(two_iterations: Bench) -> None:
    """Over several updates on the same completions, so that ratios move, clip, and the policy leaves the reference."""
    bench, completions = two_iterations, two_iterations.sample()
    settings, clipped = objective_settings(bench.config.grpo), False
    first = logps_of(bench.policy, completions, 0.7)
    example = bench.example(completions, ADVANTAGES)
    for _ in range(6):
        now = logps_of(bench.policy, completions, 0.7)
        batch = Batch(now, first, first, ADVANTAGES, completions.mask)
        expected = objective(batch, settings, bench.config.grpo.loss_agg_mode)
        record = bench.updater.dispatch(example)
        assert float(record["loss"]) == pytest.approx(expected, abs=2e-4)
        clipped |= float(record["clip_share_low"]) + float(record["clip_share_high"]) > 0
    assert clipped


def ending_at_once(bench: Bench) -> Completions:
    """Completions that are nothing but the end-of-sequence token."""
    sampler = bench.trainer.sampler
    sampled = bench.sample()
    tokens = np.full_like(sampled.tokens, sampler.pad_id)
    tokens[:, 0] = sampler.eos_ids[0]
    ones = np.ones(len(tokens), np.int32)
    texts = [""] * len(tokens)
    unknown = np.zeros(tokens.shape, np.float32)
    made = Completions(sampled.prompt_tokens, sampled.prompt_lengths, tokens, ones, ones.astype(bool), texts, unknown)
    logps = logps_of(sampler.policy, made, bench.config.generation.temperature)
    return dataclasses.replace(made, logps=logps.astype(np.float32))


def test_forks_train_on_the_passes_of_their_rows(two_iterations: Bench) -> None:
    """The passes of the reference policy over parts, and both updates, on rows with prompts of their own."""
    bench = two_iterations
    trainer = bench.trainer
    completions = complete(record(4, num_agents=16, num_words=200))
    assert completions.forks is not None
    rows = training_rows(completions, bench.config, trainer.sampler.mesh)
    assert rows.num_parts > 1
    mask = rows.mask
    logits, expected = reference_sampler.logits_of(bench.policy, 2 * mask.shape[1]), np.zeros(mask.shape)
    for row in np.flatnonzero(mask.any(axis=1)):
        prompt, ids = rows.prompt_tokens[row, -rows.prompt_lengths[row] :], rows.tokens[row]
        expected[row] = reference_sampler.logps_of(logits, prompt, ids, 0.7)
    found = np.concatenate([np.asarray(part.reference_logps) for part in trainer.place(completions)])
    np.testing.assert_allclose(found[mask[:, : found.shape[1]]], expected[mask], atol=2e-4)

    N, F = len(completions.texts), len(completions.forks.owners)
    logps = np.where(mask, expected, 0.0).astype(np.float32)
    forks = dataclasses.replace(completions.forks, logps=logps[N : N + F])
    completions = dataclasses.replace(completions, logps=logps[:N], forks=forks)
    before = bench.state()
    policy, finite, applied = bench.update(completions, ADVANTAGES)
    assert (finite, applied) == (True, 2)
    assert policy["sampler_mismatch_kl"] == pytest.approx(0.0, abs=1e-6)
    assert policy["ratio_mean"] == pytest.approx(1.0, abs=0.2)  # of both updates; the first moves the policy
    assert changed(bench.state(), before)


def test_ending_is_trained(two_iterations: Bench) -> None:
    """The vanilla engine cuts the end-of-sequence token off, so that a model never learns to stop."""
    completions = ending_at_once(two_iterations)
    model = two_iterations.policy
    before = logps_of(model, completions, 1.0)[:, 0]
    two_iterations.update(completions, np.ones(len(completions.tokens)))
    assert (logps_of(model, completions, 1.0)[:, 0] > before).all()


# What it may change.


def test_a_step_is_a_function_of_weights_optimiser_and_step_number(two_iterations: Bench) -> None:
    one = two_iterations.run_step(3)
    assert one.updates_applied == 2
    after = two_iterations.state()
    two_iterations.reset()
    other = two_iterations.run_step(4)
    assert other.completions.texts != one.completions.texts  # each step has noise of its own
    two_iterations.reset()
    again = two_iterations.run_step(3)
    assert again.completions.texts == one.completions.texts
    assert again.policy == one.policy
    assert_same(two_iterations.state(), after)


def test_the_sampler_has_the_weights_just_trained_and_the_reference_those_before(two_iterations: Bench) -> None:
    reference = two_iterations.reference.model
    for step in (1, 2):
        two_iterations.run_step(step)
    assert changed(two_iterations.state(), two_iterations.initial)
    sampled, trained = nnx.state(two_iterations.trainer.sampler.policy), nnx.state(two_iterations.policy)
    jax.tree.map(np.testing.assert_array_equal, sampled, trained)
    before, _ = jax.tree_util.tree_flatten_with_path(nnx.state(reference, nnx.Param))
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in before}
    jax.tree.map(np.testing.assert_array_equal, named, two_iterations.initial["weights"])


def test_too_many_unscored_completions_stop_the_step(two_iterations: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reward = two_iterations.mixture.components[0].reward
    failed = Score.failed(Outcome.ERROR, "no such thing")
    monkeypatch.setattr(reward, "score", lambda samples: [failed] * len(samples))
    with raises(RewardFailureRateError, "reward_failure_rate", "step 1: the reward fails on 16 of 16", "no such thing"):
        two_iterations.run_step(1)
    assert_same(two_iterations.state(), two_iterations.initial)


# What goes on at once.


def test_a_reward_does_not_wait_for_the_reference(two_iterations: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the completions the host waits for the device once: for the updates."""
    events: list[str] = []
    reward = two_iterations.mixture.components[0].reward

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            events.append(name)
            return function(*args)

        return call

    monkeypatch.setattr(updater, "fetch", noted("fetch", mesh.fetch))
    monkeypatch.setattr(two_iterations.reference, "logps", noted("reference", two_iterations.reference.logps))
    monkeypatch.setattr(reward, "score", noted("reward", reward.score))
    two_iterations.run_step(1)
    assert events == ["reference", "reward", "fetch"]


# When it changes nothing.


def test_an_update_that_is_not_finite_changes_neither_weights_nor_optimiser(two_iterations: Bench) -> None:
    two_iterations.run_step(1)  # the optimiser has moments now
    before = two_iterations.state()
    advantages = ADVANTAGES.copy()
    advantages[5] = np.nan
    policy, finite, applied = two_iterations.update(two_iterations.sample(), advantages)
    assert (finite, applied) == (False, 0)
    assert all(np.isnan(policy[name] or 0.0) for name in ("update_norm", "update_ratio"))
    assert_same(two_iterations.state(), before)


def test_a_gradient_that_overflows_under_a_finite_loss_changes_nothing(two_iterations: Bench) -> None:
    policy, finite, _ = two_iterations.update(two_iterations.sample(), 1e30 * ADVANTAGES)
    assert policy["loss"] is not None
    assert np.isfinite(policy["loss"])
    assert not finite
    assert_same(two_iterations.state(), two_iterations.initial)


def test_updates_after_one_that_is_not_finite_change_nothing(two_iterations: Bench) -> None:
    """They are begun before it is known, and would be finite: advantages of 0 times a ratio that is not."""
    completions = two_iterations.sample()
    dispatch = two_iterations.updater.dispatch
    healthy = two_iterations.example(completions, ADVANTAGES)
    sick = two_iterations.example(completions, np.inf * ADVANTAGES)
    first = dispatch(healthy)
    before = two_iterations.state()
    second = dispatch(sick, first["healthy"])
    third = dispatch(healthy, second["healthy"])
    found = [(bool(aux["finite"]), bool(aux["healthy"])) for aux in (first, second, third)]
    assert found == [(True, True), (False, False), (True, False)]
    assert_same(two_iterations.state(), before)
    two_iterations.reset()


def test_of_two_updates_the_one_before_a_failure_counts(two_iterations: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count, the description and the weights follow the first alone."""
    completions = two_iterations.sample()
    dispatch, number = two_iterations.updater.dispatch, iter(range(9))
    dispatch(two_iterations.example(completions, ADVANTAGES))
    after_one = two_iterations.state()
    two_iterations.reset()

    def failing(example: Any, healthy: Any = None) -> Any:
        if next(number) == 1:
            example = dataclasses.replace(example, advantages=jnp.inf * example.advantages)
        return dispatch(example, healthy)

    monkeypatch.setattr(two_iterations.updater, "dispatch", failing)
    policy, finite, applied = two_iterations.update(completions, ADVANTAGES)
    assert (finite, applied) == (False, 1)
    assert policy["loss"] is not None
    assert not np.isfinite(policy["loss"])
    assert_same(two_iterations.state(), after_one)
    two_iterations.reset()


def test_the_kl_is_weighed_as_in_the_loss(two_iterations: Bench) -> None:
    """With advantages of 0 the loss is the penalty alone; a mean over tokens is another number."""
    completions = two_iterations.sample()
    two_iterations.update(completions, 3 * ADVANTAGES)  # away from the reference
    policy, _, _ = two_iterations.update(completions, np.zeros(len(ADVANTAGES)))
    assert policy["kl"] is not None
    assert policy["loss"] == pytest.approx(two_iterations.config.grpo.beta * policy["kl"], rel=1e-5)


def test_with_advantages_of_zero_a_policy_at_its_reference_stays_there(two_iterations: Bench) -> None:
    record = two_iterations.updater.dispatch(two_iterations.example(two_iterations.sample(), 0 * ADVANTAGES))
    assert float(record["kl"]) == pytest.approx(0.0, abs=1e-9)
    assert float(record["grad_norm"]) == pytest.approx(0.0, abs=1e-5)


def test_a_step_without_an_advantage_changes_neither_weights_nor_optimiser(two_iterations: Bench) -> None:
    two_iterations.run_step(1)  # the optimiser has moments now, and the policy has left its reference
    before = two_iterations.state()
    policy, finite, applied = two_iterations.update(two_iterations.sample(), np.zeros(len(ADVANTAGES)))
    assert (finite, applied) == (True, 0)
    assert policy["kl"] > 0  # type: ignore[operator]
    assert policy["grad_norm"] is policy["update_norm"] is policy["update_ratio"] is None
    assert_same(two_iterations.state(), before)


def test_advantages_of_masked_completions_alone_change_nothing(
    two_iterations: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_iterations.config.grpo, "mask_truncated", True)
    completions = two_iterations.sample()
    ended = np.arange(len(ADVANTAGES)) < 8
    completions = dataclasses.replace(completions, ended=ended)
    _, _, applied = two_iterations.update(completions, np.where(ended, 0.0, ADVANTAGES))
    assert applied == 0
    assert_same(two_iterations.state(), two_iterations.initial)


@pytest.mark.parametrize(("key", "value"), [("skip_dead_steps", False), ("entropy_coefficient", 0.01)])
def test_a_step_without_an_advantage_trains_on_request(
    two_iterations: Bench, monkeypatch: pytest.MonkeyPatch, key: str, value: float
) -> None:
    two_iterations.run_step(1)
    before = two_iterations.state()
    monkeypatch.setattr(two_iterations.config.grpo, key, value)
    _, _, applied = two_iterations.update(two_iterations.sample(), np.zeros(len(ADVANTAGES)))
    assert applied == 2
    assert changed(two_iterations.state(), before)
    assert changed(two_iterations.state(), before, "optimizer")


def test_a_constant_reward_skips_every_update_of_micro_batches(make_bench: BenchMaker) -> None:
    def adjust(config: Config) -> None:
        config.training.micro_batch_size = 2
        config.grpo.num_iterations = 3

    def constant(response: str) -> float:
        return 0.1 + 0.2

    bench = make_bench(adjust, optimizer=optax.adamw(1e-2), reward=constant)
    for step in (1, 2):
        result = bench.run_step(step)
        assert (result.finite, result.updates_applied, result.updates_skipped) == (True, 0, 3)
    assert_same(bench.state(), bench.initial)
    assert bench.updater.num_updates == 0


# LoRA.


@pytest.fixture(scope="module")
def quantised(make_bench: BenchMaker) -> Bench:
    """An adapter on a base of few bits."""

    def adjust(config: Config) -> None:
        config.model.lora_rank = 4
        config.model.dtype = "bfloat16"
        config.model.quantization = "nf4"
        config.grpo.beta = 0.1

    return make_bench(adjust)


def arrays_of(model: nnx.Module, *, adapter: bool) -> dict[str, jax.Array]:
    """The arrays of the adapter, or those of the base, by path."""
    leaves = nnx.to_flat_state(nnx.state(model))
    return {str(path): leaf.get_value() for path, leaf in leaves if isinstance(leaf, nnx.LoRAParam) is adapter}


def pointers(arrays: dict[str, jax.Array]) -> dict[str, int]:
    return {name: array.unsafe_buffer_pointer() for name, array in arrays.items()}


def test_with_an_adapter_nothing_else_changes_and_all_share_one_base(quantised: Bench) -> None:
    policy, reference = quantised.policy, quantised.reference.model
    assert quantised.trainer.sampler.policy is policy
    assert all("lora" in name for name in quantised.initial["weights"])
    base, adapter = arrays_of(policy, adapter=False), arrays_of(policy, adapter=True)
    assert {array.dtype for array in adapter.values()} == {jnp.dtype("float32")}
    assert jnp.dtype("float32") not in {array.dtype for name, array in base.items() if "scale" not in name}
    before, places = jax.tree.map(np.array, (base, adapter)), pointers(base)
    for step in (1, 2):
        assert quantised.run_step(step).finite
    assert pointers(arrays_of(policy, adapter=False)) == pointers(arrays_of(reference, adapter=False)) == places
    jax.tree.map(np.testing.assert_array_equal, arrays_of(policy, adapter=False), before[0])
    jax.tree.map(np.testing.assert_array_equal, arrays_of(reference, adapter=True), before[1])
    trained = arrays_of(policy, adapter=True)
    assert any(not np.array_equal(array, before[1][name]) for name, array in trained.items())
    assert not set(pointers(trained).values()) & set(pointers(arrays_of(reference, adapter=True)).values())
    quantised.reset()


def test_a_step_leaves_no_copy_of_a_base_weight(quantised: Bench) -> None:
    def copies() -> int:
        gc.collect()
        arrays: list[jax.Array] = jax.live_arrays()  # type: ignore[no-untyped-call]
        return sum(array.nbytes for array in arrays if array.shape == embedding.shape)

    embedding = quantised.policy.embed_tokens.embedding[...]
    before = copies()
    quantised.run_step(1)
    assert copies() == before
    quantised.reset()
