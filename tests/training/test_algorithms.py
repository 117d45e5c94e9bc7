"""The algorithms of `conf/grpo/` on the tiny model: micro-batches, truncation, dynamic sampling, a moving reference."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import CheckpointError
from agent_tunix.grpo.loss import objective_settings
from agent_tunix.rewards import Outcome, Score
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.raising import raises
from tests.training.support import Bench, BenchMaker, assert_same, changed, copy_run, small_run, train_run

pytestmark = pytest.mark.slow

ADVANTAGES = np.tile([1.0, -0.5, 0.25, -0.75], 4)


def bench_of(make_bench: BenchMaker, algorithm: str, micro_batch_size: int | None = None, **keys: Any) -> Bench:
    def adjust(config: Config) -> None:
        config.grpo = dataclasses.replace(small_run(f"grpo={algorithm}").grpo, num_generations=4, **keys)
        config.training.micro_batch_size = micro_batch_size

    return make_bench(adjust, optimizer=optax.sgd(0.05, momentum=0.9))


@pytest.fixture(scope="module")
def dapo(make_bench: BenchMaker) -> Bench:
    """Without a KL penalty; truncated completions are masked, and groups without a difference replaced."""
    return bench_of(make_bench, "dapo", dynamic_sampling_rounds=2)


def ragged(bench: Bench) -> Completions:
    """Completions of 1 to 8 tokens, unevenly spread over the micro-batches; some of the longest were cut."""
    sampled = bench.sample()
    lengths = np.minimum(np.array([1, 2, 1, 3, 8, 8, 7, 8, 2, 8, 4, 1, 6, 5, 8, 3]), sampled.tokens.shape[1])
    tokens = np.where(np.arange(sampled.tokens.shape[1]) < lengths[:, None], sampled.tokens, 0)
    ended = np.arange(16) % 3 != 0
    return dataclasses.replace(sampled, tokens=tokens.astype(np.int32), lengths=lengths.astype(np.int32), ended=ended)


def test_micro_batches_change_nothing_but_rounding(make_bench: BenchMaker, dapo: Bench) -> None:
    """The algorithm takes means over all tokens and masks some completions; `losses/` has all the others."""
    whole, quarters = dapo, bench_of(make_bench, "dapo", 1)
    completions = ragged(whole)
    one, _, _ = whole.update(completions, ADVANTAGES)
    other, _, applied = quarters.update(completions, ADVANTAGES)
    assert applied == whole.config.grpo.num_iterations
    assert {name: value for name, value in other.items() if value is None} == {
        name: value for name, value in one.items() if value is None
    }
    for name, value in one.items():
        assert value is None or other[name] == pytest.approx(value, rel=2e-3, abs=1e-5), name
    found, expected = quarters.state()["weights"], whole.state()["weights"]
    largest = max(float(np.abs(array - whole.initial["weights"][name]).max()) for name, array in expected.items())
    assert largest > 0
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=5e-3 * largest, err_msg=name)
    whole.reset()


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    {
        "default": ("grpo", 0.2, 0.2, "sequence-mean-token-mean"),
        "dr_grpo": ("grpo", 0.2, 0.2, "sequence-mean-token-sum-norm"),
        "dapo": ("grpo", 0.2, 0.28, "token-mean"),
        "gspo": ("gspo", 3e-4, 4e-4, "sequence-mean-token-mean"),
        "gspo_token": ("gspo_token", 3e-4, 4e-4, "sequence-mean-token-mean"),
        "rloo": ("reinforce", 0.2, 0.2, "sequence-mean-token-sum"),
        "cispo": ("cispo", 0.2, 4.0, "token-mean"),
        "scale_rl": ("cispo", 0.2, 4.0, "prompt-mean-token-mean"),
        "sapo": ("sapo", 0.2, 0.2, "sequence-mean-token-mean"),
        "gmpo": ("gmpo", 0.4, 0.4, "sequence-mean-token-mean"),
        "dppo": ("dppo_tv", 0.15, 0.15, "sequence-mean-token-sum-norm"),
        "luspo": ("gspo_token", 3e-4, 4e-4, "sequence-mean-token-sum"),
        "vl_norm": ("grpo", 0.2, 0.3, "length-weighted-token-sum"),
        "reinforce_plus_plus": ("grpo", 0.2, 0.2, "sequence-mean-token-mean"),
        "max_rl": ("reinforce", 0.2, 0.2, "sequence-mean-token-sum"),
    }.items(),
)
def test_an_algorithm_selects_its_objective(algorithm: str, expected: tuple[object, ...]) -> None:
    chosen = small_run(f"grpo={algorithm}").grpo
    objective = objective_settings(chosen)
    assert (objective.loss, objective.epsilon, objective.epsilon_high, chosen.loss_agg_mode) == expected


# Truncated completions.


def test_a_truncated_completion_takes_no_part_in_the_loss(dapo: Bench) -> None:
    completions = ragged(dapo)
    dapo.update(completions, ADVANTAGES)
    expected = dapo.state()
    dapo.reset()
    other = np.where(completions.ended, ADVANTAGES, 7.0 * ADVANTAGES)
    dapo.update(completions, other)
    assert_same(dapo.state(), expected)
    dapo.reset()
    dapo.update(dataclasses.replace(completions, ended=np.ones(16, bool)), ADVANTAGES)
    assert changed(dapo.state(), expected)
    dapo.reset()


def test_where_all_are_truncated_nothing_is_learned_and_nothing_is_claimed(dapo: Bench) -> None:
    assert dapo.trainer.reference is None
    policy, finite, _ = dapo.update(dataclasses.replace(ragged(dapo), ended=np.zeros(16, bool)), ADVANTAGES)
    assert finite
    assert_same({"weights": dapo.state()["weights"]}, {"weights": dapo.initial["weights"]})
    assert policy["loss"] == 0.0
    assert policy["kl"] is policy["entropy"] is policy["ratio_mean"] is policy["clip_share"] is None
    dapo.reset()


def test_a_truncated_completion_is_in_the_baseline_of_its_group(dapo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    score_by(dapo, monkeypatch, lambda sample: float(sample.index % 4 == 0))
    result, _ = run_rounds(dapo)
    np.testing.assert_allclose(result.advantages, np.tile([1.5, -0.5, -0.5, -0.5], 4), rtol=1e-4)


# Dynamic sampling.


def score_by(bench: Bench, monkeypatch: pytest.MonkeyPatch, value: Callable[[Any], float]) -> None:
    """Make the bench's only reward this one."""
    reward = bench.mixture.components[0].reward
    monkeypatch.setattr(reward, "score", lambda samples: [Score(value(sample)) for sample in samples])


def run_rounds(bench: Bench, step: int = 1) -> tuple[Any, list[int]]:
    """A step, and which further rounds it asked for."""
    asked: list[int] = []

    def more_prompts(number: int) -> PromptBatch:
        asked.append(number)
        return bench.batch

    result = bench.run_step(step, more_prompts)
    bench.reset()
    return result, asked


def test_groups_without_a_difference_are_replaced(dapo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups 0 to 3 are the first round: of these 1 and 2 live, and of the others every third.
    score_by(dapo, monkeypatch, lambda s: float(s.index % 4) if s.group_id in (1, 2) or s.group_id > 4 else 1.0)
    result, asked = run_rounds(dapo)
    assert asked == [1]
    assert [sample.group_id for sample in result.samples[::4]] == [5, 1, 2, 6]
    assert [sample.rollout_id for sample in result.samples[:2]] == ["1_5_0", "1_5_1"]
    assert (np.abs(result.advantages.reshape(4, 4)).max(axis=1) > 0).all()
    assert result.completions.texts == [sample.response for sample in result.samples]
    tally = result.sampled
    assert (tally.rounds, tally.groups, tally.dead_groups, tally.surplus_groups) == (2, 8, 3, 1)
    assert tally.outcomes[Outcome.SCORED] == 32


def test_rounds_are_limited_and_dead_groups_keep_their_places(dapo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    score_by(dapo, monkeypatch, lambda sample: 1.0)
    result, asked = run_rounds(dapo)
    assert asked == [1, 2]
    assert [sample.group_id for sample in result.samples[::4]] == [0, 1, 2, 3]
    assert not result.advantages.any()
    assert result.sampled.dead_groups == 12


def test_each_round_samples_with_its_own_noise(dapo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: dict[int, list[str]] = {}

    def value(sample: Any) -> float:
        texts.setdefault(sample.group_id // 4, []).append(sample.response)
        return 1.0

    score_by(dapo, monkeypatch, value)
    run_rounds(dapo)
    assert texts.keys() == {0, 1, 2}
    assert texts[0] != texts[1] != texts[2] != texts[0]
    key = derive_key(dapo.config.seed, Use.TRAINING, 1, 0)
    sampling = SamplingParams.of_training(dapo.config)
    plain = dapo.trainer.sampler.sample(dapo.batch.token_ids, key, sampling, num_generations=4, max_prompt_length=64)
    assert texts[0] == plain.texts


# A moving reference.


def weights_of(bench: Bench) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    state = bench.state()
    return state["weights"], state["reference"]


@pytest.fixture(scope="module")
def following(make_bench: BenchMaker) -> Bench:
    """An adapter, whose base the reference shares."""

    def adjust(config: Config) -> None:
        config.model.lora_rank = 4
        config.grpo.reference_sync_steps, config.grpo.reference_sync_mix = 2, 0.25
        config.grpo.skip_dead_steps = False  # what the short steps sample may earn nothing

    return make_bench(adjust)


def test_the_reference_moves_a_part_of_the_way_when_it_is_due(following: Bench) -> None:
    """Later updates of the policy do not reach it."""
    before = following.initial["weights"]
    following.run_step(1)
    _, reference = weights_of(following)
    assert_same({"weights": reference}, {"weights": before})
    following.run_step(2)
    weights, reference = weights_of(following)
    for name, array in weights.items():
        np.testing.assert_allclose(reference[name], 0.25 * array + 0.75 * before[name], rtol=1e-6, atol=1e-7)
    assert changed({"weights": reference}, {"weights": before})
    following.update(following.sample(), ADVANTAGES)
    later, same = weights_of(following)
    assert changed({"weights": later}, {"weights": weights})
    assert_same({"weights": same}, {"weights": reference})
    following.reset()


def test_the_penalty_is_against_the_reference_as_it_is_now(following: Bench) -> None:
    for step in (1, 2):
        following.run_step(step)
    completions = following.sample()
    now = np.asarray(following.example(completions, ADVANTAGES).reference_logps)
    following.reset()
    then = np.asarray(following.example(completions, ADVANTAGES).reference_logps)
    assert_same({"weights": weights_of(following)[1]}, {"weights": following.initial["weights"]})
    assert np.abs(now - then)[completions.mask].max() > 1e-6


def test_a_reference_that_stays_is_in_no_checkpoint(dapo: Bench) -> None:
    assert dapo.initial.keys() == {"weights", "optimizer"}


# Whole runs.

DAPO = (
    "grpo=dapo",
    "grpo.beta=0.1",
    "grpo.reference_sync_steps=1",
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=0",
)


@pytest.fixture(scope="module")
def synced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the reference moves and groups are replaced."""
    root = tmp_path_factory.mktemp("dapo") / "run"
    train_run(root, *DAPO)
    return root


def test_a_run_with_further_rounds_and_a_moving_reference_resumes_exactly(synced: Path, tmp_path: Path) -> None:
    resumed = copy_run(synced, tmp_path / "run", without=4)
    found = train_run(resumed, *DAPO, "training.resume=true")
    expected = read_rows(synced)
    assert first_difference(expected, found) is None
    assert first_rollout_difference(synced, resumed) is None
    assert max(row["sampling/rounds"] for row in expected[3:]) > 1  # so that what was resumed had some


def test_what_was_sampled_and_what_trained_are_both_logged(synced: Path) -> None:
    for row in read_rows(synced)[1:]:
        assert row["sampling/groups"] == 4 * row["sampling/rounds"]
        assert sum(row[f"sampling/outcomes/{outcome}"] for outcome in Outcome) == 4 * row["sampling/groups"]
        assert sum(row[f"rewards/outcomes/{outcome}"] for outcome in Outcome) == 16
        if row["sampling/rounds"] == 1:
            assert row["sampling/reward_mean"] == pytest.approx(row["rewards/total/mean"])


def test_a_run_whose_reference_moved_cannot_go_on_as_if_it_had_not(synced: Path, tmp_path: Path) -> None:
    run = copy_run(synced, tmp_path / "run")
    with raises(CheckpointError, "checkpoint_mismatch", "reference_sync_steps=1"):
        train_run(run, *DAPO, "grpo.reference_sync_steps=0", "training.resume=true")


# Terms.


def test_an_entropy_bonus_raises_the_entropy(make_bench: BenchMaker) -> None:
    """Without advantages nothing else moves the policy."""
    bench = bench_of(make_bench, "default", beta=0.0, entropy_coefficient=1.0)
    completions = bench.sample()
    before, _, _ = bench.update(completions, np.zeros(16))
    after, _, _ = bench.update(completions, np.zeros(16))
    assert before["entropy"] is not None
    assert after["entropy"] is not None
    assert after["entropy"] > before["entropy"]
    assert before["entropy_coefficient"] == 1.0


# An algorithm of one's own.


def test_the_documented_example_of_an_own_algorithm_trains(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    (tmp_path / "my_algorithm.py").write_text(page.split('title="my_algorithm.py"\n')[1].split("```")[0])
    rows = train_run(
        tmp_path / "run",
        "grpo.loss=my_algorithm.py:bounded_reinforce",
        "grpo.advantage_scaling=my_algorithm.py:above_median",
        "training.num_batches=2",
        "training.eval_every_n_steps=0",
    )
    assert all(row["policy/grad_norm"] > 0 for row in rows[1:])
