"""Log-probabilities by the kernel on a mesh; `test_head_kernel.py` runs this program on 8 virtual devices.

    python -m tests.training.head_kernel_mesh DIRECTORY

Prints one JSON object: `differences` of the kernel's results from the plain form's, and `kernels` in the gradient of a
policy's log-probabilities, for a mesh of TPUs and for one of CPUs.
"""

import json
import sys
from pathlib import Path
from unittest import mock

import jax
import jax.export
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.grpo import logps
from agent_tunix.policy.adapter import add_adapter
from agent_tunix.policy.mesh import make_mesh, place_rows
from agent_tunix.policy.model import load_policy
from tests.policy.support import make_larger
from tests.training.test_head_kernel import differences, make_inputs

# Rows over both axes, words over both or one; rows that nothing divides.
CASES = [((2, 2, 2), 4, 40), ((1, 2, 4), 2, 1100), ((2, 2, 2), 3, 40)]
B, G, P, T = 4, 2, 8, 17


def count_kernels(directory: Path, platform: str) -> int:
    """Return the number of kernels for the output matrix in the gradient of a policy with an adapter."""
    mesh, config = make_mesh([2, 2, 2]), ModelConfig(dtype="bfloat16", lora_rank=2)
    model = load_policy(directory, config, mesh)
    add_adapter(model, config, mesh, 0)
    graphdef, trained, frozen = nnx.split(model, nnx.LoRAParam, ...)

    def loss(trained: object, frozen: object, prompts: jax.Array, tokens: jax.Array) -> jax.Array:
        policy = nnx.merge(graphdef, trained, frozen)
        return logps.completion_statistics(policy, prompts, np.full(B, P - 1), tokens, temperature=1.0).logps.sum()

    arrays = place_rows(mesh, (np.ones((B, P), np.int32), np.ones((B * G, T), np.int32)))
    with mock.patch.object(logps, "is_on_tpu", return_value=platform == "tpu"):
        exported = jax.export.export(jax.jit(jax.grad(loss)), platforms=[platform])
        return exported(trained, frozen, *arrays).mlir_module().count("@tpu_custom_call")


def main() -> None:
    """Compare, and lower."""
    found = [max(differences(make_inputs(n, T, 1024, 16), 5.0, make_mesh(shape))) for shape, n, T in CASES]
    directory = make_larger(Path(sys.argv[1]), "gemma3_text", vocab_size=1024)
    kernels = {platform: count_kernels(directory, platform) for platform in ("tpu", "cpu")}
    print(json.dumps({"differences": found, "kernels": kernels}))


if __name__ == "__main__":
    main()
