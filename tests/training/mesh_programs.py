"""Run by `test_mesh_programs.py` with 8 virtual devices: what is compiled for sampling and for log-probabilities.

    python -m tests.training.mesh_programs

Prints one JSON object: program and mesh → floating-point operations of one device, what its loops send, what it computed.
"""

import json
import re
from typing import Any

import jax
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.directory import find_model_directory
from agent_tunix.policy.mesh import make_mesh, place_rows
from agent_tunix.policy.model import load_policy
from agent_tunix.training.logps import completion_statistics

MESHES = ([1, 1, 1], [8, 1, 1], [1, 8, 1], [2, 2, 2])
PROMPTS, LENGTH, GENERATIONS, NEW, CHUNK = 8, 32, 4, 16, 8

_COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(")


def describe(compiled: Any) -> dict[str, Any]:
    """Operations, and every collective in a loop as `kind shapes`."""
    sent = []
    for line in compiled.as_text().splitlines():
        if (found := _COLLECTIVE.search(line)) and "while/body" in line:
            sent.append(f"{found[2]} {re.sub(r'{.*?}', '', found[1])}")
    return {"flops": compiled.cost_analysis()["flops"], "in_loops": sorted(sent)}


def main() -> None:
    """Compile and compute them all."""
    found = {}
    noise = np.random.default_rng(0)
    prompts = noise.integers(5, 1000, (PROMPTS, LENGTH)).astype(np.int32)
    tokens = noise.integers(5, 1000, (PROMPTS * GENERATIONS, NEW)).astype(np.int32)
    for shape in MESHES:
        mesh = make_mesh(shape)
        model = load_policy(find_model_directory(ModelConfig()), ModelConfig(dtype="float32"), mesh)
        graphdef, state = nnx.split(model)
        placed = place_rows(mesh, (prompts, np.full(PROMPTS, LENGTH, np.int32), tokens))

        def mean(state: Any, *arrays: Any, graphdef: Any = graphdef) -> jax.Array:
            merged = nnx.merge(graphdef, state)
            return completion_statistics(merged, *arrays, temperature=1.0, chunk=CHUNK).logps.mean()

        compiled = jax.jit(jax.value_and_grad(mean)).lower(state, *placed).compile()
        value, gradients = compiled(state, *placed)
        norms = [float(np.linalg.norm(np.asarray(leaf))) for leaf in jax.tree.leaves(gradients)]
        found[f"logps {shape}"] = describe(compiled) | {"value": float(value), "norms": norms}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
