"""A supervised start: its loss against NumPy, that it learns, resumes, and that another run begins with its weights."""

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
from agent_tunix.errors import CheckpointError, ConfigError, DataError
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.training.checkpoint_evaluation import evaluate_checkpoint
from agent_tunix.training.evaluation_request import read_request
from agent_tunix.training.learner import PromptBatch
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from agent_tunix.training.sft import train_supervised
from agent_tunix.training.supervised import SupervisedTeacher
from agent_tunix.training.targets import TargetBatch, check_supervised, make_targets
from agent_tunix.training.verification import read_rows, verify
from tests.small_run import SMALL_RUN
from tests.training.support import Bench, BenchMaker, small_run

SOLUTIONS = ("3+4=7", "2+2=4; 4+0=4; 0+4=4", "6*5=30; 30-2=28", "1")
LENGTH = 40


def supervised(*overrides: str) -> Config:
    return small_run("sft.max_target_length=32", "training.eval_every_n_steps=0", *overrides)


def start(config: Config, root: Path) -> list[dict[str, Any]]:
    """A supervised start in this process; its rows, without timings."""
    train_supervised(check_supervised(preflight(config, root.parent)), root)
    return read_rows(root)


def train_here(config: Config, root: Path) -> list[dict[str, Any]]:
    train(preflight(config, root.parent), root)
    return read_rows(root)


# --- the step ---------------------------------------------------------------------------------------------------------


def make_teacher(make_bench: BenchMaker, micro_batch_size: int | None) -> tuple[Bench, SupervisedTeacher, PromptBatch]:
    def adjust(config: Config) -> None:
        config.training.micro_batch_size = micro_batch_size
        config.grpo.beta = 0.0
        config.sft.max_target_length = LENGTH

    bench = make_bench(adjust, optimizer=optax.sgd(0.1))
    columns = [{**row, "solution": text} for row, text in zip(bench.batch.columns, SOLUTIONS, strict=True)]
    batch = dataclasses.replace(bench.batch, columns=columns)
    return bench, SupervisedTeacher(bench.learner, bench.config), batch


def targets_of(bench: Bench, batch: PromptBatch) -> TargetBatch:
    rollout = bench.learner.rl_cluster.rollout
    return make_targets(batch, rollout.tokenizer, bench.config, pad_id=rollout.pad_id(), eos_id=rollout.eos_id())


def log_probabilities(bench: Bench, targets: TargetBatch, row: int) -> tuple[np.ndarray, np.ndarray]:
    """[t] log-probability of each target token of a row, and whether it is the likeliest, without any padding."""
    rollout = bench.learner.rl_cluster.rollout
    prompt = targets.prompt_tokens[row][targets.prompt_tokens[row] != rollout.pad_id()]
    target = targets.tokens[row][targets.mask[row]]
    tokens = np.concatenate([prompt, target])[None]
    T = tokens.shape[1]
    logits, _ = rollout.model()(tokens, np.arange(T)[None], None, np.tril(np.ones((T, T), bool))[None])
    logits = np.asarray(logits[0, len(prompt) - 1 : -1], np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logps = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logps[np.arange(len(target)), target], logits.argmax(axis=-1) == target


def test_loss_and_accuracy_are_those_of_the_target_tokens_alone(make_bench: BenchMaker) -> None:
    bench, teacher, batch = make_teacher(make_bench, None)
    targets = targets_of(bench, batch)
    rows = [log_probabilities(bench, targets, row) for row in range(len(SOLUTIONS))]
    logps, right = (np.concatenate(values) for values in zip(*rows, strict=True))
    found = teacher.run_step(1, batch)
    assert found.num_tokens == len(logps) == targets.mask.sum()
    assert found.loss == pytest.approx(-logps.mean(), abs=1e-5)
    assert found.token_accuracy == pytest.approx(right.mean())
    assert found.left_out == ()
    assert found.updates_applied == 1


def test_micro_batches_weigh_tokens_and_not_rows(make_bench: BenchMaker) -> None:
    whole_bench, whole, batch = make_teacher(make_bench, None)
    parts_bench, parts, _ = make_teacher(make_bench, 1)
    lengths = targets_of(whole_bench, batch).mask.sum(axis=1)
    assert lengths.max() > 1.5 * lengths.min()
    one, other = whole.run_step(1, batch), parts.run_step(1, batch)
    assert other.loss == pytest.approx(one.loss, abs=1e-6)
    assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-4)
    before = whole_bench.initial["weights"]
    for name, array in whole_bench.state()["weights"].items():
        np.testing.assert_allclose(parts_bench.state()["weights"][name], array, atol=2e-6, err_msg=name)
    assert any(not np.array_equal(whole_bench.state()["weights"][name], before[name]) for name in before)


def test_a_row_without_a_target_changes_nothing(make_bench: BenchMaker) -> None:
    bench, teacher, batch = make_teacher(make_bench, 2)
    columns = [*batch.columns[:3], {"answer": "3"}]
    found = teacher.run_step(1, dataclasses.replace(batch, columns=columns))
    assert len(found.left_out) == 1
    assert found.num_tokens == targets_of(bench, batch).mask[:3].sum()
    with pytest.raises(DataError, match="step 2: no row of the batch has a target that fits"):
        teacher.run_step(2, dataclasses.replace(batch, columns=[{"answer": "3"}] * 4))


def test_a_loss_that_is_not_finite_updates_nothing(make_bench: BenchMaker) -> None:
    bench, teacher, batch = make_teacher(make_bench, 2)
    model = bench.learner.rl_cluster.rollout.model()
    state = nnx.state(model, nnx.Param)
    nnx.update(model, jax.tree.map(lambda x: x * np.nan, state))
    found = teacher.run_step(1, batch)
    assert not found.finite
    assert found.updates_applied == 0


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


def test_a_model_that_knows_nothing_learns_the_form(tmp_path: Path) -> None:
    config = small_run(
        f"model.path={randomise(tmp_path / 'model')}",
        "optimizer.learning_rate=3e-3",
        "training.batch_size=32",
        "training.num_batches=60",
        "training.eval_every_n_steps=0",
        "generation.max_generation_steps=32",
        "data.num_train=2048",
    )
    rows = start(config, tmp_path / "run")
    losses = [row["sft/loss"] for row in rows if "sft/loss" in row]
    assert len(losses) == 60
    assert losses[0] > 6
    assert np.mean(losses[-5:]) < 1.5
    assert rows[0]["eval/format_accuracy"] == 0
    assert rows[-1]["eval/format_accuracy"] > 0.5
    assert rows[-1]["sft/token_accuracy"] > 0.5


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A supervised start of four steps on the tiny model, at a rate that moves it."""
    root = tmp_path_factory.mktemp("sft") / "run"
    start(supervised("optimizer.learning_rate=1e-3", "training.save_interval_steps=2"), root)
    return root


def test_its_directory_is_that_of_a_run(started: Path) -> None:
    rows = read_rows(started)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert {"sft/loss", "sft/token_accuracy", "sft/num_tokens", "sft/left_out"} <= rows[1].keys()
    assert "eval/accuracy" in rows[0]
    assert "eval/accuracy" in rows[4]
    assert json.loads((started / "environment.json").read_text())["method"] == "sft"
    assert sorted(path.name for path in (started / "checkpoints").glob("step_*")) == ["step_000002", "step_000004"]


def test_evaluate_finds_its_accuracy(started: Path, tmp_path: Path) -> None:
    evaluate_checkpoint(read_request(EvaluateConfig(checkpoint_dir=str(started), output=str(tmp_path / "a.json"))))
    measured = json.loads((tmp_path / "a.json").read_text())
    assert measured["eval/accuracy"] == read_rows(started)[-1]["eval/accuracy"]


def test_killed_and_resumed_it_equals_an_unbroken_one(tmp_path: Path) -> None:
    overrides = [*SMALL_RUN, "sft.max_target_length=32", "training.save_interval_steps=1"]
    found = verify(overrides, kills=2, seed=1, directory=tmp_path, program="sft")
    assert found.equal, found.text
    assert found.rows == 5


def test_a_batch_without_any_target_ends_the_run_with_a_checkpoint(tmp_path: Path) -> None:
    rows = [{"question": f"What is {n} plus 1?", "answer": str(n + 1), "solution": f"{n}+1={n + 1}"} for n in range(12)]
    for row in rows[4:8]:
        row["solution"] = "1+1=2; " * 40
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "test.jsonl").write_text(json.dumps(rows[0]) + "\n")
    config = supervised("data.source=jsonl", f"data.path={tmp_path}", "data.shuffle=false", "training.num_batches=3")
    with pytest.raises(DataError, match=r"(?s)step 2: no row of the batch .*The checkpoint of step 1 is saved"):
        start(config, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("step_*")] == ["step_000001"]


def test_grpo_does_not_go_on_with_a_supervised_start(started: Path, tmp_path: Path) -> None:
    shutil.copytree(started, tmp_path / "run")
    config = from_yaml(started / "config.yaml")
    config.training.resume = True
    with pytest.raises(CheckpointError, match="is a run of `agent-tunix sft`; go on with it by that command"):
        train(preflight(config, tmp_path), tmp_path / "run")


# --- another run begins with its weights ------------------------------------------------------------------------------


def test_a_run_begins_with_the_weights_of_another_policy_and_reference_alike(started: Path, tmp_path: Path) -> None:
    rows = train_here(small_run(f"training.init_checkpoint={started}", "training.num_batches=1"), tmp_path / "run")
    last = read_rows(started)[-1]
    assert {k: v for k, v in rows[0].items() if k.startswith("eval/")} == {
        k: v for k, v in last.items() if k.startswith("eval/")
    }
    assert rows[1]["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    recorded = json.loads((tmp_path / "run" / "environment.json").read_text())["init_checkpoint"]
    assert (recorded["run"], recorded["step"]) == (str(started), 4)
    assert len(recorded["manifest"]) == 16
    assert from_yaml(tmp_path / "run" / "config.yaml").training.init_checkpoint == f"{started}:4"


def test_evaluated_at_step_0_it_is_what_it_began_with(started: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    train_here(small_run(f"training.init_checkpoint={started}:2", "training.num_batches=1"), root)
    evaluate_checkpoint(read_request(EvaluateConfig(str(root), 0, output=str(tmp_path / "a.json"))))
    measured = json.loads((tmp_path / "a.json").read_text())
    first = read_rows(root)[0]
    assert {name: measured[name] for name in first if name.startswith("eval/")} == {
        name: value for name, value in first.items() if name.startswith("eval/")
    }


def test_resumed_it_begins_with_the_same_weights_though_the_other_run_went_on(started: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(started, source)
    shutil.rmtree(source / "checkpoints" / "step_000004")
    keys = (f"training.init_checkpoint={source}", "training.save_interval_steps=2")
    expected = train_here(small_run(*keys), tmp_path / "unbroken")
    shutil.copytree(tmp_path / "unbroken", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "step_000004")
    shutil.copytree(started / "checkpoints" / "step_000004", source / "checkpoints" / "step_000004")
    found = train_here(small_run(*keys, "training.resume=true"), tmp_path / "killed")
    assert found == expected
    assert from_yaml(tmp_path / "killed" / "config.yaml").training.init_checkpoint == f"{source}:2"


def test_an_adapter_begins_with_an_adapter(tmp_path: Path) -> None:
    lora = ("model.lora_rank=4", "optimizer.learning_rate=1e-2", "training.num_batches=2")
    start(supervised(*lora), tmp_path / "sft")
    rows = train_here(small_run(*lora, f"training.init_checkpoint={tmp_path / 'sft'}"), tmp_path / "run")
    assert rows[0]["eval/format_accuracy"] == read_rows(tmp_path / "sft")[-1]["eval/format_accuracy"]
    assert rows[1]["policy/kl"] == pytest.approx(0.0, abs=1e-6)
    init = f"training.init_checkpoint={tmp_path / 'sft'}"
    with pytest.raises(ConfigError, match=r"has model\.lora_alpha=16, and here it is 8"):
        train_here(small_run(*lora, init, "model.lora_alpha=8"), tmp_path / "other_scale")
    other = randomise(tmp_path / "model")
    with pytest.raises(ConfigError, match="is an adapter of another model"):
        train_here(small_run(*lora, init, f"model.path={other}"), tmp_path / "other_model")
    with pytest.raises(CheckpointError, match=r"is \(.*4.*\) float32 there and \(.*8.*\) float32 here"):
        train_here(small_run(*lora, init, "model.lora_rank=8"), tmp_path / "other_rank")


@pytest.mark.parametrize(
    ("given", "keys", "error", "text"),
    [
        ("/nowhere", (), ConfigError, r"training\.init_checkpoint=/nowhere should be the directory of a run"),
        ("RUN:3", (), CheckpointError, r"no checkpoint of this step; there are \[2, 4\]"),
        ("RUN:best", (), CheckpointError, "has no best checkpoint"),
        ("RUN", ("model.lora_rank=4",), ConfigError, "an adapter cannot begin as a whole model"),
    ],
)
def test_what_cannot_be_begun_with_is_refused(
    given: str, keys: tuple[str, ...], error: type[Exception], text: str, started: Path, tmp_path: Path
) -> None:
    init = f"training.init_checkpoint={given.replace('RUN', str(started))}"
    with pytest.raises(error, match=text):
        train_here(small_run(init, *keys), tmp_path / "run")
