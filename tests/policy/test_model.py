"""Policies loaded from a directory: logits against NumPy, types, copies, refusals and memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tests.policy.reference_decoder import reference_logits
from tests.policy.support import logits_of, make_directory
from tests.raising import raises

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy import model as policy_model
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODELS, find_model_directory
from agent_tunix.policy.files.tensors import list_tensors
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import compute_dtype, copy_reference, count_parameters, load_policy

TOKENS = jnp.array([[3, 17, 5, 0, 29, 31, 8], [1, 1, 2, 30, 4, 9, 11]])


def load(directory: Path, **settings: Any) -> Any:
    config = ModelConfig(**{"path": str(directory), "dtype": "float32", **settings})
    return load_policy(find_model_directory(config), config, make_mesh([1, 1]))


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_logits_of_an_embedded_model_are_those_of_its_files(name: str) -> None:
    directory = EMBEDDED_MODELS[name]
    expected = [reference_logits(directory, row) for row in np.asarray(TOKENS)]
    np.testing.assert_allclose(logits_of(load(directory), TOKENS), expected, atol=1e-3)


# Refused.


def test_another_family_than_configured_is_refused(tmp_path: Path) -> None:
    with raises(ModelError, "invalid_model") as caught:
        load(make_directory(tmp_path / "model"), model_family="llama")
    assert "model.model_family=qwen3" in str(caught.value)


def test_a_mesh_larger_than_the_machine_is_refused() -> None:
    with raises(ConfigError, "invalid_devices") as caught:
        make_mesh([1024, 2])
    assert "distributed.num_cpu_devices=2048" in str(caught.value)


# Types and copies.


def test_weights_that_train_are_float32_whatever_computes(tmp_path: Path) -> None:
    """An update of 1e-5 is lost on a bfloat16 weight of 0.05."""
    model = load(make_directory(tmp_path / "model"), dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))} == {jnp.dtype("float32")}
    assert model.dtype == jnp.bfloat16


def test_a_gpu_without_bfloat16_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_model, "gpu_capability", lambda: 7.5)  # a T4's
    assert compute_dtype("auto") == jnp.float32
    with raises(ConfigError, "invalid_devices", "model.dtype"):
        compute_dtype("bfloat16")


def test_parameters_are_counted_as_a_whole_and_as_far_as_they_train(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "model")
    whole = sum(tensor.size for tensor in load_file(directory / "model.safetensors").values())
    assert count_parameters(load(directory)) == (whole, whole)
    total, trained = count_parameters(load(directory, lora_rank=2))
    assert total == whole + trained
    assert 0 < trained < whole


@pytest.mark.slow
def test_the_reference_of_a_model_without_adapter_is_a_copy(tmp_path: Path) -> None:
    model = load(make_directory(tmp_path / "model"))
    reference = copy_reference(model)
    before = logits_of(reference, TOKENS)
    nnx.update(model, jax.tree.map(lambda x: x + 1, nnx.state(model, nnx.Param)))
    np.testing.assert_array_equal(logits_of(reference, TOKENS), before)


# Matrices of at most 16 MB in float32, and 0.4 GB of them.
CONFIG = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "rms_norm_eps": 1e-5,
}
PROGRAM = """
import sys
from pathlib import Path
import jax, jax.numpy as jnp
from flax import nnx
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder

def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name))
    return int(line.split()[1]) * 1024

directory, dtype = Path(sys.argv[1]), jnp.dtype("float32")
mesh = make_mesh([1, 1])
jnp.zeros(1).block_until_ready()
before = status("VmRSS")
model = load_decoder(directory, read_architecture(directory), mesh, dtype, dtype)
kept = sum(leaf.nbytes for leaf in jax.tree.leaves(nnx.state(model)))
print((status("VmHWM") - before) / kept)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_loading_takes_little_more_than_the_model_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    tensors = list_tensors(read_architecture(tmp_path))
    weights = {f"model.{tensor.name}": np.ones(tensor.shape, ml_dtypes.bfloat16) for tensor in tensors}
    weights["lm_head.weight"] = weights.pop("model.lm_head.weight")
    save_file(weights, tmp_path / "model.safetensors")
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.5
