"""Forecasts of memory and time by `agent-tunix plan`, compared with steps on this machine.

    python benchmarks/forecast.py [--quick] [--steps 5]

Random models, from the size of the embedded one to a hundred times that, train for some steps with prompts and
completions of full length. For each the benchmark prints, predicted and measured with their ratio,

- held: all arrays alive between steps;
- sampling and update: temporary memory of the two compiled programs without donated arrays, as XLA reports it;
- rollout and update: median seconds over the steps. This machine's rates are measured first, with a product of large
  matrices and a pass over a large array. Steps reach a share of each rate. The first share is fitted to the update of
  the first configuration, the second to its rollout (above 1 if weights stay in the processor's caches). The forecasts
  of the other configurations use these shares.

The bar is a ratio of 0.5 to 2, for held memory 0.98 to 1.02. The exit status is 1 if a ratio is outside.
"""

import argparse
import gc
import logging
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# Without the cache, every program is compiled in this process, which reports its memory.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)

import jax
import jax.numpy as jnp
from jax._src import compiler

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.real_shapes import SHAPES, write_model

from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.planning.accelerators import Accelerator
from agent_tunix.planning.forecast import Assumptions, RunForecast, forecast_run
from agent_tunix.policy.families import read_architecture
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.reward_setup import make_reward_runner
from agent_tunix.startup.devices import prepare
from agent_tunix.training.components import build_components, make_trainer

# Width, layers, MLP width, query heads, key-value heads, head width, words.
TINY = (64, 2, 192, 4, 2, 32, 512)
SMALL = (256, 4, 768, 4, 2, 64, 8000)
MIDDLE = (512, 8, 1536, 8, 4, 64, 32_000)


@dataclass(frozen=True)
class Case:
    """A configuration: sizes of the model, B, G, P, T, and which weights train."""

    name: str
    sizes: tuple[int, ...]
    prompts: int
    group: int
    prompt: int
    completion: int
    rank: int = 0
    micro: int | None = None
    remat: bool = False
    quantization: str | None = None


CASES = (
    Case("small, LoRA", SMALL, 2, 4, 64, 64, rank=8),
    Case("tiny, all weights", TINY, 16, 8, 64, 24),
    Case("small, all weights", SMALL, 2, 4, 64, 64),
    Case("small, long prompts", SMALL, 2, 8, 256, 64, rank=8),
    Case("small, long completions", SMALL, 2, 4, 64, 256, rank=8),
    Case("small, remat", SMALL, 2, 4, 256, 256, rank=8, remat=True),
    Case("small, micro-batches, nf4", SMALL, 8, 8, 128, 64, rank=8, micro=1, quantization="nf4"),
    Case("middle, LoRA", MIDDLE, 2, 4, 128, 64, rank=16),
    Case("middle, all weights, remat", MIDDLE, 2, 4, 128, 64, remat=True),
)


@dataclass(frozen=True)
class Measured:
    """Memory in bytes, and median seconds of a step."""

    held: int
    sampling: int
    updating: int
    rollout_s: float
    update_s: float


def make_config(case: Case, directory: Path, steps: int) -> Config:
    """Return the default run with the settings of the case."""
    config = Config()
    return replace(
        config,
        model=replace(
            config.model,
            path=str(directory),
            lora_rank=case.rank,
            remat=case.remat,
            quantization=case.quantization,
        ),
        training=replace(config.training, batch_size=case.prompts, micro_batch_size=case.micro, num_batches=steps + 1),
        grpo=replace(config.grpo, num_generations=case.group),
        generation=replace(config.generation, max_prompt_length=case.prompt, max_generation_steps=case.completion),
        data=replace(config.data, num_train=256, num_test=8),
        # A larger evaluation would determine the size of the cache.
        evaluation=replace(config.evaluation, num_samples=1, batch_size=1),
        tracking=replace(config.tracking, tensorboard=False, progress="none"),
    )


def measure(config: Config, steps: int) -> Measured:
    """Train for some steps after one that compiles, with prompts of full length whatever the data."""
    temporary: dict[str, int] = {}
    compile_program = compiler.backend_compile_and_load

    def watch(*args: Any, **kwargs: Any) -> Any:
        executable = compile_program(*args, **kwargs)
        name = executable.hlo_modules()[0].name
        size = executable.get_compiled_memory_stats().temp_size_in_bytes
        temporary[name] = max(temporary.get(name, 0), size)
        return executable

    compiler.backend_compile_and_load = watch
    rollout_s, update_s = [], []
    try:
        gc.collect()
        before = sum(array.nbytes for array in jax.live_arrays())
        checked = preflight(config, Path(tempfile.gettempdir()))
        with make_reward_runner(checked.mixture, config.rewards):
            components = build_components(checked.config)
            trainer = make_trainer(components, checked.mixture)
            for step in range(1, steps + 2):
                batch = components.batches.batch(step)
                full = [[5 + step] * prompt_tokens(config) for _ in batch.token_ids]
                seconds = trainer.take_step(step, replace(batch, token_ids=full)).seconds
                rollout_s.append(seconds["rollout"])
                # The reference pass continues while rewards are computed.
                update_s.append(seconds["reward"] + seconds["update"])
        gc.collect()
        held = sum(array.nbytes for array in jax.live_arrays()) - before
    finally:
        compiler.backend_compile_and_load = compile_program
    return Measured(
        held,
        temporary["jit_generate"],
        temporary["jit_update"],
        statistics.median(rollout_s[1:]),
        statistics.median(update_s[1:]),
    )


def measure_machine() -> Accelerator:
    """Return this CPU with its rates of operations and bytes per second."""
    square = jnp.ones((2048, 2048))
    product = jax.jit(lambda x: x @ x)
    long = jnp.ones(1 << 26)
    add = jax.jit(lambda x: x + 1)
    return Accelerator(
        "cpu", 1 << 62, flops=2 * 2048**3 / _fastest(product, square), bandwidth=2 * long.nbytes / _fastest(add, long)
    )


def _fastest(program: Any, x: jax.Array) -> float:
    program(x).block_until_ready()
    times = []
    for _ in range(5):
        started = time.perf_counter()
        program(x).block_until_ready()
        times.append(time.perf_counter() - started)
    return min(times)


def foretell(config: Config, directory: Path, machine: Accelerator, assumptions: Assumptions) -> RunForecast:
    """Return the forecast in float32 on this machine with the given shares of its rates."""
    return forecast_run(read_architecture(directory), config, machine, MeshShape(1, 1, 1), 4, assumptions)


def seconds_of(forecast: RunForecast, *phases: str) -> float:
    """Return the seconds of some phases together."""
    return sum(forecast.phases[name].seconds or 0.0 for name in phases)


def fit(config: Config, directory: Path, machine: Accelerator, measured: Measured) -> Assumptions:
    """Return the shares of the machine's rates that one configuration reaches."""
    whole = foretell(config, directory, machine, Assumptions(1.0, 1.0))
    utilisation = seconds_of(whole, "reference", "update") / measured.update_s
    computing = foretell(config, directory, machine, Assumptions(utilisation, 1.0))
    return Assumptions(utilisation, seconds_of(computing, "prefill", "decode") / measured.rollout_s)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="Only the first three cases, two steps each.")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    # The same setup as a run.
    prepare(DistributedConfig(compilation_cache=None))
    steps = 2 if arguments.quick else arguments.steps
    machine = measure_machine()
    assert machine.flops is not None
    assert machine.bandwidth is not None
    print(f"this machine: {machine.flops / 1e9:,.0f} GFLOP/s, {machine.bandwidth / 1e9:,.0f} GB/s")
    print("predicted/measured=ratio: held, sampling, updating in MB; rollout, update in s")
    got = None
    beyond = 0
    for case in CASES[:3] if arguments.quick else CASES:
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            hidden, layers, inner, heads, kv_heads, head_dim, words = case.sizes
            sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner}
            sizes |= {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}
            write_model(directory / "model", {**SHAPES["qwen3_0_6b"], **sizes, "vocab_size": words})
            config = make_config(case, directory / "model", steps)
            measured = measure(config, steps)
            if got is None:
                got = fit(config, directory / "model", machine, measured)
                print(
                    f"got of it: {got.utilisation:.2f} of the operations and {got.bandwidth_utilisation:.2f} of the"
                    " bytes, fitted to the first configuration"
                )
            found = foretell(config, directory / "model", machine, got)
        pairs = (
            (found.memory.held / 1e6, measured.held / 1e6),
            (found.memory.while_sampling / 1e6, measured.sampling / 1e6),
            (found.memory.while_updating / 1e6, measured.updating / 1e6),
            (seconds_of(found, "prefill", "decode"), measured.rollout_s),
            (seconds_of(found, "reference", "update"), measured.update_s),
        )
        print(f"{case.name:<28}" + "  ".join(f"{p:.4g}/{m:.4g}={p / m:.2f}" for p, m in pairs), flush=True)
        beyond += sum(not 0.5 <= p / m <= 2.0 for p, m in pairs[1:]) + (not 0.98 <= pairs[0][0] / pairs[0][1] <= 1.02)
    if beyond:
        raise SystemExit(f"{beyond} ratios beyond the bar")


if __name__ == "__main__":
    main()
