"""The algorithms of `conf/grpo/` on the tiny model: micro-batches, truncation, dynamic sampling, a moving reference."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

from agent_tunix.errors import CheckpointError
from agent_tunix.rewards import Outcome, Score
from agent_tunix.training import run
from agent_tunix.training.building import training_sampling
from agent_tunix.training.keys import Use, derive_key
from agent_tunix.training.learner import PromptBatch, StepSettings
from agent_tunix.training.preflight import preflight
from agent_tunix.training.rollout import Completions
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.training.support import Bench, BenchMaker, assert_same, changed, small_run

# What Tunix 0.1.7 and Flax 0.12 use of each other and of JAX 0.10 has newer names there.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ALGORITHMS = ("default", "dr_grpo", "dapo", "gspo", "gspo_token", "rloo")
ADVANTAGES = np.tile([1.0, -0.5, 0.25, -0.75], 4)


def bench_of(make_bench: BenchMaker, algorithm: str, micro_batch_size: int | None = None, **grpo: Any) -> Bench:
    def adjust(config: Any) -> None:
        config.grpo = dataclasses.replace(small_run(f"grpo={algorithm}").grpo, num_generations=4, **grpo)
        config.training.micro_batch_size = micro_batch_size

    return make_bench(adjust, optimizer=optax.sgd(0.05, momentum=0.9))


def ragged(bench: Bench) -> Completions:
    """Completions of 1 to 8 tokens, unevenly spread over the micro-batches; some of the longest were cut."""
    sampled = bench.sample()
    lengths = np.minimum(np.array([1, 2, 1, 3, 8, 8, 7, 8, 2, 8, 4, 1, 6, 5, 8, 3]), sampled.tokens.shape[1])
    tokens = np.where(np.arange(sampled.tokens.shape[1]) < lengths[:, None], sampled.tokens, 0)
    ended = np.arange(16) % 3 != 0
    return dataclasses.replace(sampled, tokens=tokens.astype(np.int32), lengths=lengths.astype(np.int32), ended=ended)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_micro_batches_change_nothing_but_rounding(make_bench: BenchMaker, algorithm: str) -> None:
    """Of ragged lengths, with completions masked in some of them: neither the update nor what is logged of it."""
    whole, quarters = bench_of(make_bench, algorithm), bench_of(make_bench, algorithm, 1)
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


# Truncated completions.


@pytest.fixture(scope="module")
def masking(make_bench: BenchMaker) -> Bench:
    return bench_of(make_bench, "default", mask_truncated=True)


def test_a_truncated_completion_takes_no_part_in_the_loss(masking: Bench) -> None:
    completions = ragged(masking)
    masking.update(completions, ADVANTAGES)
    expected = masking.state()
    masking.reset()
    other = np.where(completions.ended, ADVANTAGES, 7.0 * ADVANTAGES)
    masking.update(completions, other)
    assert_same(masking.state(), expected)
    masking.reset()
    masking.update(dataclasses.replace(completions, ended=np.ones(16, bool)), ADVANTAGES)
    assert changed(masking.state(), expected)
    masking.reset()


def test_where_all_are_truncated_nothing_is_learned_and_nothing_is_claimed(masking: Bench) -> None:
    policy, finite, _ = masking.update(dataclasses.replace(ragged(masking), ended=np.zeros(16, bool)), ADVANTAGES)
    assert finite
    assert_same({"weights": masking.state()["weights"]}, {"weights": masking.initial["weights"]})
    assert policy["loss"] == 0.0
    assert policy["kl"] is policy["entropy"] is policy["ratio_mean"] is policy["clip_share"] is None
    masking.reset()


def test_a_truncated_completion_is_in_the_baseline_of_its_group(
    masking: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_by(masking, monkeypatch, lambda sample: float(sample.index % 4 == 0))
    result = masking.run_step(1)
    np.testing.assert_allclose(result.advantages, np.tile([1.5, -0.5, -0.5, -0.5], 4), rtol=1e-4)
    masking.reset()


# Dynamic sampling.


def score_by(bench: Bench, monkeypatch: pytest.MonkeyPatch, value: Callable[[Any], float]) -> None:
    """Make the bench's only reward this one."""
    reward = bench.mixture.components[0].reward
    monkeypatch.setattr(reward, "score", lambda samples: [Score(value(sample)) for sample in samples])


@pytest.fixture(scope="module")
def dynamic(make_bench: BenchMaker) -> Bench:
    return bench_of(make_bench, "default", dynamic_sampling_rounds=2)


def run_rounds(bench: Bench, step: int = 1) -> tuple[Any, list[int]]:
    """A step, and which further rounds it asked for."""
    asked: list[int] = []

    def more_prompts(number: int) -> PromptBatch:
        asked.append(number)
        return bench.batch

    settings = StepSettings(bench.config, training_sampling(bench.config), 10)
    result = bench.learner.run_step(step, bench.batch, settings, more_prompts)
    bench.reset()
    return result, asked


def test_groups_without_a_difference_are_replaced(dynamic: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # Groups 0 to 3 are the first round: of these 1 and 2 live, and of the others every third.
    score_by(dynamic, monkeypatch, lambda s: float(s.index % 4) if s.group_id in (1, 2) or s.group_id > 4 else 1.0)
    result, asked = run_rounds(dynamic)
    assert asked == [1]
    assert [sample.group_id for sample in result.samples[::4]] == [5, 1, 2, 6]
    assert [sample.rollout_id for sample in result.samples[:2]] == ["1_5_0", "1_5_1"]
    assert (np.abs(result.advantages.reshape(4, 4)).max(axis=1) > 0).all()
    assert result.completions.texts == [sample.response for sample in result.samples]
    tally = result.sampled
    assert (tally.rounds, tally.groups, tally.dead_groups, tally.surplus_groups) == (2, 8, 3, 1)
    assert tally.outcomes[Outcome.SCORED] == 32


def test_a_full_batch_asks_for_no_further_round(dynamic: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    score_by(dynamic, monkeypatch, lambda sample: float(sample.index % 4))
    result, asked = run_rounds(dynamic)
    assert asked == []
    assert result.sampled.rounds == 1


def test_rounds_are_limited_and_dead_groups_keep_their_places(dynamic: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    score_by(dynamic, monkeypatch, lambda sample: 1.0)
    result, asked = run_rounds(dynamic)
    assert asked == [1, 2]
    assert [sample.group_id for sample in result.samples[::4]] == [0, 1, 2, 3]
    assert not result.advantages.any()
    assert result.sampled.dead_groups == 12


def test_each_round_samples_with_noise_of_its_own_and_the_first_as_ever(
    dynamic: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: dict[int, list[str]] = {}

    def value(sample: Any) -> float:
        texts.setdefault(sample.group_id // 4, []).append(sample.response)
        return 1.0

    score_by(dynamic, monkeypatch, value)
    run_rounds(dynamic)
    assert texts.keys() == {0, 1, 2}
    assert texts[0] != texts[1] != texts[2] != texts[0]
    key = derive_key(dynamic.config.seed, Use.TRAINING, 1, 0)
    sampling = training_sampling(dynamic.config)
    plain = dynamic.learner.rl_cluster.rollout.sample(
        dynamic.batch.token_ids, key, sampling, num_generations=4, max_prompt_length=64
    )
    assert texts[0] == plain.texts


# A moving reference.


def weights_of(bench: Bench) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    state = bench.state()
    return state["weights"], state["reference"]


@pytest.fixture(scope="module")
def following(make_bench: BenchMaker) -> Bench:
    return bench_of(make_bench, "default", reference_sync_steps=2, reference_sync_mix=0.25, num_iterations=2)


def test_the_reference_moves_a_part_of_the_way_when_it_is_due(following: Bench) -> None:
    before = following.initial["weights"]
    following.run_step(1)
    _, reference = weights_of(following)
    assert_same({"weights": reference}, {"weights": before})
    following.run_step(2)
    weights, reference = weights_of(following)
    for name, array in weights.items():
        np.testing.assert_allclose(reference[name], 0.25 * array + 0.75 * before[name], rtol=1e-6, atol=1e-7)
    assert changed({"weights": reference}, {"weights": before})
    following.reset()


def test_the_penalty_is_against_the_reference_as_it_is_now(following: Bench) -> None:
    for step in (1, 2):
        following.run_step(step)
    completions = following.sample()
    rows = following.example(completions, ADVANTAGES)
    initial = following.initial["weights"]
    now = np.asarray(rows.ref_per_token_logps)
    following.reset()
    then = np.asarray(following.example(completions, ADVANTAGES).ref_per_token_logps)
    assert_same({"weights": weights_of(following)[1]}, {"weights": initial})
    assert np.abs(now - then)[completions.mask].max() > 1e-6


def test_what_the_policy_learns_next_does_not_reach_a_copied_reference(make_bench: BenchMaker) -> None:
    """With an adapter, whose base the two share."""

    def adjust(config: Any) -> None:
        config.model.lora_rank = 4
        config.grpo.reference_sync_steps = 1
        config.grpo.reference_sync_mix = 1.0

    bench = make_bench(adjust)
    bench.run_step(1)
    weights, reference = weights_of(bench)
    assert_same({"weights": reference}, {"weights": weights})
    bench.update(bench.sample(), ADVANTAGES)
    later, same = weights_of(bench)
    assert changed({"weights": later}, {"weights": weights})
    assert_same({"weights": same}, {"weights": reference})


def test_a_reference_that_stays_is_in_no_checkpoint(masking: Bench) -> None:
    assert masking.initial.keys() == {"weights", "optimizer"}


# Whole runs.

DAPO = ("grpo=dapo", "grpo.beta=0.1", "grpo.reference_sync_steps=1", "training.save_interval_steps=2")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which the reference moves and groups are replaced."""
    return train_here(tmp_path_factory.mktemp("dapo") / "run", *DAPO)


def train_here(root: Path, *overrides: str) -> Path:
    run.train(preflight(small_run(*overrides), root.parent), root)
    return root


def test_a_run_with_further_rounds_and_a_moving_reference_resumes_exactly(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step_000004")
    resumed = train_here(tmp_path / "run", *DAPO, "training.resume=true")
    expected, found = read_rows(finished), read_rows(resumed)
    assert first_difference(expected, found) is None
    assert first_rollout_difference(finished, resumed) is None
    assert max(row["sampling/rounds"] for row in expected[3:]) > 1  # so that what was resumed had some


def test_what_was_sampled_and_what_trained_are_both_logged(finished: Path) -> None:
    for row in [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()][1:]:
        assert row["sampling/groups"] == 4 * row["sampling/rounds"]
        assert sum(row[f"sampling/outcomes/{outcome}"] for outcome in Outcome) == 4 * row["sampling/groups"]
        assert sum(row[f"rewards/outcomes/{outcome}"] for outcome in Outcome) == 16
        if row["sampling/rounds"] == 1:
            assert row["sampling/reward_mean"] == pytest.approx(row["rewards/total/mean"])


def test_a_run_whose_reference_moved_cannot_go_on_as_if_it_had_not(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(
        CheckpointError, match=r"reference policy is not what training began with.*reference_sync_steps=1"
    ):
        train_here(tmp_path / "run", *DAPO, "grpo.reference_sync_steps=0", "training.resume=true")


def test_a_run_whose_reference_stayed_cannot_go_on_as_if_it_had_moved(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    for step in (tmp_path / "run" / "checkpoints").glob("step_*"):
        shutil.rmtree(step / "reference")
        manifest = json.loads((step / "manifest.json").read_text())
        kept = {name: digest for name, digest in manifest.items() if not name.startswith("reference/")}
        (step / "manifest.json").write_text(json.dumps(kept))
    with pytest.raises(CheckpointError, match=r"grpo.reference_sync_steps settings it was written with"):
        train_here(tmp_path / "run", *DAPO, "training.resume=true")
