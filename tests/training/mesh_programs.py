"""Programs of sampling and of log-probabilities; `test_mesh_programs.py` compiles them for 8 virtual devices.

    python -m tests.training.mesh_programs DIRECTORY

XLA is to write the programs of sampling to the directory. Prints one JSON object: mesh → what is known of both.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from agent_tunix.config.schema import ModelConfig, PromptConfig
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import find_model_directory
from agent_tunix.policy.mesh import make_mesh, place_rows
from agent_tunix.policy.model import load_policy
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams

MESHES = ([1, 1, 1], [8, 1, 1], [2, 2, 2])
PROMPTS, LENGTH, GENERATIONS, NEW, CHUNK = 8, 32, 4, 16, 8
FEW = 2

_COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)\(")


def sent_in_loops(program: str) -> list[str]:
    """Every collective in a loop, as `kind shapes`."""
    lines = (line for line in program.splitlines() if "while/body" in line)
    return sorted(f"{m[2]} {re.sub(r'{.*?}', '', m[1])}" for line in lines if (m := _COLLECTIVE.search(line)))


def sample(model: Any, mesh: Any, prompts: np.ndarray, dumps: Path) -> dict[str, Any]:
    """The sampled tokens, and the shapes of all arrays in the program that sampled them."""
    before = set(dumps.glob("*after_optimizations.txt"))
    tokenizer = Tokenizer(find_model_directory(ModelConfig()), PromptConfig())
    sampler = Sampler(model, tokenizer, mesh, [1])
    settings: Any = {"num_generations": GENERATIONS, "max_prompt_length": LENGTH}
    completions = sampler.sample(prompts.tolist(), jax.random.key(3), SamplingParams(max_new_tokens=NEW), **settings)
    programs = [file.read_text() for file in set(dumps.glob("*after_optimizations.txt")) - before]
    shapes = sorted({shape for program in programs for shape in re.findall(r"f32\[[\d,]+\]", program)})
    sent = [line for program in programs for line in sent_in_loops(program)]
    return {"tokens": completions.tokens.tolist(), "shapes": shapes, "sent": sent}


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

        def measure(*placed: jax.Array, mean: Any = mean, state: Any = state) -> dict[str, Any]:
            compiled: Any = jax.jit(jax.value_and_grad(mean)).lower(state, *placed).compile()
            value, gradients = compiled(state, *placed)
            norms = [float(np.linalg.norm(np.asarray(leaf))) for leaf in jax.tree.leaves(gradients)]
            sent = sent_in_loops(compiled.as_text())
            return {"flops": compiled.cost_analysis()["flops"], "value": float(value), "norms": norms, "sent": sent}

        found[str(shape)] = {"logps": measure(*placed), "sample": sample(model, mesh, prompts, Path(sys.argv[1]))}
        if shape[0] != 2:
            # Of a few prompts only the completions can be divided over all devices.
            few = place_rows(mesh, (prompts[:FEW], np.full(FEW, LENGTH, np.int32), tokens[: FEW * GENERATIONS]))
            found[str(shape)]["few"] = measure(*few)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
