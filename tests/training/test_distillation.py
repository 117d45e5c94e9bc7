"""On-policy distillation: the teacher's pass, its memory, its tokenizer, and runs, resumed ones too."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ModelError
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.planning.memory import MemoryPlan, plan_memory
from agent_tunix.planning.open_mesh import open_mesh
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.model_digest import digest_model
from agent_tunix.policy.model import load_policy
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.training.components import make_reference, make_teacher
from agent_tunix.training.model_card import write_card
from tests.raising import raises
from tests.training.support import copy_run, small_run, train_run

OTHER_TOKENIZER = "embedded:tiny_tools"


@pytest.mark.slow
def test_the_likeliest_words_are_found_in_chunks_as_all_at_once(policy: Any) -> None:
    rng = np.random.default_rng(0)
    arrays: Any = rng.integers(5, 1000, (2, 6)), np.array([6, 3]), rng.integers(5, 1000, (4, 5))

    def found(**settings: Any) -> Any:
        return completion_statistics(policy, *arrays, temperature=0.7, **settings)

    whole, parts = found(top=4), found(top=4, chunk=3)
    np.testing.assert_array_equal(parts.top, whole.top)
    np.testing.assert_allclose(parts.top_logps, whole.top_logps, atol=1e-5)
    np.testing.assert_allclose(found(top=whole.top, chunk=3).top_logps, whole.top_logps, atol=1e-5)
    every = found(top=1024)
    np.testing.assert_allclose(jax.nn.logsumexp(every.top_logps, axis=-1), 0.0, atol=1e-5)
    np.testing.assert_array_equal(every.top[..., :4], whole.top)


def distilled(**model: Any) -> Config:
    config = Config()
    config.grpo.teacher = "embedded:tiny_qwen3"
    for name, value in model.items():
        setattr(config.model, name, value)
    return config


def test_a_teacher_that_is_the_reference_policy_is_no_copy(mesh: jax.sharding.Mesh, policy: nnx.Module) -> None:
    config = distilled()
    reference = make_reference(config, policy)
    assert reference is not None
    assert make_teacher(config, EMBEDDED_MODEL, policy, reference, mesh).model is reference.model


def test_a_teacher_that_is_the_base_of_the_adapter_shares_its_weights(mesh: jax.sharding.Mesh) -> None:
    config = distilled(lora_rank=2)
    config.grpo.beta = 0.0
    policy = load_policy(EMBEDDED_MODEL, config.model, mesh)
    teacher = make_teacher(config, EMBEDDED_MODEL, policy, None, mesh).model
    ours, theirs = (jax.tree.leaves(nnx.state(model, nnx.Not(nnx.LoRAParam))) for model in (policy, teacher))
    assert all(one is other for one, other in zip(ours, theirs, strict=True))


def test_the_plan_counts_the_weights_of_the_teacher(tmp_path: Path) -> None:
    def plan(config: Config) -> MemoryPlan:
        return plan_memory(read_architecture(EMBEDDED_MODEL), config, 4)

    config = distilled()
    assert plan(config).teacher == 0, "it is the reference policy"
    config.grpo.beta = 0.0
    assert plan(config).teacher == plan(config).weights
    config.grpo.teacher = str(shutil.copytree(EMBEDDED_MODEL, tmp_path / "teacher"))
    assert plan(config).teacher == plan(config).weights
    assert plan(config).held - plan(Config()).held == 0  # a teacher in place of the reference policy


def test_a_policy_is_sampled_on_a_machine_without_its_teacher() -> None:
    config = distilled()
    config.grpo.teacher = "/on/another/machine"
    assert open_mesh(config, read_architecture(EMBEDDED_MODEL), num_rows=None).size == 1


def test_a_teacher_with_another_tokenizer_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        preflight(small_run(f"grpo.teacher={OTHER_TOKENIZER}"), tmp_path)
    assert caught.value.code == "teacher_mismatch"


def make_worse(directory: Path, noise: float) -> Path:
    """Copy the embedded model, and add noise to its matrices in proportion to their deviation."""
    shutil.copytree(EMBEDDED_MODEL, directory)
    weights, rng = load_file(directory / "model.safetensors"), np.random.default_rng(0)
    for name, weight in weights.items():
        if weight.ndim == 2:
            weights[name] = (weight + noise * weight.std() * rng.normal(size=weight.shape)).astype(weight.dtype)
    save_file(weights, directory / "model.safetensors")
    return directory


@pytest.mark.slow
def test_a_student_made_worse_comes_nearer_to_its_teacher(tmp_path: Path) -> None:
    rows = train_run(
        tmp_path / "run",
        f"model.path={make_worse(tmp_path / 'student', 0.5)}",
        "grpo.teacher=embedded:tiny_qwen3",
        "grpo.loss=none",
        "grpo.beta=0",
        "grpo.teacher_top_k=16",
        "training.num_batches=12",
        "training.batch_size=8",
        "training.eval_every_n_steps=0",
        "optimizer.learning_rate=1e-3",
    )
    divergences = [row["policy/teacher_kl"] for row in rows if "policy/teacher_kl" in row]
    assert np.mean(divergences[-3:]) < 0.8 * np.mean(divergences[:3])


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, and beside it its teacher."""
    root = tmp_path_factory.mktemp("taught") / "run"
    make_worse(root.parent / "teacher", 0.1)
    train_run(root, *TAUGHT, f"grpo.teacher={root.parent / 'teacher'}")
    return root


TAUGHT = ("training.num_batches=2", "training.eval_every_n_steps=0", "evaluation.num_samples=0")


@pytest.mark.slow
def test_the_teacher_is_stored_and_named_in_the_model_card(taught: Path, tmp_path: Path) -> None:
    teacher = taught.parent / "teacher"
    stored = {"path": str(teacher), "directory": str(teacher), "digest": digest_model(teacher)}
    assert json.loads((taught / "environment.json").read_text())["teacher"] == stored
    write_card(StoredRun(taught), tmp_path, 2, [], adapter=False)
    assert "| teacher | teacher |" in (tmp_path / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ("grpo.teacher=embedded:tiny_qwen3", "its digest was"),
        ("grpo.teacher_top_k=4", "its top_k was None and is now 4"),
    ],
)
def test_a_run_is_not_resumed_with_another_teacher(taught: Path, changed: str, words: str, tmp_path: Path) -> None:
    run = copy_run(taught, tmp_path / "run")
    with raises(CheckpointError, "checkpoint_mismatch", words):
        train_run(run, *TAUGHT, f"grpo.teacher={taught.parent / 'teacher'}", changed, "training.resume=true")


@pytest.mark.slow
def test_a_run_is_resumed_with_a_copy_of_its_teacher(taught: Path, tmp_path: Path) -> None:
    run = copy_run(taught, tmp_path / "run")
    shutil.copytree(taught.parent / "teacher", tmp_path / "copy")
    train_run(run, *TAUGHT, f"grpo.teacher={tmp_path / 'copy'}", "training.resume=true")
