"""Loss and gradients of each family on meshes, beside one device's; `test_mesh.py` runs it on 8 virtual devices.

    python -m tests.policy.mesh_program DIRECTORY

Prints one JSON object: `wrong` has the faults by family and mesh, `seen` lists all that were compared.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tests.policy.support import FAMILIES, make_larger

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.mesh import make_mesh, place_rows, shape_of
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network import experts

MESHES = {"qwen3": [[1, 8], [8, 1, 1], [2, 2, 2]], "qwen3_moe": [[1, 8], [2, 2, 2]]}
# Experts train only with all weights.
SETTINGS = {"qwen3_moe": {"lora_rank": 0}}
ROWS, LENGTH, WORDS = 8, 12, 96


def measure(directory: Path, family: str, shape: list[int], **settings: Any) -> tuple[dict[str, np.ndarray], Any, str]:
    """Return loss and gradients, the policy with its optimiser, and the compiled program."""
    mesh = make_mesh(shape)
    config = ModelConfig(**{"model_family": family, "dtype": "float32", "lora_rank": 4, **settings})
    model = load_policy(directory, config, mesh)
    wrt = nnx.LoRAParam if config.lora_rank else nnx.Param
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=wrt)
    tokens = place_rows(mesh, np.arange(ROWS * LENGTH, dtype=np.int32).reshape(ROWS, LENGTH) * 7 % 64)
    graphdef, state = nnx.split(model)
    trained, frozen = nnx.split_state(state, wrt, ...)

    def loss(trained: Any, frozen: Any, tokens: jax.Array) -> jax.Array:
        mask = jnp.tril(jnp.ones((ROWS, LENGTH, LENGTH), jnp.bool_))
        positions = jnp.broadcast_to(jnp.arange(LENGTH), tokens.shape)
        logits = nnx.merge(graphdef, trained, frozen)(tokens, positions, None, mask)[0]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()

    compiled = jax.jit(jax.value_and_grad(loss)).lower(trained, frozen, tokens).compile()
    value, gradients = compiled(trained, frozen, tokens)
    found = {"loss": np.asarray(value)}
    found |= {".".join(map(str, path)): np.asarray(leaf.get_value()) for path, leaf in nnx.to_flat_state(gradients)}
    return found, (model, optimizer), compiled.as_text() or ""


def problems(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], policy: Any, shape: list[int]) -> list[str]:
    """Return the arrays that differ from those of one device, and those that are not divided."""
    model, optimizer = policy
    wrong = [name for name, array in expected.items() if not np.allclose(found[name], array, rtol=1e-3, atol=1e-5)]
    for owner in (model, optimizer):
        for path, leaf in nnx.to_flat_state(nnx.state(owner)):
            array = leaf.get_value()
            if not isinstance(array, jax.Array) or array.ndim < 2:
                continue
            axes = leaf.get_metadata().get("out_sharding") or ()
            sizes = [1 if axis is None else model.mesh.shape[axis] for axis in axes]
            part = array.sharding.shard_shape(array.shape)
            if part != tuple(size // by for size, by in zip(array.shape, sizes, strict=True)):
                wrong.append(f"{'.'.join(map(str, path))} lies as {part} of {array.shape}")
    return wrong


def main() -> None:
    """Compare all families."""
    directory, wrong, seen = Path(sys.argv[1]), {}, []
    for family, few_tokens in [*((family, experts.FEW_TOKENS) for family in FAMILIES), ("qwen3_moe", 0)]:
        experts.FEW_TOKENS = few_tokens
        model = make_larger(directory / family, family, vocab_size=WORDS)
        settings = SETTINGS.get(family, {})
        expected, _, _ = measure(model, family, [1, 1], **settings)
        for shape in MESHES.get(family, [[4, 2]]):
            found, policy, program = measure(model, family, shape, **settings)
            seen.append(f"{family} {shape}, few tokens: {few_tokens}")
            faults = problems(found, expected, policy, shape)
            # Logits of all rows, or of all words where tp divides them, on one device.
            rows, tp = shape_of(policy[0].mesh).row_shards, shape_of(policy[0].mesh).tp
            whole = {f"f32[{ROWS},{LENGTH},{WORDS // tp}]": rows, f"f32[{ROWS // rows},{LENGTH},{WORDS}]": tp}
            faults += [f"{array} in the program" for array, by in whole.items() if by > 1 and array in program]
            if faults:
                wrong[seen[-1]] = faults
    print(json.dumps({"wrong": wrong, "seen": seen}))


if __name__ == "__main__":
    main()
