"""The repairs of Tunix 0.1.7. A defect that no longer shows makes its repair superfluous."""

import gc
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tests.policy.support import make_directory
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.sft import utils

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy import compat
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy

TOKENS = jnp.array([[3, 17, 5, 9, 29, 31, 8, 2]])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_directory(tmp_path_factory.mktemp("compat") / "model", num_hidden_layers=1)


def load(directory: Path, **settings: Any) -> Any:
    return load_policy(directory, ModelConfig(**{"dtype": "float32", **settings}), make_mesh([1, 1]))


def logits_of(model: Any) -> jax.Array:
    T = TOKENS.shape[1]
    mask = jnp.tril(jnp.ones((1, T, T), jnp.bool_))
    with compat.entered(make_mesh([1, 1])):
        return jnp.asarray(nnx.jit(lambda model: model(TOKENS, jnp.arange(T)[None], None, mask)[0])(model))


def gradients_of(model: Any, kind: Any) -> Any:
    def loss(model: Any) -> jax.Array:
        return jnp.square(logits_of(model)).mean()

    return nnx.jit(nnx.grad(loss, argnums=nnx.DiffState(0, kind)))(model)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_rematerialisation_leaves_logits_and_gradients_as_they_are(directory: Path, rank: int) -> None:
    plain, remat = load(directory, lora_rank=rank), load(directory, lora_rank=rank, remat=True)
    np.testing.assert_array_equal(logits_of(plain), logits_of(remat))
    kind = nnx.LoRAParam if rank else nnx.Param
    expected, found = gradients_of(plain, kind), gradients_of(remat, kind)
    assert any(array.any() for array in jax.tree.leaves(expected))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6), found, expected)


def test_rematerialisation_recomputes_in_the_backward_pass(directory: Path) -> None:
    def program(model: Any) -> str:
        graphdef, state = nnx.split(model)
        return str(jax.make_jaxpr(jax.grad(lambda s: jnp.square(logits_of(nnx.merge(graphdef, s))).mean()))(state))

    plain, remat = program(load(directory)), program(load(directory, remat=True))
    assert "checkpoint" not in plain
    assert "remat" in remat or "checkpoint" in remat


def test_tunix_still_sums_up_the_gradients_of_a_single_micro_batch() -> None:
    config = rl_cluster_lib.RLTrainingConfig(
        actor_optimizer=optax.sgd(0.1), eval_every_n_steps=1, mini_batch_size=4, train_micro_batch_size=4
    )
    assert config.gradient_accumulation_steps == 1  # with which its trainer takes `optax.MultiSteps`
    compat.accumulate_only_where_needed(config)
    assert config.gradient_accumulation_steps is None


def test_nothing_is_told_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(1))
    monkeypatch.setattr(utils, "show_hbm_usage", inspect.unwrap(utils.show_hbm_usage))
    compat.report_no_memory()
    utils.show_hbm_usage("a title")
    assert not collected


IMPORTED_NARROWLY = """
import sys
from agent_tunix.policy import compat
compat.import_narrowly()
from tunix.rl import rl_cluster
hidden = {"pandas", "google.cloud.storage", "tunix.distillation", "tunix.rl.agentic"}
assert not hidden & sys.modules.keys(), hidden & sys.modules.keys()
import google.cloud.storage
import tunix
from tunix.rl.grpo import grpo_learner
assert tunix.GRPOLearner is grpo_learner.GRPOLearner
assert tunix.__version__ == compat.TUNIX_VERSION
assert {"google.cloud.storage", "tunix.distillation"} <= sys.modules.keys()
"""
IMPORTED_ALREADY = """
import sys
import tunix.rl.rl_cluster
assert {"pandas", "tunix.distillation", "tunix.rl.agentic"} <= sys.modules.keys()
before = tunix
from agent_tunix.policy import compat
compat.import_narrowly()
import tunix
assert tunix is before
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [IMPORTED_NARROWLY, IMPORTED_ALREADY], ids=["narrowly", "already"])
def test_a_submodule_of_tunix_loads_what_it_needs_and_hides_nothing_for_good(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
