"""Time of the phases of a tiny step, compared with the arithmetic that they need at the rates of this machine.

    python benchmarks/breakdown.py [--repeats 20] [--prompts 16] [--generations 8] [--tokens 24]

The step is that of the default run on the embedded model, with its own functions and compiled programs. For each phase
it prints the operations needed (`arithmetic.py`, for the mean sampled lengths), the milliseconds that they would take
at the rates measured on this machine for matrices of the phase's shapes, the median time of the phase, and the ratio.
The rates are the best of many runs of a single multiplication, with its operands in the cache if they fit. They are a
lower bound of the time, not a realistic goal.

Decoding is sampling without the pass over the prompts. The backward pass is the gradient without the forward pass. The
optimiser is the trainer's step without the gradient, including the checks for non-finite values and the norms for
metrics. Its lower bound is one read and write of weights, moments and gradients. The rest of a whole step, including
the rewards, runs on the host.
"""

import argparse
import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import absl.logging
import jax
import jax.numpy as jnp
from flax import nnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.arithmetic import Shapes, forward_terms
from benchmarks.phases import make_phases

from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.grpo.logps import completion_statistics
from agent_tunix.policy.architecture import Architecture
from agent_tunix.runs.preflight import preflight
from agent_tunix.startup.devices import prepare
from agent_tunix.training.components import build_components, make_trainer

# Passes over the optimiser's numbers: it reads weights, two moments and the gradient, and writes weights and moments.
_TRAFFIC = 7


def medians(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return median seconds by name. The functions take turns, so other load on the machine affects all of them."""
    return {name: statistics.median(taken) for name, taken in _times(runs, repeats).items()}


def _times(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each call, without the first one, which compiles."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        jax.block_until_ready(run())
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.perf_counter()
            jax.block_until_ready(run())
            taken[name].append(time.perf_counter() - started)
    return taken


def best(run: Callable[[], Any], repeats: int) -> float:
    """Return the least seconds of a call."""
    return min(_times({"": run}, repeats)[""])


def matmul_rate(rows: int, inner: int, columns: int, batch: int = 1, repeats: int = 50) -> float:
    """Return the best rate of `batch` products [rows, inner] × [inner, columns], in operations per second."""
    a = jnp.ones((batch, rows, inner))
    b = jnp.ones((batch, inner, columns))
    product = jax.jit((lambda a, b: a[0] @ b[0]) if batch == 1 else jnp.matmul)
    return 2.0 * batch * rows * inner * columns / best(lambda: product(a, b), repeats)


def stream_rate(count: int, repeats: int = 50) -> float:
    """Return the best rate of reading and writing arrays of `count` numbers, in bytes per second."""
    a = jnp.ones(count)
    add = jax.jit(lambda a, b: a * 0.5 + b)
    return 3.0 * 4 * count / best(lambda: add(a, a), repeats)


def rates(a: Architecture, shapes: Shapes, rows_at_once: int) -> dict[str, float]:
    """Return the rates of the terms of a forward pass in which `rows_at_once` rows of completions share a product."""
    B, N = shapes.prompts, shapes.rows
    P, T = shapes.prompt_tokens, max(1, rows_at_once // N)
    D, K, H = a.hidden_size, a.num_kv_heads, a.head_dim
    heads = a.num_heads // K
    return {
        "prompts": matmul_rate(B * P, D, a.intermediate_size),
        "completions": matmul_rate(rows_at_once, D, a.intermediate_size),
        "prompt attention": matmul_rate(P * heads, H, P, batch=B * K),
        "attention to prompts": matmul_rate(shapes.group * T * heads, H, P, batch=B * K),
        "own attention": matmul_rate(T * heads, H, shapes.tokens, batch=N * K),
        "logits": matmul_rate(rows_at_once, D, a.vocab_size),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"repeats": 20, "prompts": 16, "generations": 8, "tokens": 24}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.disable(logging.WARNING)
    repeats = arguments.repeats
    # The same setup as a run.
    prepare(DistributedConfig(compilation_cache=None))
    config = Config()
    config = replace(
        config,
        training=replace(config.training, batch_size=arguments.prompts, num_batches=repeats + 1),
        grpo=replace(config.grpo, num_generations=arguments.generations),
        generation=replace(config.generation, max_generation_steps=arguments.tokens),
    )
    components = build_components(config)
    trainer = make_trainer(components, preflight(config, Path.cwd()).mixture)
    batch, G = components.batches.batch(1), arguments.generations

    model: Any = components.updater.policy
    a: Architecture = model.config
    phases = make_phases(trainer, batch)
    completions, arrays = phases.completions, phases.arrays
    graphdef, state = nnx.split(model)
    # The trainer donates the weights that it updates.
    state = jax.tree.map(jnp.copy, state)

    @jax.jit
    def prefill(state: Any) -> Any:
        return nnx.merge(graphdef, state).read_prefix(arrays[0], arrays[1])

    def loss(state: Any) -> jax.Array:
        return completion_statistics(nnx.merge(graphdef, state), *arrays, temperature=1.0).logps.mean()

    forward, gradient = jax.jit(loss), jax.jit(jax.grad(loss))
    taken = medians(
        {
            **phases.run,
            "prefill": lambda: prefill(state),
            "forward": lambda: forward(state),
            "gradient": lambda: gradient(state),
            "step": lambda: trainer.take_step(1, batch).policy,
        },
        repeats,
    )
    step = taken["step"]
    shapes = Shapes(
        arguments.prompts, G, round(completions.prompt_lengths.mean()), max(2, round(completions.lengths.mean()))
    )
    terms = forward_terms(a, shapes)
    at_once = {"decode": shapes.rows, "pass": shapes.rows * (shapes.tokens - 1)}
    found = {name: rates(a, shapes, rows) for name, rows in at_once.items()}
    prompt_terms = ("prompts", "prompt attention")
    ideal_prompt = sum(terms[name] / found["pass"][name] for name in prompt_terms)
    ideal_decode = sum(terms[name] / found["decode"][name] for name in terms if name not in prompt_terms)
    ideal_pass = sum(terms[name] / found["pass"][name] for name in terms)
    count = sum(leaf.size for leaf in jax.tree.leaves(state))
    total, prompt = sum(terms.values()), sum(terms[name] for name in prompt_terms)
    rows = {
        "rollout: prompts": (prompt, ideal_prompt, taken["prefill"]),
        "rollout: completions": (total - prompt, ideal_decode, taken["rollout"] - taken["prefill"]),
        "reference": (total, ideal_pass, taken["reference"]),
        "update: forward": (total, ideal_pass, taken["forward"]),
        "update: backward": (2 * total, 2 * ideal_pass, taken["gradient"] - taken["forward"]),
        "update: optimiser": (0.0, _TRAFFIC * 4 * count / stream_rate(count), taken["update"] - taken["gradient"]),
    }
    lengths = f"{shapes.prompt_tokens} tokens × {G} × {shapes.tokens} (means)"
    print(f"{arguments.prompts} prompts of {lengths}, {count:,} weights")
    for name in terms:
        told = ", ".join(f"{found[kind][name] / 1e9:.0f} in a {kind}" for kind in found)
        print(f"  {name:<22}{terms[name] / 1e9:>8.3f} GFLOP a forward pass; GFLOP/s {told}")
    print("phase                       GFLOP   needed ms   taken ms   ratio")
    for name, (operations, ideal, seconds) in rows.items():
        print(f"{name:<24}{operations / 1e9:>9.3f}{ideal * 1e3:>12.2f}{seconds * 1e3:>11.2f}{seconds / ideal:>8.1f}")
    ideal, seconds = sum(row[1] for row in rows.values()), sum(row[2] for row in rows.values())
    print(f"{'all phases':<24}{'':>9}{ideal * 1e3:>12.2f}{seconds * 1e3:>11.2f}{seconds / ideal:>8.1f}")
    print(f"{'whole step':<24}{'':>9}{ideal * 1e3:>12.2f}{step * 1e3:>11.2f}{step / ideal:>8.1f}")
    print(f"the host's part: {(step - seconds) * 1e3:.2f} ms (below 0 where the device works while the host does)")


if __name__ == "__main__":
    main()
