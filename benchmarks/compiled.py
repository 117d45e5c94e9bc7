"""Programs of a run, and those of Tunix's own GRPO example at the same shapes, by the TPU's own compiler.

    pip install libtpu==0.0.42
    python benchmarks/compiled.py --example                     # Gemma 3 1B as in Tunix's example, beside Tunix
    python benchmarks/compiled.py +experiment=kaggle_tpu_gemma3_1b [--search] [--tunix 8 1]
    python benchmarks/compiled.py --chips v5e:1x1 model=gemma3_270m model.mesh_shape=[1,1,1] training.batch_size=1 \
        grpo.num_generations=4 generation.max_prompt_length=256 generation.max_generation_steps=768

No TPU is needed, and no weights: arrays are abstract, and a model comes from its published sizes. `model.mesh_shape`
must be set. The table has, for each program and one chip:

- HBM: arguments + temporary memory + results − results that take the place of arguments.
- Operations, without those of attention kernels, and bytes read and written, as XLA's cost analysis counts them, but
  with kernels, and with each loop counted as often as it runs; in brackets with the body of a loop counted once.
- HBM traffic: the bytes of those arrays that are not kept in the chip's own memory.
- Rooflines: operations / peak or bytes / bandwidth, whichever is longer, for XLA's bytes and for HBM traffic. They are
  bounds for comparing programs, not measurements. Transfers between chips are not in them.

`--tunix FSDP TP` compiles Tunix's programs beside them, on a mesh of so many chips; `--example` does so on 2 × 4.
`--layers N` compiles a model of N layers, which takes less time. `--search` doubles the length of completions, and then
the prompts of a micro-batch, until a program exceeds a chip's memory.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.mesh_shape import read_mesh_shape
from agent_tunix.config.schema import Config
from agent_tunix.planning.accelerators import ACCELERATORS, Accelerator

# Tunix's example (examples/rl/grpo/gsm8k/configs/gemma3_1b.yaml) for eight chips: one prompt × 2 completions, rank 64.
EXAMPLE = [
    "model=gemma3_1b",
    "model.lora_rank=64",
    "model.mesh_shape=[1,2,4]",
    "training.batch_size=1",
    "grpo.num_generations=2",
    "grpo.beta=0.08",
    "generation.max_prompt_length=256",
    "generation.max_generation_steps=768",
    "generation.temperature=0.9",
]

EXAMPLE_MESH = (2, 4)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A compiled program.

    Attributes:
        memory: Bytes of HBM on each chip.
        temporary: Those of them that exist only while it runs.
        flops: Operations of a chip.
        bytes: Bytes that a chip reads and writes, as XLA counts them.
        hbm: Those of arrays in HBM.
        bytes_once: The same, with the body of each loop counted once.
        compile_s: Seconds in which it was compiled.
    """

    memory: int
    temporary: int
    flops: float
    bytes: float
    hbm: float
    bytes_once: float
    compile_s: float

    def roofline_s(self, chip: Accelerator, *, only_hbm: bool = False) -> float:
        """Return the larger of the times that the operations and the bytes need."""
        assert chip.flops is not None
        assert chip.bandwidth is not None
        return max(self.flops / chip.flops, (self.hbm if only_hbm else self.bytes) / chip.bandwidth)


def measure(program: Any) -> Measured:
    """Compile a program and return its figures."""
    from benchmarks.hlo_cost import analyse

    started = time.perf_counter()
    compiled = program.lower().compile()
    seconds = time.perf_counter() - started
    memory = compiled.memory_analysis()
    whole, once = analyse(compiled.as_text(), program.repeats)
    return Measured(
        memory.argument_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        whole.flops,
        whole.bytes,
        whole.hbm,
        once.bytes,
        seconds,
    )


def show(title: str, programs: dict[str, Any], chip: Accelerator) -> dict[str, Measured]:
    """Compile and print programs, one after the other; return their figures."""
    print(
        f"{title}\n  {'program':10}       HBM  temporary     TFLOP       GB moved  GB of HBM  rooflines, ms", flush=True
    )
    import jax

    measured = {}
    for name, program in programs.items():
        try:
            one = measured[name] = measure(program)
        except jax.errors.JaxRuntimeError as error:
            if not is_too_large(error):
                raise
            print(f"  {name:10} does not fit: {str(error).splitlines()[0]}", flush=True)
            continue
        moved = f"{one.bytes / 1e9:.2f} ({one.bytes_once / 1e9:.2f})"
        print(
            f"  {name:10} {one.memory / 1e9:6.2f} GB {one.temporary / 1e9:7.2f} GB {one.flops / 1e12:9.3f} {moved:>14}"
            f" {one.hbm / 1e9:10.2f} {one.roofline_s(chip) * 1e3:7.1f} {one.roofline_s(chip, only_hbm=True) * 1e3:6.1f}"
            f"   compiled in {one.compile_s:.0f} s",
            flush=True,
        )
    return measured


def is_too_large(error: Exception) -> bool:
    """Return True if the compiler refused a program because it exceeds the memory."""
    return "RESOURCE_EXHAUSTED" in str(error)


def fits(config: Config, mesh: Any, chip: Accelerator) -> bool:
    """Return True if every program of a run compiles and fits a chip."""
    import jax
    from benchmarks.ahead import our_programs

    try:
        return all(measure(one).memory <= chip.memory_bytes for one in our_programs(config, mesh).values())
    except jax.errors.JaxRuntimeError as error:
        if not is_too_large(error):
            raise
        return False


def search(config: Config, mesh: Any, chip: Accelerator) -> None:
    """Print the longest completions and the largest micro-batch that fit, each doubled from the configuration's."""
    generation, training = config.generation, config.training

    def longer(factor: int) -> Config:
        steps = generation.max_generation_steps * factor
        return dataclasses.replace(config, generation=dataclasses.replace(generation, max_generation_steps=steps))

    def larger(factor: int) -> Config:
        micro = (training.micro_batch_size or training.batch_size) * factor
        batch = max(training.batch_size, micro)
        sizes = dataclasses.replace(training, batch_size=batch, micro_batch_size=micro)
        return dataclasses.replace(config, training=sizes)

    for name, change in (("longest completions", longer), ("largest micro-batch", larger)):
        factor = 1
        while fits(change(2 * factor), mesh, chip):
            factor *= 2
        found = change(factor)
        print(f"  {name}: {found.generation.max_generation_steps} tokens, {found.training.micro_batch_size} prompts")


def main() -> None:
    """Compile and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE or +experiment=NAME")
    parser.add_argument("--chips", default="v5e:2x4", help="the slice, such as v5e:1x1 or v5e:8x8")
    parser.add_argument("--programs", nargs="+", default=["sampling", "reference", "update"])
    parser.add_argument("--layers", type=int, default=None, help="layers of the model; default: all")
    parser.add_argument("--example", action="store_true", help="the shapes of Tunix's example; Tunix beside ours")
    parser.add_argument("--tunix", nargs=2, type=int, metavar=("FSDP", "TP"), help="compile Tunix beside ours")
    parser.add_argument("--search", action="store_true")
    arguments = parser.parse_args()
    from benchmarks import ahead

    from agent_tunix.config.compose import compose_overrides

    config = compose_overrides([*(EXAMPLE if arguments.example else []), *arguments.overrides])
    shape = read_mesh_shape(config.model.mesh_shape)
    if shape is None:
        parser.error("model.mesh_shape must be set: no device is here that `auto` could divide")
    chip = ACCELERATORS[arguments.chips.split(":")[0]]
    devices = ahead.topology_devices(arguments.chips)
    ahead.use_layers(arguments.layers)
    mesh = ahead.make_mesh(devices, shape)
    ours = ahead.our_programs(config, mesh)
    found = show(f"agent_tunix, mesh {shape}", {name: ours[name] for name in arguments.programs}, chip)
    if arguments.search:
        search(config, mesh, chip)
    tunix = arguments.tunix or (EXAMPLE_MESH if arguments.example else None)
    if tunix is not None:
        compare(config, tunix, devices, found, arguments.layers, chip)


def compare(
    config: Config,
    mesh: Sequence[int],
    devices: Any,
    ours: dict[str, Measured],
    layers: int | None,
    chip: Accelerator,
) -> None:
    """Compile Tunix's programs at the shapes of a configuration, on fsdp × tp chips, and print the ratios."""
    from benchmarks.peers import tunix_ahead

    theirs = show(
        "bare Tunix",
        tunix_ahead.tunix_programs(
            str(config.model.path).rsplit("/", 1)[-1],
            tunix_ahead.make_mesh(devices, *mesh),
            completions=micro_batch_size(config) * config.grpo.num_generations,
            prompt=config.generation.max_prompt_length or 0,
            length=config.generation.max_generation_steps,
            rank=config.model.lora_rank,
            group=config.grpo.num_generations,
            layers=layers,
        ),
        chip,
    )
    common = [name for name in theirs if name in ours]
    if not common:
        return
    memory = max(ours[name].memory for name in common) / max(theirs[name].memory for name in common)
    print(f"ours / Tunix, {' + '.join(common)}: HBM {memory:.2f}")
    for title, only_hbm in (("XLA's bytes", False), ("HBM traffic", True)):
        sums = [sum(found[name].roofline_s(chip, only_hbm=only_hbm) for name in common) for found in (ours, theirs)]
        print(f"  roofline by {title}: {sums[0] * 1e3:.1f} / {sums[1] * 1e3:.1f} ms = {sums[0] / sums[1]:.2f}")


if __name__ == "__main__":
    main()
