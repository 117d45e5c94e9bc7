"""`agent-tunix plan`: memory, time and cost of a run, before a device is paid for."""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_tunix.cli.options import json_option
from agent_tunix.cli.printing import echo
from agent_tunix.errors import AgentTunixError, ConfigError

if TYPE_CHECKING:
    from agent_tunix.config.mesh_shape import MeshShape
    from agent_tunix.config.schema import Config
    from agent_tunix.planning.accelerators import Accelerator
    from agent_tunix.planning.forecast import RunForecast
    from agent_tunix.policy.architecture import Architecture

_UNITS = {"MB": 1e6, "MIB": 2**20, "GB": 1e9, "GIB": 2**30, "TB": 1e12, "TIB": 2**40}
# Devices of a host, with fast links between them; `auto` keeps `tp` within a host.
_PER_HOST = 8
# Sources whose rows a plan does not fetch.
_REMOTE_SOURCES = {"huggingface", "kaggle", "tfds"}
_SHARE = click.FloatRange(0, 1, min_open=True)
_ABOVE_0 = click.FloatRange(min=0, min_open=True)


class MemorySize(click.ParamType):  # type: ignore[type-arg]  # click 8.1's takes none
    """Parameter type: a number of bytes with a unit, such as 80GB or 79.6GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes, above 0."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", str(value).strip())
        if match is None or match[2].upper() not in _UNITS or float(match[1]) == 0:
            self.fail(
                f"{value!r} must be a number above 0 with a unit of MB, MiB, GB, GiB, TB or TiB, for example 80GB",
                param,
            )
        return round(float(match[1]) * _UNITS[match[2].upper()])


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--device", default=None, help="Device of the built-in table: a100-80, h100, l4, v5e …; default: this machine."
)
@click.option(
    "--devices",
    type=click.IntRange(min=1),
    default=None,
    help="Number of devices, which model.mesh_shape=auto divides; default: the size of model.mesh_shape, or 1.",
)
@click.option("--device-memory", type=MemorySize(), default=None, help="Memory per device, for example 80GB.")
@click.option("--device-tflops", type=_ABOVE_0, default=None, help="TFLOP/s per device in dense matrix products.")
@click.option("--device-bandwidth", type=_ABOVE_0, default=None, help="GB/s between a device and its memory.")
@click.option("--device-link", type=_ABOVE_0, default=None, help="GB/s, one way, between devices.")
@click.option(
    "--price-per-hour",
    type=click.FloatRange(min=0),
    default=None,
    help="Price per hour of one device, in any currency.",
)
@click.option(
    "--utilisation",
    type=_SHARE,
    default=0.3,
    help="Share of the peak operations per second that is reached.",
)
@click.option(
    "--bandwidth-utilisation",
    type=_SHARE,
    default=0.6,
    help="Share of the peak bytes per second that is reached.",
)
@json_option
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def plan(
    device: str | None,
    devices: int | None,
    device_memory: int | None,
    device_tflops: float | None,
    device_bandwidth: float | None,
    device_link: float | None,
    price_per_hour: float | None,
    utilisation: float,
    bandwidth_utilisation: float,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Estimate a run's memory per device, FLOPs, seconds per step, tokens per second and cost.

    Loads no model and no JAX: sizes come from the model's config.json, or from a table for the models of conf/model.
    OVERRIDES are those of the run that is planned: KEY=VALUE. `agent-tunix rewards plan` forecasts how much the reward
    would teach.

    Exit status: 0; 1 the run does not fit the device; 2 the command, the configuration or the model cannot be used.
    """
    from agent_tunix.config.episodes import prompt_tokens
    from agent_tunix.config.mesh_shape import read_mesh_shape
    from agent_tunix.planning.forecast import Assumptions, forecast_run, short_lengths
    from agent_tunix.planning.known_models import plannable_architecture
    from agent_tunix.policy.module_names import check_experts
    from agent_tunix.runs.weights.judge_models import judge_configs, judges_as_written

    config, is_measured = _with_prompt_length(_compose(overrides))
    accelerator = _device(device, device_memory, device_tflops, device_bandwidth, device_link)
    architecture = plannable_architecture(config.model)
    check_experts(config.model, architecture)
    fixed_shape = read_mesh_shape(config.model.mesh_shape)
    if devices is not None and fixed_shape is not None and devices != fixed_shape.size:
        raise ConfigError(
            f"--devices must be {fixed_shape.size} with model.mesh_shape={fixed_shape}, not {devices}",
            code="invalid_devices",
        )
    dtype = _dtype(config, accelerator)
    compute_bytes = 4 if dtype == "float32" else 2
    judges = judge_configs(judges_as_written(config, Path.cwd()))
    shape = _shape(config, architecture, accelerator, devices or 1, compute_bytes, judges)
    assumptions = Assumptions(utilisation, bandwidth_utilisation)
    forecast = forecast_run(architecture, config, accelerator, shape, compute_bytes, assumptions, judges)
    hours = None if forecast.run_seconds is None else forecast.run_seconds * shape.size / 3600
    cost = None if hours is None or price_per_hour is None else hours * price_per_hour
    warnings = list(short_lengths(architecture, config))
    if as_json:
        echo(json.dumps({**_to_data(forecast, accelerator, shape, dtype, hours, cost), "warnings": warnings}, indent=2))
    else:
        echo(f"{architecture.model_type} {_size(config)}{_active(architecture)}, computed in {dtype}")
        echo(f"{shape.size} × {_describe(accelerator)}; model.mesh_shape={shape}")
        for line in _lines(forecast, config, cost):
            echo(line)
        for warning in warnings:
            echo(f"warning: {warning}")
        if not is_measured:
            echo(f"prompts of {prompt_tokens(config)} tokens are assumed; set generation.max_prompt_length")
    raise SystemExit(0 if forecast.fits else 1)


def _compose(overrides: Sequence[str]) -> "Config":
    from agent_tunix.config.checks import check
    from agent_tunix.config.working_directory import find_own_conf
    from agent_tunix.runs.algorithm_setup import register_own_algorithm
    from agent_tunix.runs.weights.starting_run import compose_start

    find_own_conf()
    config = compose_start(overrides)
    check(config)
    register_own_algorithm(config, Path.cwd())
    return config


def _with_prompt_length(config: "Config") -> "tuple[Config, bool]":
    """Return the configuration with the longest prompt, and True if it is given or was measured from local files."""
    from agent_tunix.data.sources import find_source
    from agent_tunix.policy.files.directory import is_on_hub
    from agent_tunix.runs.shown_prompts import measure_prompts

    if config.generation.max_prompt_length is not None:
        return config, True
    try:
        if is_on_hub(config.model) or {find_source(config, split) for split in ("train", "test")} & _REMOTE_SOURCES:
            return config, False
        return measure_prompts(config), True
    except AgentTunixError:  # a plan needs neither the model's files nor the data
        return config, False


def _dtype(config: "Config", device: "Accelerator") -> str:
    """Return the compute type that `model.dtype` selects on a device."""
    if config.model.dtype != "auto":
        return config.model.dtype
    return "float32" if device.name in ("cpu", "t4") else "bfloat16"


def _device(
    name: str | None, memory: int | None, tflops: float | None, bandwidth: float | None, link: float | None
) -> "Accelerator":
    """Return a device of the table, or else this machine. Given figures replace the device's own."""
    from agent_tunix.planning.accelerators import Accelerator, find_accelerator
    from agent_tunix.planning.memory import host_memory

    if name is not None:
        base = find_accelerator(name)
    elif memory is not None:
        base = Accelerator("device", memory)
    else:
        base = Accelerator("cpu", host_memory())
    return Accelerator(
        base.name,
        memory or base.memory_bytes,
        tflops * 1e12 if tflops else base.flops,
        bandwidth * 1e9 if bandwidth else base.bandwidth,
        link * 1e9 if link else base.link,
        base.layer_s,
    )


def _shape(
    config: "Config",
    architecture: "Architecture",
    device: "Accelerator",
    count: int,
    compute_bytes: int,
    judges: "Sequence[Config]",
) -> "MeshShape":
    """Return the shape that `model.mesh_shape` gives, or that `auto` would choose for `count` devices."""
    from agent_tunix.config.checks import micro_batch_size
    from agent_tunix.config.mesh_shape import read_mesh_shape
    from agent_tunix.planning.memory import plan_memory
    from agent_tunix.planning.mesh_choice import Devices, choose_mesh_shape, shape_problems

    shape, quantization = read_mesh_shape(config.model.mesh_shape), config.model.quantization
    if shape is None:
        return choose_mesh_shape(
            architecture,
            lambda candidate: plan_memory(architecture, config, compute_bytes, candidate, judges).total,
            Devices(count, min(count, _PER_HOST), device.memory_bytes),
            num_rows=micro_batch_size(config) * config.grpo.num_generations,
            quantization=quantization,
        ).shape
    if problems := shape_problems(architecture, shape, quantization):
        raise ConfigError("\n".join(problems))
    return shape


def _size(config: "Config") -> str:
    """Return the name of the model's size, or else the last part of its path."""
    model = config.model
    is_default = model.model_size == type(model)().model_size
    return model.path.rstrip("/").rpartition("/")[2] if model.path and is_default else model.model_size


def _active(architecture: "Architecture") -> str:
    """Return, as text, the weights of a model with experts and those that a token goes through; "" without experts."""
    from agent_tunix.planning.work import count_weights

    total, active = (f"{count / 1e9:,.3g}" for count in count_weights(architecture))
    return f" ({total} billion weights, {active} billion for each token)" if architecture.num_experts else ""


def _describe(device: "Accelerator") -> str:
    parts = [f"{device.memory_bytes / 1e9:,.1f} GB"]
    if device.flops is not None:
        parts.append(f"{device.flops / 1e12:,.1f} TFLOP/s")
    if device.bandwidth is not None:
        parts.append(f"{device.bandwidth / 1e9:,.0f} GB/s")
    return f"{device.name} ({', '.join(parts)})"


_PARTS = {
    "weights": "weights",
    "adapter": "adapter",
    "reference": "reference",
    "teacher": "teacher",
    "judge": "judges",
    "optimizer": "optimiser",
    "cache": "keys and values",
    "sampling": "reading, drawing",
    "judging": "questions, replies",
    "activations": "activations",
    "recomputed": "one layer again",
    "logits": "logits of a chunk",
    "gradients": "gradients",
}
_MOMENTS = {
    "throughout": ("weights", "adapter", "reference", "teacher", "judge", "optimizer"),
    "while sampling": ("cache", "sampling"),
    "while judging": ("judging",),
    "while updating": ("activations", "recomputed", "logits", "gradients"),
}


def _lines(forecast: "RunForecast", config: "Config", cost: float | None) -> Iterator[str]:
    from agent_tunix.planning.memory import gigabytes

    memory = forecast.memory
    moments = memory.held, memory.while_sampling, memory.judging, memory.while_updating
    sums = {moment: size for moment, size in zip(_MOMENTS, moments, strict=True) if size or moment != "while judging"}
    yield "memory of a device"
    for moment, size in sums.items():
        yield f"  {moment:<22}{gigabytes(size):>12}"
        for part in _MOMENTS[moment]:
            if size := getattr(memory, part):
                yield f"    {_PARTS[part]:<20}{gigabytes(size):>12}"
    verdict = "fits" if forecast.fits else "does not fit"
    yield (
        f"  {'at most':<22}{gigabytes(memory.total):>12}   of {gigabytes(forecast.available)} that can be used: "
        f"{verdict}"
    )
    batch, group = config.training.batch_size, config.grpo.num_generations
    yield "what fits at most"
    yield f"  training.micro_batch_size   {forecast.largest_micro_batch or 'none'}, with grpo.num_generations={group}"
    yield f"  grpo.num_generations        {forecast.largest_group or 'none'}, with training.micro_batch_size=1"
    yield f"a step: {batch} prompts × {group} completions, {forecast.sampled_tokens:,} sampled tokens at most"
    if config.engine.name != "none":
        yield f"  sampling by engine={config.engine.name}, on devices of its own: not in these figures"
    for name, phase in forecast.phases.items():
        time = "" if phase.seconds is None else f"{_seconds(phase.seconds):>12}   bound by {phase.bound}"
        yield f"  {name:<10}{phase.work.flops / 1e12:>14,.4g} TFLOP{time}"
    yield from _totals(forecast, cost)


def _totals(forecast: "RunForecast", cost: float | None) -> Iterator[str]:
    if forecast.step_seconds is None or forecast.tokens_per_second is None:
        yield "time unknown; set --device, or --device-tflops and --device-bandwidth"
        return
    yield f"  {'step':<10}{'':>20}{_seconds(forecast.step_seconds):>12}   {forecast.tokens_per_second:,.0f} tokens/s"
    if forecast.run_seconds is None:
        yield "the run: as many steps as the data has; set training.num_batches to fix the number"
        return
    price = "" if cost is None else f", cost {cost:,.2f}"
    yield (
        f"the run: {forecast.steps:,} steps, {forecast.evaluations} evaluations: "
        f"{_seconds(forecast.run_seconds)}{price}"
    )


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 600:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{seconds / 3600:,.1f} h"


def _to_data(
    forecast: "RunForecast",
    device: "Accelerator",
    shape: Sequence[int],
    dtype: str,
    hours: float | None,
    cost: float | None,
) -> dict[str, Any]:
    def phases(of: Any) -> dict[str, Any]:
        return {
            name: {**dataclasses.asdict(phase.work), "seconds": phase.seconds, "bound": phase.bound}
            for name, phase in of.items()
        }

    memory = forecast.memory
    return {
        "device": dataclasses.asdict(device),
        "mesh_shape": list(shape),
        "dtype": dtype,
        "memory": {
            **dataclasses.asdict(memory),
            "held": memory.held,
            "while_sampling": memory.while_sampling,
            "while_updating": memory.while_updating,
            "total": memory.total,
            "available": forecast.available,
            "fits": forecast.fits,
        },
        "largest_micro_batch_size": forecast.largest_micro_batch,
        "largest_num_generations": forecast.largest_group,
        "step": {
            "phases": phases(forecast.phases),
            "seconds": forecast.step_seconds,
            "sampled_tokens": forecast.sampled_tokens,
            "tokens_per_second": forecast.tokens_per_second,
        },
        "evaluation": {"phases": phases(forecast.evaluation), "count": forecast.evaluations},
        "steps": forecast.steps,
        "run_seconds": forecast.run_seconds,
        "device_hours": hours,
        "cost": cost,
    }
