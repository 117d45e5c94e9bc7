"""Memory and time of two GRPO steps with LoRA on models of real shapes with random weights, on this CPU.

    python benchmarks/real_shapes.py [qwen3_0_6b gemma3_270m llama3_2_1b] [model.quantization=nf4 ...]

Each model is a Hugging Face directory with random bfloat16 weights and the embedded tokenizer, in a temporary
directory. The program itself trains it in a separate process: one prompt of at most 64 tokens, two completions of at
most 64. The benchmark prints the process's peak resident memory, the sum of its parts, and seconds. Arguments with a
`=` are overrides of the configuration.

Weights, adapter, optimiser and cache are as planned by the program. Activations are the largest temporary memory of a
compiled program, as XLA reports it. The rest is the memory held before the model was loaded, and the memory of the
compiler and the compiled programs, which is the difference to the peak.
"""

import argparse
import json
import math
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from agent_tunix.config.compose import from_yaml
from agent_tunix.planning.memory import plan_memory
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.tensors import list_tensors

SHAPES: dict[str, dict[str, Any]] = {
    "gemma3_270m": {
        "model_type": "gemma3_text",
        "vocab_size": 262_144,
        "hidden_size": 640,
        "intermediate_size": 2048,
        "num_hidden_layers": 18,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "rms_norm_eps": 1e-6,
    },
    "qwen3_0_6b": {
        "model_type": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    },
    "llama3_2_1b": {
        "model_type": "llama",
        "vocab_size": 128_256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    },
}

OVERRIDES = (
    "training.num_batches=2",
    "training.batch_size=1",
    "grpo.num_generations=2",
    "generation.max_generation_steps=64",
    "model.lora_rank=16",
    "evaluation.num_samples=1",
    "evaluation.batch_size=1",
    "training.save_interval_steps=0",
    "tracking.tensorboard=false",
    "tracking.report=false",
    "tracking.progress=none",
    # Without the cache, every program is compiled in this process.
    "distributed.compilation_cache=null",
)


@dataclass(frozen=True)
class Measured:
    """Measurements of a run's process.

    Attributes:
        before_bytes: Resident memory before the model was loaded.
        load_s: Seconds of loading.
        compile_s: Seconds of compiling all programs.
        activation_bytes: Largest temporary memory of a program.
        peak_bytes: Largest resident memory.
    """

    before_bytes: int
    load_s: float
    compile_s: float
    activation_bytes: int
    peak_bytes: int


def write_model(directory: Path, shape: dict[str, Any]) -> None:
    """Write a model directory with random weights, in the layout of the Hugging Face hub."""
    shutil.copytree(EMBEDDED_MODEL, directory, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    (directory / "config.json").write_text(json.dumps(shape))
    rng = np.random.default_rng(0)
    noise = (0.02 * rng.standard_normal(2**20, dtype=np.float32)).astype(ml_dtypes.bfloat16)
    tensors = {
        # Every tensor repeats the same million numbers from another offset, because drawing them all takes long.
        f"model.{tensor.name}": np.resize(np.roll(noise, number * 977), math.prod(tensor.shape)).reshape(tensor.shape)
        for number, tensor in enumerate(list_tensors(read_architecture(directory)))
    }
    save_file(tensors, directory / "model.safetensors")


def run(directory: Path, overrides: list[str]) -> tuple[Measured, list[dict[str, Any]], Any]:
    """Train in a separate process, and return its measurements, its rows of metrics and its configuration."""
    run_directory, measured = directory / "run", directory / "measured.json"
    family = json.loads((directory / "model" / "config.json").read_text())["model_type"]
    arguments = [
        *(f"model.path={directory / 'model'}", f"model.model_family={family}", f"hydra.run.dir={run_directory}"),
        *OVERRIDES,
        *overrides,
    ]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run(
        [sys.executable, __file__, "--measured-run", str(measured), *arguments],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    rows = [json.loads(line) for line in (run_directory / "metrics.jsonl").read_text().splitlines()]
    return Measured(**json.loads(measured.read_text())), rows, from_yaml(run_directory / "config.yaml")


def measured_run(result: Path, overrides: list[str]) -> None:
    """Run the program in this process and measure loading and compilation."""
    from jax._src import compiler

    from agent_tunix.training import components

    seen: dict[str, Any] = {"compile_s": 0.0, "activation_bytes": 0}
    compile_program, load_policy = compiler.backend_compile_and_load, vars(components)["load_policy"]

    def watch_compiling(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        executable = compile_program(*args, **kwargs)
        seen["compile_s"] += time.perf_counter() - started
        temporary = executable.get_compiled_memory_stats().temp_size_in_bytes
        seen["activation_bytes"] = max(seen["activation_bytes"], temporary)
        return executable

    def watch_loading(*args: Any, **kwargs: Any) -> Any:
        seen["before_bytes"] = _peak_bytes()
        started = time.perf_counter()
        policy = load_policy(*args, **kwargs)
        seen["load_s"] = time.perf_counter() - started
        return policy

    compiler.backend_compile_and_load = watch_compiling
    vars(components)["load_policy"] = watch_loading
    sys.argv = ["run_training.py", *overrides]
    try:
        runpy.run_path(str(Path(__file__).parents[1] / "run_training.py"), run_name="__main__")
    finally:
        result.write_text(json.dumps({**seen, "peak_bytes": _peak_bytes()}))


def _peak_bytes() -> int:
    # `ru_maxrss` would include the memory of the parent process at the start.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM: this benchmark needs Linux")


def describe(name: str, measured: Measured, rows: list[dict[str, Any]], config: Any, directory: Path) -> Iterator[str]:
    """Yield the lines of a model's table."""
    architecture = read_architecture(directory / "model")
    dtype_bytes = 2 if config.model.dtype == "bfloat16" else 4
    plan = plan_memory(architecture, config, dtype_bytes)
    parts = {
        "weights": plan.weights,
        "adapter": plan.adapter,
        "reference's adapter": plan.reference,
        "optimiser": plan.optimizer,
        "cache (while sampling)": plan.cache,
        "activations (compiled)": measured.activation_bytes,
        "before the model": measured.before_bytes,
    }
    steps = [row["time/step_s"] for row in rows if "time/step_s" in row]
    total = sum(parts.values())
    yield f"{name}: peak {_mb(measured.peak_bytes)} beside {_mb(total)}, the sum of"
    yield from (f"  {part:<24}{_mb(value):>10}" for part, value in parts.items())
    yield f"  {'compiler and programs':<24}{_mb(measured.peak_bytes - total):>10}   (the difference)"
    yield (
        f"  load {measured.load_s:.1f} s, compile {measured.compile_s:.1f} s, first step {steps[0]:.1f} s, second step"
        f" {steps[1]:.1f} s"
    )


def _mb(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arguments", nargs="*")
    arguments = parser.parse_args().arguments
    overrides = [argument for argument in arguments if "=" in argument]
    names = [argument for argument in arguments if "=" not in argument] or list(SHAPES)
    if unknown := set(names) - set(SHAPES):
        parser.error(f"no such shape: {', '.join(sorted(unknown))}; there are {', '.join(SHAPES)}")
    for name in names:
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            write_model(directory / "model", SHAPES[name])
            print("\n".join(describe(name, *run(directory, overrides), directory)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measured-run"]:
        measured_run(Path(sys.argv[2]), sys.argv[3:])
    else:
        main()
