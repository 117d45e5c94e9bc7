"""Log-probabilities by the kernel on a mesh; `test_head_kernel.py` runs this program on 8 virtual devices.

    python -m tests.training.head_kernel_mesh DIRECTORY

Prints one JSON object: `differences` of the kernel's results from the plain form's, `kernels` in the gradient of a
policy's log-probabilities, for a mesh of TPUs and for one of CPUs, and `copies`, the largest difference of gradients on
a mesh, where two devices have one prompt, from those of one device.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.export
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.grpo import logps
from agent_tunix.policy.mesh import make_mesh, place_rows
from agent_tunix.policy.model import load_policy
from tests.policy.support import make_larger
from tests.training.test_head_kernel import differences, make_inputs

# Rows over both axes, words over both or one; rows that nothing divides.
CASES = [([2, 2, 2], 4, 40), ([1, 2, 4], 2, 1100), ([2, 2, 2], 3, 40)]
B, G, P, T = 4, 2, 8, 17


def make_gradient(directory: Path, shape: list[int], num_prompts: int) -> tuple[Any, tuple[Any, ...]]:
    """Return the gradient of a policy with an adapter as a function, and its arguments."""
    mesh, config = make_mesh(shape), ModelConfig(dtype="bfloat16", lora_rank=2)
    if num_prompts == 1:
        config = dataclasses.replace(config, dtype="float32")
    graphdef, state = nnx.split(load_policy(directory, config, mesh))
    trained, frozen = nnx.split_state(state, nnx.LoRAParam, ...)
    tokens = np.arange(num_prompts * G * T).reshape(-1, T) * 7 % 1024
    arrays = place_rows(mesh, (np.ones((num_prompts, P), np.int32), np.full(num_prompts, P - 1), tokens))

    def loss(trained: Any, frozen: Any, prompts: jax.Array, lengths: jax.Array, tokens: jax.Array) -> jax.Array:
        policy = nnx.merge(graphdef, trained, frozen)
        return logps.completion_statistics(policy, prompts, lengths, tokens, temperature=1.0).logps.sum()

    return jax.jit(jax.grad(loss)), (trained, frozen, *arrays)


def count_kernels(directory: Path, platform: str) -> int:
    """Return the number of kernels for the output matrix in the gradient of a policy with an adapter."""
    gradient, arguments = make_gradient(directory, [2, 2, 2], B)
    with mock.patch.object(logps, "is_on_tpu", return_value=platform == "tpu"):
        text = str(jax.export.export(gradient, platforms=[platform])(*arguments).mlir_module())
    return text.count("@tpu_custom_call")


def compare_copies(directory: Path) -> float:
    """Return the largest difference of gradients, relative to the largest of each array."""
    shapes = [1, 2, 4], [1, 1, 1]
    found, expected = (
        [np.asarray(x) for x in jax.tree.leaves(gradient(*arguments))]
        for gradient, arguments in (make_gradient(directory, shape, 1) for shape in shapes)
    )
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-9)) for a, b in zip(found, expected, strict=True))


def main() -> None:
    """Compare, and lower."""
    found = [max(differences(make_inputs(n, T, 1024, 16), 5.0, make_mesh(shape))) for shape, n, T in CASES]
    directory = make_larger(Path(sys.argv[1]), "gemma3_text", vocab_size=1024)
    kernels = {platform: count_kernels(directory, platform) for platform in ("tpu", "cpu")}
    print(json.dumps({"differences": found, "kernels": kernels, "copies": compare_copies(directory)}))


if __name__ == "__main__":
    main()
