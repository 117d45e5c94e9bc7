"""A supervised start: its loss against NumPy, a run resumed, and runs that begin with its weights."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import CheckpointError, ConfigError, DataError
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import read_request
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.training.model_card import write_card
from agent_tunix.training.sft import train_supervised
from agent_tunix.training.supervised import SupervisedTrainer, TargetObjective
from agent_tunix.training.targets import ResponseBatch, check_supervised, make_targets
from agent_tunix.training.verification import first_difference, read_rows
from tests.raising import raises
from tests.training.reference_sampler import logits_of, logps_of
from tests.training.support import Bench, BenchMaker, assert_same_weights, copy_run, small_run, train_config, train_run

pytestmark = pytest.mark.slow

SOLUTIONS = ("3+4=7", "2+2=4; 4+0=4; 0+4=4", "6*5=30; 30-2=28", "1")
LENGTH = 40


def supervised(*overrides: str) -> Config:
    return small_run("sft.max_target_length=32", "training.eval_every_n_steps=0", *overrides)


def start(config: Config, root: Path) -> list[dict[str, Any]]:
    """A supervised start in this process; its rows, without timings."""
    train_supervised(check_supervised(preflight(config, root.parent)), root)
    return read_rows(root)


# --- the step ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A trainer, and the batch that it teaches."""

    bench: Bench
    trainer: SupervisedTrainer
    batch: PromptBatch


def make_lesson(make_bench: BenchMaker, micro_batch_size: int | None) -> Lesson:
    def adjust(config: Config) -> None:
        config.training.micro_batch_size = micro_batch_size
        config.grpo.beta = 0.0
        config.sft.max_target_length = LENGTH

    bench = make_bench(adjust, optimizer=optax.sgd(0.1))
    columns = [{**row, "solution": text} for row, text in zip(bench.batch.columns, SOLUTIONS, strict=True)]
    batch = dataclasses.replace(bench.batch, columns=columns)
    sampler = bench.trainer.sampler
    objective = TargetObjective(bench.config, sampler)
    return Lesson(bench, SupervisedTrainer(bench.config, sampler, bench.updater, objective), batch)


@pytest.fixture(scope="module")
def whole(make_bench: BenchMaker) -> Lesson:
    return make_lesson(make_bench, None)


@pytest.fixture(scope="module")
def parts(make_bench: BenchMaker) -> Lesson:
    return make_lesson(make_bench, 1)


def targets_of(bench: Bench, batch: PromptBatch) -> ResponseBatch:
    sampler = bench.trainer.sampler
    return make_targets(batch, sampler.tokenizer, bench.config, pad_id=sampler.pad_id, eos_id=sampler.eos_ids[0])


def log_probabilities(bench: Bench, targets: ResponseBatch, row: int) -> tuple[np.ndarray, np.ndarray]:
    """[t] log-probability of each target token of a row, and whether it is the likeliest."""
    sampler = bench.trainer.sampler
    prompt = targets.prompt_tokens[row][targets.prompt_tokens[row] != sampler.pad_id]
    target = targets.tokens[row][targets.mask[row]]
    logits = logits_of(sampler.policy, targets.prompt_tokens.shape[1] + targets.tokens.shape[1])
    likeliest = logits([*prompt, *target])[len(prompt) - 1 : -1].argmax(axis=-1)
    return logps_of(logits, prompt, target, 1.0), likeliest == target


def test_loss_and_accuracy_are_those_of_the_target_tokens_alone(whole: Lesson) -> None:
    bench, trainer, batch = whole.bench, whole.trainer, whole.batch
    targets = targets_of(bench, batch)
    rows = [log_probabilities(bench, targets, row) for row in range(len(SOLUTIONS))]
    logps, right = (np.concatenate(values) for values in zip(*rows, strict=True))
    found = trainer.take_step(1, batch)
    assert found.num_tokens == len(logps) == targets.mask.sum()
    assert found.loss == pytest.approx(-logps.mean(), abs=1e-5)
    assert found.figures["token_accuracy"] == pytest.approx(right.mean())
    assert found.left_out == ()
    assert found.updates_applied == 1
    bench.reset()


def test_micro_batches_weigh_tokens_and_not_rows(whole: Lesson, parts: Lesson) -> None:
    lengths = targets_of(whole.bench, whole.batch).mask.sum(axis=1)
    assert lengths.max() > 1.5 * lengths.min()
    one, other = (lesson.trainer.take_step(1, lesson.batch) for lesson in (whole, parts))
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    before = whole.bench.initial["weights"]
    for name, array in whole.bench.state()["weights"].items():
        np.testing.assert_allclose(parts.bench.state()["weights"][name], array, atol=2e-6, err_msg=name)
    assert any(not np.array_equal(whole.bench.state()["weights"][name], before[name]) for name in before)
    for lesson in (whole, parts):
        lesson.bench.reset()


def test_a_row_without_a_target_changes_nothing(parts: Lesson) -> None:
    batch = parts.batch
    columns = [*batch.columns[:3], {"answer": "3"}]
    found = parts.trainer.take_step(1, dataclasses.replace(batch, columns=columns))
    assert len(found.left_out) == 1
    assert found.num_tokens == targets_of(parts.bench, batch).mask[:3].sum()
    with raises(DataError, "invalid_row"):
        parts.trainer.take_step(2, dataclasses.replace(batch, columns=[{"answer": "3"}] * 4))
    parts.bench.reset()


def test_a_loss_that_is_not_finite_updates_nothing(parts: Lesson) -> None:
    model = parts.bench.policy
    state = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda x: x * np.nan, state))
    found = parts.trainer.take_step(1, parts.batch)
    assert not found.finite
    assert found.updates_applied == 0
    parts.bench.reset()


# --- the run ----------------------------------------------------------------------------------------------------------


def randomise(directory: Path) -> Path:
    """A copy of the embedded model that knows nothing."""
    shutil.copytree(EMBEDDED_MODEL, directory)
    rng = np.random.default_rng(0)
    weights = {
        name: np.ones_like(array) if array.ndim == 1 else (0.05 * rng.normal(size=array.shape)).astype(array.dtype)
        for name, array in load_file(EMBEDDED_MODEL / "model.safetensors").items()
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


STARTED = ("optimizer.learning_rate=1e-3", "training.save_interval_steps=2")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A supervised start of four steps on the tiny model, at a rate that moves it."""
    root = tmp_path_factory.mktemp("sft") / "run"
    start(supervised(*STARTED), root)
    return root


def test_its_model_card_claims_no_reinforcement_learning(started: Path, tmp_path: Path) -> None:
    write_card(StoredRun(started), tmp_path, 4, [], adapter=False)
    card = (tmp_path / "README.md").read_text()
    assert "- sft" in card
    assert not any(word in card for word in ("GRPO", "grpo", "## The reward", "KL"))


def test_its_directory_is_that_of_a_run(started: Path) -> None:
    rows = read_rows(started)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert {"sft/loss", "sft/token_accuracy", "sft/num_tokens", "sft/left_out"} <= rows[1].keys()
    losses = [row["sft/loss"] for row in rows[1:]]
    assert np.mean(losses[2:]) < losses[0]
    assert "eval/accuracy" in rows[0]
    assert "eval/accuracy" in rows[4]
    assert json.loads((started / "environment.json").read_text())["method"] == "sft"
    assert sorted(path.name for path in (started / "checkpoints").glob("step_*")) == ["step_000002", "step_000004"]


def test_continued_in_a_new_directory_it_equals_an_unbroken_one(started: Path, tmp_path: Path) -> None:
    old, new = copy_run(started, tmp_path / "old", without=4), tmp_path / "new"
    found = start(supervised(*STARTED, f"training.continue_from={old}"), new)
    assert first_difference(read_rows(started), found) is None
    assert_same_weights(started, new)


def test_a_batch_without_any_target_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} plus 1?", "answer": str(n + 1), "solution": f"{n}+1={n + 1}"} for n in range(16)]
    for row in rows[4:8]:
        row["solution"] = "1+1=2; " * 40
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    config = supervised("data.source=jsonl", f"data.path={tmp_path}", "data.shuffle=false")
    with raises(DataError, "invalid_row", "The checkpoint of step 1 is saved"):
        start(config, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step_*")] == ["step_000001"]


def test_grpo_does_not_go_on_with_a_supervised_start(started: Path, tmp_path: Path) -> None:
    run = copy_run(started, tmp_path / "run")
    config = from_yaml(started / "config.yaml")
    config.training.resume = True
    with raises(CheckpointError, "checkpoint_mismatch", "agent-tunix sft"):
        train_config(config, run)


# --- another run begins with its weights ------------------------------------------------------------------------------


def figures(measured: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in measured.items() if name.startswith("eval/")}


def test_a_run_begins_and_resumes_with_the_weights_of_another(started: Path, tmp_path: Path) -> None:
    """Policy and reference alike; step 0 is what it began with."""
    source, root = copy_run(started, tmp_path / "source", without=4), tmp_path / "run"
    keys = (f"training.init_checkpoint={source}", "training.save_interval_steps=2")
    expected = train_run(root, *keys)
    assert expected[1]["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    recorded = json.loads((root / "environment.json").read_text())["init_checkpoint"]
    assert (recorded["run"], recorded["step"]) == (str(source), 2)
    assert len(recorded["manifest"]) == 16
    evaluate_checkpoint(read_request(EvaluateConfig(str(root), 0, output=str(tmp_path / "a.json"))))
    measured = json.loads((tmp_path / "a.json").read_text())
    assert {name: measured[name] for name in figures(expected[0])} == figures(expected[0])
    killed = copy_run(root, tmp_path / "killed", without=4)
    shutil.copytree(started / "checkpoints" / "step_000004", source / "checkpoints" / "step_000004")
    assert train_run(killed, *keys, "training.resume=true") == expected
    assert from_yaml(killed / "config.yaml").training.init_checkpoint == f"{source}:2"


LORA = ("model.lora_rank=4", "optimizer.learning_rate=1e-2")


def test_an_adapter_begins_with_an_adapter(adapted: Path, tmp_path: Path) -> None:
    init = f"training.init_checkpoint={adapted}"
    rows = train_run(tmp_path / "run", *LORA, init, f"model.path={adapted.parent / 'model'}", "training.num_batches=1")
    assert figures(rows[0]).items() <= figures(read_rows(adapted)[-1]).items()
    assert rows[1]["policy/kl"] == pytest.approx(0.0, abs=1e-6)


def test_a_judge_of_its_evaluations_shares_the_base(tmp_path: Path) -> None:
    tone = {"function": "judge", "args": {"model": "embedded:tiny_qwen3", "rubric": "Is it kind?", "max_tokens": 4}}
    config = supervised(*LORA, "training.num_batches=1", "evaluation.num_samples=2", "rewards.max_failure_rate=1")
    config.model.path, config.evaluation.with_rewards = "embedded:tiny_qwen3", True
    config.training.reward_function = {"tone": tone}
    assert start(config, tmp_path / "run")[-1]["eval/rewards/num_unscored"] == 2
    assert "shared with the policy" in (tmp_path / "run" / "train.log").read_text()


@pytest.mark.parametrize(
    ("given", "keys", "error", "code", "fact"),
    [
        ("/nowhere", (), ConfigError, "invalid_run_config", "training.init_checkpoint=/nowhere"),
        ("RUN:3", (), CheckpointError, "no_checkpoint", "[2, 4]"),
        ("RUN", LORA, ConfigError, "adapter_mismatch", "model.lora_rank=0"),
        ("ADAPTER", ("model.lora_rank=8",), CheckpointError, "checkpoint_mismatch", "float32 in the checkpoint"),
        ("ADAPTER", (*LORA, "model.path=OTHER"), ConfigError, "adapter_mismatch", "digests"),
    ],
)
def test_weights_that_cannot_be_begun_with_are_refused(
    given: str,
    keys: tuple[str, ...],
    error: type[ConfigError | CheckpointError],
    code: str,
    fact: str,
    started: Path,
    adapted: Path,
    tmp_path: Path,
) -> None:
    if "model.path=OTHER" in keys:
        keys = (*LORA, f"model.path={randomise(tmp_path / 'model')}")
    init = f"training.init_checkpoint={given.replace('RUN', str(started)).replace('ADAPTER', str(adapted))}"
    with raises(error, code, fact):
        train_run(tmp_path / "run", init, *keys)
