"""The kernel of long rows on a mesh; `test_row_kernel.py` runs this program on 8 virtual devices.

    python -m tests.policy.row_kernel_mesh DIRECTORY

Prints one JSON object: `difference` of the kernel's results on the mesh from the plain form's, relative to the largest
of each array, with one key-value head, with heads that `tp` divides and with a head that it does not, and `kernels` of
families' gradients, lowered for TPUs, with and without recomputed activations.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.policy.support import make_larger
from tests.policy.test_row_kernel import differentiate, make_inputs

from agent_tunix.config.schema import ModelConfig
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.mesh import make_mesh, place_rows
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network import row_kernel
from agent_tunix.policy.network.attention import attend_after
from agent_tunix.policy.network.row_kernel import RowKernel

SHAPE = [2, 2, 2]
# Windows and bounded logits; keys that layers share; layers with linear attention.
FAMILIES = ("gemma2", "gemma4_text", "qwen3_5_text")
HEADS = [(4, 1), (4, 2), (1, 1)]
B, G, P, T = 4, 2, 8, 17


def compare(num_heads: int, num_kv_heads: int) -> float:
    """Return the largest difference of values and gradients on the mesh from those of the plain form on one device."""
    mesh = make_mesh(SHAPE)
    inputs = make_inputs(R=4, P=20, T=130, Q=num_heads, K=num_kv_heads, window=50)
    expected = differentiate(lambda q, k, v, mask, prefix: attend_after(q, k, v, mask, prefix, 5.0), inputs)
    found = differentiate(RowKernel(5.0, 50, mesh, interpret=True), place_rows(mesh, jax.device_get(inputs)))
    return max(
        float(np.abs(np.asarray(one) - np.asarray(other)).max() / np.abs(np.asarray(other)).max())
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    )


def count_kernels(directory: Path, *, remat: bool) -> int:
    """Return the number of kernels in the gradient of a policy on the mesh, lowered for TPUs."""
    mesh = make_mesh(SHAPE)
    model = load_policy(directory, ModelConfig(dtype="bfloat16", remat=remat), mesh)
    graphdef, state = nnx.split(model)

    def loss(state: Any, prompts: jax.Array, tokens: jax.Array) -> jax.Array:
        policy = nnx.merge(graphdef, state)
        lengths = jnp.full(B, P - 1)
        return completion_statistics(policy, prompts, lengths, tokens, temperature=1.0).logps.sum()

    arrays = place_rows(mesh, (np.ones((B, P), np.int32), np.ones((B * G, T), np.int32)))
    text = jax.export.export(jax.jit(jax.grad(loss)), platforms=["tpu"])(state, *arrays).mlir_module()
    return str(text).count("@tpu_custom_call")


def main() -> None:
    """Compare, and lower."""
    row_kernel.FEWEST_TOKENS = T - 1
    kernels = {}
    for family in FAMILIES:
        directory = make_larger(Path(sys.argv[1]) / family, family)
        choices = (False, True) if family == "gemma2" else (True,)
        kernels[family] = [count_kernels(directory, remat=remat) for remat in choices]
    print(json.dumps({"difference": max(compare(*heads) for heads in HEADS), "kernels": kernels}))


if __name__ == "__main__":
    main()
