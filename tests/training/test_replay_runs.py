"""Runs that replay hard groups: the loss of a replayed group, resuming, and what is stored of them."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.config.schema import Config
from agent_tunix.grpo.loss import objective_settings
from agent_tunix.rewards.advantages import compute_advantages
from agent_tunix.sampling.sampler import join_completions
from agent_tunix.tracking.rollouts import RolloutReader
from agent_tunix.training.verification import first_difference, first_rollout_difference
from tests.grpo.losses.support import Batch, objective
from tests.training import reference_sampler
from tests.training.support import Bench, BenchMaker, assert_same_weights, copy_run, train_run

pytestmark = pytest.mark.slow

REPLAY = (
    "grpo.replay_groups=6",
    "grpo.replay_max_age=3",
    "optimizer.learning_rate=1e-4",
    "training.num_batches=6",
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=0",
)
# The weight of one component moves, so that totals of another step would differ.
SCHEDULED = (
    "reward=careful_math",
    "grpo.filter_by=correct",
    "reward.components.overlong.weight={from: 0.0, to: 0.5, steps: [1, 6]}",
    "reward.components.overlong.args={max_tokens: 16, buffer_tokens: 12}",
)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("replay") / "run"
    return root, train_run(root, *REPLAY, *SCHEDULED)


def logps_of(bench: Bench, completions: Any) -> np.ndarray:
    """[N, T] from a full forward pass."""
    logits = reference_sampler.logits_of(bench.policy, completions.prompt_tokens.shape[1] + completions.tokens.shape[1])
    rows = zip(completions.prompt_tokens, completions.tokens, strict=True)
    return np.array([reference_sampler.logps_of(logits, prompt[prompt != 0], ids, 0.7) for prompt, ids in rows])


def test_the_ratios_of_a_replayed_group_are_to_the_policy_that_sampled_it(make_bench: BenchMaker) -> None:
    def adjust(config: Config) -> None:
        config.grpo = dataclasses.replace(config.grpo, num_generations=4, beta=0.0, replay_groups=4)

    bench, advantages = make_bench(adjust, optimizer=optax.sgd(0.05)), np.tile([1.0, -0.5, 0.25, -0.75], 4)
    old = bench.sample()
    first = logps_of(bench, old)
    for _ in range(3):
        bench.update(old, advantages)
    new = bench.sample(seed=2)
    # The second group of the batch is a replayed one.
    rows = [(int(4 <= row < 8), row) for row in range(16)]
    batch = join_completions([new, old], rows)
    now = logps_of(bench, batch)
    sampled = np.where((np.arange(16) // 4 == 1)[:, None], first, now)
    np.testing.assert_allclose(batch.logps[batch.mask], sampled[batch.mask], atol=2e-4)
    settings = objective_settings(bench.config.grpo)
    expected = objective(Batch(now, sampled, now, advantages, batch.mask), settings, bench.config.grpo.loss_agg_mode)
    record = bench.updater.dispatch(bench.example(batch, advantages))
    assert float(record["loss"]) == pytest.approx(expected, abs=2e-4)
    assert float(record["ratio_max"]) > 1.02


def test_a_resumed_run_replays_what_an_uninterrupted_one_does(
    replayed: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    root, rows = replayed
    resumed = copy_run(root, tmp_path / "run", without=6)
    assert first_difference(rows, train_run(resumed, *REPLAY, *SCHEDULED, "training.resume=true")) is None
    assert first_rollout_difference(root, resumed) is None
    assert_same_weights(root, resumed)
    assert sum(row["replay/groups"] for row in rows[5:]) > 0  # so that what was resumed replayed some


def test_what_is_stored_trained_and_tells_where_it_was_sampled(replayed: tuple[Path, list[dict[str, Any]]]) -> None:
    root, rows = replayed
    steps = {stored.step: stored for stored in RolloutReader(root / "rollouts").iterate()}
    num_replayed, moved = 0, False
    for row in rows[1:]:
        stored = steps[row["step"]]
        assert row["sampling/groups"] == 4
        places = [n for n in range(0, 16, 4) if stored.samples[n].step < stored.step]
        assert len(places) == row["replay/groups"]
        totals = np.array([score.value for score in stored.scores])
        assert totals.mean() == pytest.approx(row["rewards/total/mean"])
        np.testing.assert_allclose(stored.advantages, compute_advantages(totals, 4), atol=1e-6)
        for n in places:
            sample, source = stored.samples[n], steps[stored.samples[n].step]
            origin = next(
                m
                for m, other in enumerate(source.samples)
                if (other.prompt, other.step) == (sample.prompt, sample.step)
            )
            for member in range(4):
                assert stored.samples[n + member].tokens == source.samples[origin + member].tokens
                assert stored.logprobs[n + member] == source.logprobs[origin + member]
                score, before = stored.scores[n + member], source.scores[origin + member]
                assert score.components == before.components
                assert score.value == pytest.approx(sum(term.contribution for term in score.terms.values()))
                moved |= score.value != before.value
        num_replayed += len(places)
        assert len({sample.rollout_id for sample in stored.samples}) == 16
    assert num_replayed > 2
    assert moved  # the weights


def test_a_replay_of_the_stored_rollouts_is_exact(replayed: tuple[Path, list[dict[str, Any]]]) -> None:
    result = CliRunner().invoke(main, ["rewards", "replay", str(replayed[0])])
    assert result.exit_code == 0, result.output
