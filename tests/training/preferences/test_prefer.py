"""Preference tuning: its step against NumPy, a run of it, and stages that follow each other."""

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.preferences import preference_settings
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import CheckpointError
from agent_tunix.grpo.reference import ReferencePolicy
from agent_tunix.training.launch import Method, launch
from agent_tunix.training.preferences.losses import pair_losses, score_responses
from agent_tunix.training.preferences.objective import PreferenceObjective
from agent_tunix.training.supervised import SupervisedTrainer
from agent_tunix.training.verification import first_difference, read_rows
from tests.raising import raises
from tests.small_run import SMALL_RUN
from tests.training.reference_sampler import logits_of, logps_of
from tests.training.support import Bench, BenchMaker, assert_same_weights, copy_run, small_run

pytestmark = pytest.mark.slow

PAIRS = (("3+4=7", "12"), ("4", "2+2=5; 5"), ("28", "6*5=30"), ("1", "2"))


# --- the step ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench(make_bench: BenchMaker) -> Bench:
    def adjust(config: Config) -> None:
        config.training.micro_batch_size = 2
        config.prefer.max_response_length = 40

    return make_bench(adjust, optimizer=optax.sgd(0.1))


def scores_by_oracle(bench: Bench, objective: PreferenceObjective, batch: PromptBatch) -> np.ndarray:
    """[8] scores of the responses, without a reference, from plain forward passes."""
    pairs, sampler = objective.read(batch), bench.trainer.sampler
    logits = logits_of(sampler.policy, pairs.prompt_tokens.shape[1] + pairs.tokens.shape[1])
    logps = np.zeros(pairs.tokens.shape)
    for row, (tokens, mask) in enumerate(zip(pairs.tokens, pairs.mask, strict=True)):
        logps[row, mask] = logps_of(logits, batch.token_ids[row // 2], tokens[mask], 1.0)
    settings = preference_settings(bench.config.prefer)
    return np.asarray(score_responses(settings, jnp.asarray(logps), None, jnp.asarray(pairs.mask)))


@pytest.mark.parametrize("loss", ["dpo", "simpo", "ipo"])
def test_the_loss_is_that_of_the_responses_own_tokens(bench: Bench, loss: str) -> None:
    prefer = bench.config.prefer
    prefer.loss, prefer.reference = loss, False
    columns = [{"chosen": chosen, "rejected": rejected} for chosen, rejected in PAIRS]
    batch = PromptBatch(bench.batch.prompts, bench.batch.messages, bench.batch.token_ids, columns)
    objective = PreferenceObjective(bench.config, bench.trainer.sampler, None)
    trainer = SupervisedTrainer(bench.config, bench.trainer.sampler, bench.updater, objective)
    scores = scores_by_oracle(bench, objective, batch)
    difference = scores[::2] - scores[1::2]
    first = trainer.take_step(1, batch)
    assert first.loss == pytest.approx(float(pair_losses(preference_settings(prefer), difference).mean()), rel=1e-4)
    assert first.figures["accuracy"] == (difference > 0).mean()
    bench.reset()


def test_against_the_policy_itself_all_rewards_are_0(bench: Bench) -> None:
    bench.config.prefer.loss, bench.config.prefer.reference = "dpo", True
    columns = [{"chosen": "1", "rejected": "1" * 80}, *({"chosen": c, "rejected": r} for c, r in PAIRS[1:])]
    batch = PromptBatch(bench.batch.prompts, bench.batch.messages, bench.batch.token_ids, columns)
    objective = PreferenceObjective(bench.config, bench.trainer.sampler, ReferencePolicy(bench.policy, 1.0))
    trainer = SupervisedTrainer(bench.config, bench.trainer.sampler, bench.updater, objective)
    found = trainer.take_step(1, batch)
    assert len(found.left_out) == 1
    assert found.loss == pytest.approx(np.log(2.0), abs=1e-5)
    assert found.figures["margin"] == pytest.approx(0.0, abs=1e-4)
    bench.reset()


# --- runs -------------------------------------------------------------------------------------------------------------


def write_pairs(directory: Path) -> Path:
    """Pairs that prefer a sentence to a worked answer, as conversations with an implicit prompt."""
    directory.mkdir()
    rows = []
    for number in range(24):
        user = {"role": "user", "content": f"What is {number} plus 2?"}
        texts = f"It is {number + 2}.", f"<answer>{number + 2}</answer>"
        chosen, rejected = ([user, {"role": "assistant", "content": text}] for text in texts)
        rows.append({"chosen": chosen, "rejected": rejected})
    for name, part in (("train", rows[:16]), ("test", rows[16:])):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return directory


def run(method: Method, root: Path, *overrides: str) -> list[dict[str, Any]]:
    """Run a stage in this process; return the rows of its metrics, without timings."""
    config = small_run(*overrides)
    launch(config, root, [*SMALL_RUN, *overrides], method=method)
    return read_rows(root)


RUN = (
    "prefer.max_response_length=48",
    "optimizer.learning_rate=2e-3",
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=0",
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by DPO on pairs without references, four steps long."""
    place = tmp_path_factory.mktemp("prefer")
    run("prefer", place / "run", *RUN, f"data.path={write_pairs(place / 'pairs')}")
    return place / "run"


def test_held_out_pairs_are_preferred_after_it(tuned: Path) -> None:
    rows = read_rows(tuned)
    before, after = rows[0], rows[-1]
    assert before["eval/prefer/loss"] == pytest.approx(np.log(2.0), abs=1e-5)
    assert after["eval/prefer/accuracy"] == 1.0
    assert after["eval/prefer/margin"] > 0.0
    assert not any(name.startswith("eval/accuracy") for name in after)  # nothing is sampled without references
    assert {"prefer/loss", "prefer/accuracy", "prefer/chosen_logp", "prefer/left_out"} <= rows[1].keys()
    assert json.loads((tuned / "environment.json").read_text())["method"] == "prefer"


def test_continued_in_a_new_directory_it_equals_an_unbroken_one(tuned: Path, tmp_path: Path) -> None:
    old, new = copy_run(tuned, tmp_path / "old", without=4), tmp_path / "new"
    keys = f"data.path={tuned.parent / 'pairs'}", f"training.continue_from={old}"
    assert first_difference(read_rows(tuned), run("prefer", new, *RUN, *keys)) is None
    assert_same_weights(tuned, new)


def test_another_reference_policy_is_refused(tuned: Path, tmp_path: Path) -> None:
    root = copy_run(tuned, tmp_path / "run", without=4)
    changed = f"data.path={tuned.parent / 'pairs'}", f"training.init_checkpoint={tuned}", "training.resume=true"
    with raises(CheckpointError, "checkpoint_mismatch", f"null and is now {tuned}:4"):
        run("prefer", root, *RUN, *changed)


def test_stages_follow_each_other_each_better_by_its_own_measure(tmp_path: Path) -> None:
    """SFT, SimPO, and GRPO, with one key from each to the next."""
    sft, simpo, grpo = (tmp_path / name for name in ("sft", "simpo", "grpo"))
    rows = run("sft", sft, *RUN, "sft.max_target_length=32", "optimizer.learning_rate=3e-4", "prompt.system=Think.")
    assert rows[-1]["eval/sft/loss"] < rows[0]["eval/sft/loss"]
    pairs = f"data.path={write_pairs(tmp_path / 'pairs')}"
    rows = run("prefer", simpo, *RUN, pairs, "prefer.loss=simpo", f"model.from_run={sft}", "training.num_epochs=4")
    assert rows[-1]["eval/prefer/accuracy"] > rows[0]["eval/prefer/accuracy"]
    start = (f"model.from_run={simpo}", "training.reward_function=conciseness", "evaluation.num_samples=0")
    rows = run("grpo", grpo, *start, "training.num_batches=16", "optimizer.learning_rate=1e-3")
    rewards = [row["rewards/total/mean"] for row in rows]
    assert np.mean(rewards[-4:]) > np.mean(rewards[:4])
    last = from_yaml(grpo / "config.yaml")
    assert last.prompt.system == "Think."
    assert last.training.init_checkpoint == f"{simpo}:16"
    assert json.loads((grpo / "environment.json").read_text())["init_checkpoint"]["manifest"]
