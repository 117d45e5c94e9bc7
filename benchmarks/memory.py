"""Peak memory of a GRPO step of agent_tunix ("ours") and of bare Tunix, and its growth with the batch.

    python benchmarks/memory.py [--sequences 16 32 64 128] [--layers 2] [--width 128] [--remat] [--quick]

A random model of that size takes two steps on sequences of 512 tokens: prompts of 256 with eight completions of 256
(ours cannot end early; Tunix's end once in 32,000 tokens, in arrays of full length). The batch is one micro-batch, so
the result is the cost of a sequence. Bare Tunix uses its own learner, sampler and Qwen 3 with the same weights,
optimiser, β and KL estimator. `--remat` applies only to ours, because Tunix's fails with Flax 0.12.8.

Each measurement is a separate process. *Peak* is its largest resident memory with the compiler, minus the resident
memory after all imports. *Update* is the temporary memory of the largest compiled program, as XLA reports it. A line is
fitted to each program's peaks over the number of sequences, and the distance of each peak from it is printed.

The bar is half of bare Tunix's peak at 64 sequences. The exit status is 1 if it is missed, or if a peak of ours is more
than 5 % off the line. For Tunix, the line replaces the measurement of a size if the line through smaller sizes exceeds
the free memory, or if the system kills the process for lack of memory. The model is small so that more sizes can be
measured: Tunix's peak is mostly logits. `--quick` measures 8 to 32 sequences.
"""

import argparse
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

LENGTH = 512
GROUP = 8
BAR = 0.5
LARGEST_RESIDUAL = 0.05
_BARRED = 64


@dataclass(frozen=True)
class Measured:
    """Memory of one process, in bytes.

    Attributes:
        imported: Resident memory after all imports.
        peak: Largest resident memory of the process.
        update: Temporary memory of the largest compiled program.
    """

    imported: int
    peak: int
    update: int


def measure(program: str, directory: Path, sequences: int, words: int, remat: bool) -> Measured | None:
    """Measure two steps in a separate process; return None if the system killed it."""
    arguments = ["--child", program, str(directory), str(sequences), str(words), *(["remat"] if remat else [])]
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode == -signal.SIGKILL:
        return None
    if done.returncode != 0:
        raise SystemExit(f"{program} with {sequences} sequences ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def child(program: str, directory: Path, sequences: int, words: int, remat: bool) -> Measured:
    """Build, take two steps and return the measurements, in the process of a measurement."""
    from agent_tunix.config.schema import DistributedConfig
    from agent_tunix.startup import devices

    # Both programs compile in this process, Tunix with XLA's default settings.
    if program == "ours":
        devices.prepare(DistributedConfig(platform="cpu", compilation_cache=None))
    import absl.logging
    from benchmarks.made_model import make_config, make_step
    from jax._src import compiler

    from agent_tunix.training import components  # noqa: F401  (what a run imports)

    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.disable(logging.WARNING)
    imported = _status("VmRSS")
    config = make_config(
        directory, prompts=sequences // GROUP, group=GROUP, prompt_tokens=LENGTH // 2, tokens=LENGTH // 2, remat=remat
    )
    temporary = [0]
    compile_program = compiler.backend_compile_and_load

    def watch(*args: Any, **kwargs: Any) -> Any:
        executable = compile_program(*args, **kwargs)
        temporary.append(executable.get_compiled_memory_stats().temp_size_in_bytes)
        return executable

    compiler.backend_compile_and_load = watch

    if program == "ours":
        step = make_step(config)
        step(1)
        step(2)
    else:
        take_bare_steps(config, words)
    return Measured(imported, _status("VmHWM"), max(temporary))


def take_bare_steps(config: Any, words: int) -> None:
    """Take two steps with Tunix's own learner and sampler, on the same model and optimiser."""
    import optax
    from benchmarks.made_model import make_prompts, reward
    from benchmarks.peers.bare_tunix import load_model, make_mesh
    from benchmarks.peers.tunix_tokenizer import TunixTokenizer
    from tunix.rl import rl_cluster as rl_cluster_lib
    from tunix.rl.grpo import grpo_learner
    from tunix.rl.rollout import base_rollout

    from agent_tunix.config.schema import SchedulerConfig
    from agent_tunix.policy.optimizer import make_optimizer
    from agent_tunix.policy.schedules import make_schedules

    directory, mesh = Path(config.model.path), make_mesh()
    generation, prompts = config.generation, config.training.batch_size
    roles = (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT)
    optimizer = make_optimizer(config.optimizer)
    schedules = make_schedules(replace(config.optimizer, warmup_ratio=0.0), SchedulerConfig(kind="constant"), 1)
    cluster = rl_cluster_lib.RLCluster(
        actor=load_model(directory, mesh),
        reference=load_model(directory, mesh),
        tokenizer=TunixTokenizer(directory),
        cluster_config=rl_cluster_lib.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine="vanilla",
            training_config=rl_cluster_lib.RLTrainingConfig(
                actor_optimizer=optax.GradientTransformation(
                    optimizer.init, functools.partial(optimizer.update, schedules=schedules)
                ),
                eval_every_n_steps=10**9,
                max_steps=10**9,
            ),
            rollout_config=base_rollout.RolloutConfig(
                max_tokens_to_generate=generation.max_generation_steps,
                max_prompt_length=generation.max_prompt_length,
                kv_cache_size=LENGTH,
                temperature=generation.temperature,
                top_p=1.0,
                top_k=None,
            ),
        ),
    )
    learner = grpo_learner.GRPOLearner(
        rl_cluster=cluster,
        algo_config=grpo_learner.GRPOConfig(
            num_generations=GROUP,
            num_iterations=1,
            beta=config.grpo.beta,
            epsilon=config.grpo.epsilon,
            kl_loss_mode=config.grpo.kl_estimator,
        ),
        reward_fns=lambda prompts, completions, **_: [reward(text) for text in completions],
    )

    batch = {"prompts": np.array(make_prompts(prompts, generation.max_prompt_length, words))}
    learner.train([batch, batch])


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}: this benchmark needs Linux")


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemAvailable: this benchmark needs Linux")


def forecast(measured: dict[int, Measured], sequences: int) -> float | None:
    """Return the peak at a size by the line through the measured ones; None if there are fewer than two."""
    if len(measured) < 2:
        return None
    line = np.polyfit(list(measured), [one.peak - one.imported for one in measured.values()], 1)
    return float(np.polyval(line, sequences))


def describe(program: str, measured: dict[int, Measured]) -> float:
    """Print the table of a program, and return the largest distance from the line, as a share."""
    sizes = list(measured)
    peaks = np.array([one.peak - one.imported for one in measured.values()])
    slope, fixed = np.polyfit(sizes, peaks, 1)
    print(f"{program}: peak = {_mb(fixed)} + {_mb(slope)} × sequences")
    print("  sequences  imported       peak   off the line     update   a sequence")
    worst = 0.0
    for (size, one), peak in zip(measured.items(), peaks, strict=True):
        off = float(peak / (fixed + slope * size) - 1)
        worst = max(worst, abs(off))
        print(
            f"  {size:>9}{_mb(one.imported):>10}{_mb(peak):>11}{off:>14.1%}{_mb(one.update):>12}"
            f"{_mb(one.update / size):>13}"
        )
    return worst


def _mb(count: float) -> str:
    return f"{count / 1e6:,.0f} MB"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--words", type=int, default=32_000)
    parser.add_argument("--remat", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    sizes = [8, 16, 32] if arguments.quick else sorted(arguments.sequences)
    if any(size % GROUP for size in sizes) or len(sizes) < 2:
        parser.error(f"--sequences takes two sizes at least, multiples of {GROUP}")
    from benchmarks.made_model import write_model

    found: dict[str, dict[int, Measured]] = {"ours": {}, "tunix": {}}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "model"
        write_model(directory, words=arguments.words, width=arguments.width, layers=arguments.layers)
        print(
            f"{arguments.layers} layers of width {arguments.width}, {arguments.words:,} words, {LENGTH} tokens",
            flush=True,
        )
        for program, measured in found.items():
            # Smaller sizes of Tunix first, so that a size that does not fit is known before it is tried.
            for size in sizes if program == "ours" else sorted({8, *sizes}):
                needed = forecast(measured, size)
                if needed is not None and needed > 0.9 * _available():
                    print(f"{program}, {size} sequences: left out; needs {_mb(needed)}, free are {_mb(_available())}")
                    continue
                remat = arguments.remat and program == "ours"
                one = measure(program, directory, size, arguments.words, remat)
                if one is None:
                    print(f"{program}, {size} sequences: ended by the system, which is short of memory", flush=True)
                    break
                measured[size] = one
                print(f"{program}, {size} sequences: {_mb(one.peak)} in all", flush=True)
    worst = describe("ours", found["ours"])
    describe("bare Tunix", found["tunix"])
    size = min(_BARRED, max(sizes))
    peaks = {}
    for program, measured in found.items():
        one = measured.get(size)
        peaks[program] = forecast(measured, size) if one is None else one.peak - one.imported
        how = "" if one is not None else " (by the line)"
        print(f"{program} at {size} sequences: {_mb(peaks[program] or 0.0)}{how}")
    ratio = (peaks["ours"] or 0.0) / (peaks["tunix"] or 1.0)
    print(f"ratio {ratio:.2f}, bar {BAR}; ours is {worst:.1%} off its line at most, bar {LARGEST_RESIDUAL:.0%}")
    raise SystemExit(0 if ratio <= BAR and worst <= LARGEST_RESIDUAL else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        kind, model, count, words, *rest = sys.argv[2:]
        print(json.dumps(vars(child(kind, Path(model), int(count), int(words), "remat" in rest))))
    else:
        main()
