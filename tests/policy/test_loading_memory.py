"""The memory that loading a model takes, measured in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensors import list_tensors

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
