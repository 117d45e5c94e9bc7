"""What a run will hold in memory, added up before anything is loaded; loads no JAX.

Sums are over all devices, with one copy of the weights until `MemoryPlan.over` says how many there are. Weights,
adapter, optimiser and cache are exact; activations are an estimate, since the compiler decides what it keeps and for
how long.
"""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.cache_plan import plan_cache
from agent_tunix.policy.module_names import DEFAULT_PATTERN, matches
from agent_tunix.policy.tensors import CODE_BITS, Tensor, block_size, list_tensors

_FLOAT32 = 4
# What an optimiser keeps, in float32 numbers for each that it trains; of Adafactor's rows and columns there are few.
_MOMENTS = {"adamw": 2, "adafactor": 0, "lion": 1, "muon": 2, "sgd": 1}


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of each part.

    Attributes:
        weights: The policy's, quantised or not, without adapter.
        adapter: A and B of every adapted projection.
        reference: What the reference policy has for itself: a copy of what trains; 0 without a KL penalty.
        optimizer: Moments of all that trains, as many as the optimiser has, and the sum of accumulated gradients.
        gradients: A gradient of all that trains, and what that was before an update, in case it is not finite.
        cache: Keys and values of the prompts and completions of a step, or of an evaluation where those are more.
        activations: What the backward pass of a micro-batch keeps, roughly.
    """

    weights: int
    adapter: int
    reference: int
    optimizer: int
    gradients: int
    cache: int
    activations: int

    @property
    def held(self) -> int:
        """What is there throughout the run."""
        return self.weights + self.adapter + self.reference + self.optimizer

    @property
    def total(self) -> int:
        """The sum: the cache is gone when activations are there, so the larger of both counts."""
        return self.held + max(self.cache, self.gradients + self.activations)

    def over(self, shape: MeshShape) -> "MemoryPlan":
        """The plan of a mesh, on which each part of `data` has a copy of what is not divided by rows."""
        copied = {name: getattr(self, name) * shape.data for name in ("weights", "adapter", "reference", "optimizer")}
        return replace(self, **copied, gradients=self.gradients * shape.data)

    def for_sampling(self) -> "MemoryPlan":
        """What is held where nothing trains."""
        return replace(self, reference=0, optimizer=0, gradients=0, activations=0)

    def describe(self) -> str:
        """One line with every part in GB."""
        parts = {name: value for name, value in vars(self).items() if value}
        return ", ".join(f"{name} {gigabytes(value)}" for name, value in parts.items())


def plan_memory(architecture: Architecture, config: Config, compute_bytes: int) -> MemoryPlan:
    """Add up what a run of this configuration holds.

    Args:
        architecture: Of the policy.
        config: The run.
        compute_bytes: Of a number in the type that the policy computes in: 4 or 2.
    """
    a, model = architecture, config.model
    tensors = list_tensors(a)
    rank = model.lora_rank
    weights = sum(_weight_bytes(tensor, model, compute_bytes) for tensor in tensors)
    adapter = sum(rank * sum(tensor.shape) * _FLOAT32 for tensor in tensors if _is_adapted(tensor, model))
    trained = adapter if rank > 0 else weights
    accumulates = config.training.batch_size > micro_batch_size(config)
    length = config.generation.max_prompt_length + config.generation.max_generation_steps
    return MemoryPlan(
        weights=weights,
        adapter=adapter,
        reference=trained if config.grpo.beta != 0.0 else 0,
        optimizer=(_MOMENTS[config.optimizer.kind] + accumulates) * trained,
        gradients=2 * trained,
        cache=plan_cache(a, config, compute_bytes, MeshShape(1, 1, 1)).bytes,
        activations=_activation_bytes(a, config, length, compute_bytes),
    )


def _is_adapted(tensor: Tensor, model: ModelConfig) -> bool:
    return (
        model.lora_rank > 0
        and tensor.path[-1] == "kernel"
        and matches(model.lora_module_path or DEFAULT_PATTERN, tensor.name.removesuffix(".weight"))
    )


def _weight_bytes(tensor: Tensor, model: ModelConfig, compute_bytes: int) -> int:
    count = math.prod(tensor.shape)
    if model.lora_rank == 0:
        return count * _FLOAT32
    if model.quantization is None or tensor.path[-1] != "kernel" or tensor.path[0] != "layers":
        return count * compute_bytes
    outputs, inputs = tensor.shape
    return count * CODE_BITS[model.quantization] // 8 + outputs * (inputs // block_size(inputs)) * _FLOAT32


def _activation_bytes(a: Architecture, config: Config, length: int, compute_bytes: int) -> int:
    """Of the backward pass: the logits with their softmax and gradient in float32, and what layers keep.

    A layer keeps its input, what its norms, projections and activation take and give, and the attention's shares; with
    rematerialisation every layer keeps its input, and one at a time all of that.
    """
    rows = micro_batch_size(config) * config.grpo.num_generations
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    of_token = 6 * a.hidden_size + 3 * queries + 4 * keys + 4 * a.intermediate_size
    shares = 2 * a.num_heads * length * _FLOAT32
    of_layer = rows * length * (of_token * compute_bytes + shares)
    inputs = rows * length * a.hidden_size * compute_bytes
    layers = a.num_layers * inputs + of_layer if config.model.remat else a.num_layers * of_layer
    return 3 * rows * length * a.vocab_size * _FLOAT32 + layers


def check_memory(plan: MemoryPlan, available: int) -> str | None:
    """What to warn of where the plan is more than there is; None where it fits.

    Args:
        plan: Of the run.
        available: Bytes of all devices of the mesh.

    Raises:
        ConfigError: The weights alone are more than there is.
    """
    if plan.weights + plan.reference > available:
        raise ConfigError(
            f"the weights alone need {gigabytes(plan.weights + plan.reference)}, and there are {gigabytes(available)}:"
            f" {plan.describe()}. {_ADVICE}"
        )
    if plan.total > available:
        return (
            f"the run may need about {gigabytes(plan.total)}, and there are {gigabytes(available)}: {plan.describe()}."
            f" {_ADVICE}"
        )
    return None


_ADVICE = (
    "Less: model.lora_rank=16 (no optimiser state or reference of the base), model.quantization=nf4,"
    " model.dtype=bfloat16, model.remat=true, a smaller training.micro_batch_size, or more devices"
    " along fsdp or tp of model.mesh_shape"
)


def host_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or less where a control group allows less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(file).read_text()))
        except (OSError, ValueError):
            continue
    return total


def gigabytes(count: int) -> str:
    """1.19 GB; small numbers in MB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
