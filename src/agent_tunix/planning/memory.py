"""The memory plan of a run, computed before anything is loaded; loads no JAX.

Weights, adapter, optimiser and cache are exact. All other memory of compiled programs is an estimate, because the
compiler decides which values it keeps and for how long. Its factors were fitted to programs compiled for a CPU in
float32, where no part of attention is fused away (`benchmarks/forecast.py` prints their error).

Axes: B prompts, G completions each, N = B × G, P prompt slots, T completion slots; b prompts and n completions of a
micro-batch.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ConfigError
from agent_tunix.planning.cache_plan import plan_cache
from agent_tunix.planning.known_models import plannable_architecture
from agent_tunix.policy.architecture import DELTA_CHUNK, Architecture
from agent_tunix.policy.files.teacher import has_teacher_model, is_initial_policy, teacher_model
from agent_tunix.policy.files.tensors import CODE_BITS, Tensor, block_size, list_tensors
from agent_tunix.policy.module_names import adapter_pattern, matches

ONE_DEVICE = MeshShape(1, 1, 1)
# Usable share of a device's memory. The rest is for the compiler's own buffers and for fragmentation.
USABLE_MEMORY = 0.9
# Numbers in the logits of a chunk of tokens (`chunk_tokens`): 16 MB in float32.
CHUNK_NUMBERS = 1 << 22

_FLOAT32 = 4
# Float32 numbers that an optimiser keeps for each trained number. Adafactor's rows and columns are negligible.
_MOMENTS = {"adamw": 2, "adafactor": 0, "lion": 1, "muon": 2, "sgd": 1}
# Fitted factors. The first four count the numbers that a layer keeps of a token for its backward pass, in units of the
# residual stream, the queries, the keys and the MLP's width. The fifth counts those kept per attention probability.
# _REMAT_BACKWARD is the factor for the backward pass of a recomputed layer, and _EXPERTS_BACKWARD that of a layer with
# experts, which permutes the copies of tokens once more. _UPDATE_LOGITS and _SAMPLING_LOGITS count the copies of logits
# that exist at once: of a chunk in the update, and of all rows in sampling.
_KEPT_HIDDEN, _KEPT_QUERIES, _KEPT_KEYS, _KEPT_INNER, _KEPT_SHARES = 4.5, 6.5, 5.0, 7.0, 1.3
_REMAT_BACKWARD, _EXPERTS_BACKWARD = 1.25, 2.15
# Fitted factors of the float32 numbers that linear attention keeps of a token, in units of: the channels of its
# convolution, the keys and the values of all heads, and each head's part of a chunk and of the states between chunks.
_KEPT_CHANNELS, _KEPT_LINEAR_KEYS, _KEPT_LINEAR_VALUES, _KEPT_CHUNK, _KEPT_STATES = 7.0, 11.0, 8.0, 6.5, 3.0
_UPDATE_LOGITS, _SAMPLING_LOGITS = 2.0, 4.5


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes of each part on one device."""

    weights: int  # weights of the policy, quantised or not, without adapter
    adapter: int  # A and B of every adapted projection
    reference: int  # the reference policy's own copy of what trains; 0 without a KL penalty
    teacher: int  # weights of the teacher, less those that it shares with policy or reference
    judge: int  # weights of the judges' models, less those shared with the policy
    # The optimiser's moments of all that trains, and the sum of gradients if an update has several micro-batches.
    optimizer: int
    # During sampling: keys and values of a step's prompts and completions, or of an evaluation's if those are larger.
    cache: int
    sampling: int  # during sampling: a layer that reads the prompts, and the logits of the tokens to draw
    judging: int  # while a judge's model is sampled: its keys and values, and a layer that reads the questions
    # During an update: the gradient of all that trains, and the old weights, kept in case the update is not finite.
    gradients: int
    activations: int  # during an update: what the layers keep of a micro-batch for the backward pass
    recomputed: int  # during an update with rematerialisation: the activations of the one layer that is computed again
    logits: int  # during an update: logits of a chunk of tokens and their gradient, and a copy of the output matrix

    @property
    def held(self) -> int:
        """Bytes held throughout the run."""
        return self.weights + self.adapter + self.reference + self.teacher + self.judge + self.optimizer

    @property
    def while_sampling(self) -> int:
        """Bytes that sampling adds."""
        return self.cache + self.sampling

    @property
    def while_updating(self) -> int:
        """Bytes that an update adds at the peak of its backward pass.

        The backward pass begins with the logits; then activations are freed as gradients are added.
        """
        return max(self.activations + max(self.logits, self.recomputed), self.gradients + self.recomputed)

    @property
    def total(self) -> int:
        """The peak of the run. Sampling is over when judging begins, and judging when an update begins."""
        return self.held + max(self.while_sampling, self.judging, self.while_updating)

    def for_sampling(self) -> "MemoryPlan":
        """Return the plan without the parts that training needs."""
        trained = ("reference", "teacher", "judge", "optimizer", "gradients", "activations", "recomputed", "logits")
        return replace(self, **dict.fromkeys((*trained, "judging"), 0))

    def describe(self) -> str:
        """Return one line with every part in GB."""
        parts = {name: value for name, value in vars(self).items() if value}
        return ", ".join(f"{name} {gigabytes(value)}" for name, value in parts.items())


def plan_memory(
    architecture: Architecture,
    config: Config,
    compute_bytes: int,
    shape: MeshShape = ONE_DEVICE,
    judges: Sequence[Config] = (),
) -> MemoryPlan:
    """Return the memory plan of one device of a mesh.

    Args:
        architecture: Architecture of the policy.
        config: Configuration of the run. Its `model.mesh_shape` is ignored. With an engine, nothing is sampled here.
        compute_bytes: Bytes of a number in the type that the policy computes in: 4 or 2.
        shape: Shape of the mesh.
        judges: The models of judges, each as a policy that only samples.
    """
    a, model = architecture, config.model
    plans = [(judge.model, _judge_plan(judge, compute_bytes, shape)) for judge in judges]
    of_judges = {str(judge): 0 if shares_base(judge, config) else plan.weights for judge, plan in plans}
    tensors = list_tensors(a)
    weights = sum(_weight_bytes(tensor, model, compute_bytes, shape) for tensor in tensors)
    pattern = adapter_pattern(model, a)
    adapter = sum(_adapter_bytes(tensor, model, shape) for tensor in tensors if _is_adapted(tensor, model, pattern))
    trained = adapter if model.lora_rank > 0 else weights
    batch, group = config.training.batch_size, config.grpo.num_generations
    prompt = prompt_tokens(config)
    prompts, completions = shape.rows_per_device(batch), shape.rows_per_device(batch * group)
    numbers_read = prompts * prompt * _numbers_read(a, shape) + prompts * _part(a.num_heads, shape.tp) * prompt**2
    layer = _layer_bytes(a, config, compute_bytes, shape)
    linear = _linear_layer_bytes(a, config, compute_bytes, shape)
    activations = a.num_attention_layers * layer + a.num_linear_layers * linear
    reference = trained if config.grpo.beta != 0.0 else 0
    accumulates = micro_batch_size(config) < batch
    samples = config.engine.name == "none"
    return MemoryPlan(
        weights=weights,
        adapter=adapter,
        reference=reference,
        teacher=_teacher_bytes(config, compute_bytes, shape, trained, reference),
        judge=sum(of_judges.values()),
        judging=max((plan.while_sampling for _, plan in plans), default=0),
        optimizer=(_MOMENTS[config.optimizer.kind] + accumulates) * trained,
        cache=plan_cache(a, config, compute_bytes, shape) if samples else 0,
        sampling=numbers_read * compute_bytes
        + round(_SAMPLING_LOGITS * completions * _part(a.vocab_size, shape.tp) * _FLOAT32)
        if samples
        else 0,
        gradients=2 * trained,
        activations=a.num_layers * _input_bytes(a, config, compute_bytes, shape) if model.remat else activations,
        recomputed=round((_EXPERTS_BACKWARD if a.num_experts else _REMAT_BACKWARD) * max(layer, linear))
        if model.remat
        else 0,
        logits=_logits_bytes(a, config, compute_bytes, shape),
    )


def _teacher_bytes(config: Config, compute_bytes: int, shape: MeshShape, trained: int, reference: int) -> int:
    if not has_teacher_model(config):
        return 0
    if is_initial_policy(config):
        return 0 if reference and config.grpo.reference_sync_steps == 0 else trained
    tensors = list_tensors(plannable_architecture(teacher_model(config)))
    return sum(_count(tensor, shape) for tensor in tensors) * compute_bytes


def shares_base(judge: ModelConfig, config: Config) -> bool:
    """Return True if a judge's model has the weights of the frozen base of the policy, and need not be loaded."""
    model = config.model
    of_policy, of_judge = ((one.path, one.quantization, one.dtype) for one in (model, judge))
    return model.lora_rank > 0 and of_policy == of_judge


def _judge_plan(judge: Config, compute_bytes: int, shape: MeshShape) -> MemoryPlan:
    number_bytes = {"float32": 4, "bfloat16": 2}.get(judge.model.dtype, compute_bytes)
    return plan_memory(plannable_architecture(judge.model), judge, number_bytes, shape)


def _part(size: int, devices: int) -> int:
    """Return `size / devices`, or `size` if the number of devices does not divide it."""
    return size // devices if size % devices == 0 else size


def _is_adapted(tensor: Tensor, model: ModelConfig, pattern: str) -> bool:
    return model.lora_rank > 0 and tensor.path[-1] == "kernel" and matches(pattern, tensor.name.removesuffix(".weight"))


def _count(tensor: Tensor, shape: MeshShape) -> int:
    # Vectors are copied to every device.
    return math.prod(tensor.shape) // (shape.fsdp * shape.tp if len(tensor.shape) == 2 else 1)


def _weight_bytes(tensor: Tensor, model: ModelConfig, compute_bytes: int, shape: MeshShape) -> int:
    count = _count(tensor, shape)
    if model.lora_rank == 0:
        return count * _FLOAT32
    if model.quantization is None or tensor.path[-1] != "kernel" or tensor.path[0] != "layers":
        return count * compute_bytes
    inputs = tensor.shape[1]
    return count * CODE_BITS[model.quantization] // 8 + count // block_size(inputs) * _FLOAT32


def _adapter_bytes(tensor: Tensor, model: ModelConfig, shape: MeshShape) -> int:
    """Return the bytes of an adapter: A is divided like the inputs of its projection, B like the outputs."""
    outputs, inputs = tensor.shape
    # `tp` divides the inputs of projections that write to the residual stream, and the outputs of those that read it.
    leads_back = tensor.path[-2] in ("o_proj", "out_proj", "down_proj")
    of_inputs, of_outputs = (shape.tp, shape.fsdp) if leads_back else (shape.fsdp, shape.tp)
    return model.lora_rank * (inputs // of_inputs + outputs // of_outputs) * _FLOAT32


def _widths(a: Architecture, shape: MeshShape) -> tuple[int, int, int]:
    """Return the widths of a device's queries, keys and MLP, averaged over the layers.

    With experts, the last is the width of all experts of a token. The copies of a token before and after its experts
    count as a third of their width each, because a token has three numbers in each place of an MLP.
    """
    heads, kv_heads = _part(a.num_heads, shape.tp), _part(a.num_kv_heads, shape.tp)
    head_dim = sum(map(a.head_dim_of, range(a.num_layers))) // a.num_layers
    of_experts = a.num_experts_per_token * (a.moe_intermediate_size + 2 * a.hidden_size // 3)
    inner = sum(_part(a.mlp_size_of(layer), shape.tp) for layer in range(a.num_layers)) // a.num_layers
    return heads * head_dim, kv_heads * head_dim, (of_experts or inner) + a.layer_embedding_size


def _numbers_read(a: Architecture, shape: MeshShape) -> int:
    """Return the numbers of a token that exist at once while a layer reads it."""
    queries, keys, inner = _widths(a, shape)
    return 2 * a.hidden_size + 2 * queries + 2 * keys + 3 * inner


def _layer_bytes(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes that a layer keeps of a micro-batch: its intermediate values and attention probabilities.

    The probabilities are in float32. A prompt is read once, and its completions attend to it.
    """
    queries, keys, inner = _widths(a, shape)
    of_token = _KEPT_HIDDEN * a.hidden_size + _KEPT_QUERIES * queries + _KEPT_KEYS * keys + _KEPT_INNER * inner
    prompts, completions, prompt, completion = _micro_batch(config, shape)
    tokens = prompts * prompt + completions * completion
    shares = prompts * prompt**2 + completions * completion * (completion + prompt)
    return round(tokens * of_token * compute_bytes + _KEPT_SHARES * shares * _part(a.num_heads, shape.tp) * _FLOAT32)


def _linear_layer_bytes(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes that a layer with linear attention keeps of a micro-batch; 0 if the model has none."""
    if a.delta_net is None:
        return 0
    sizes, heads = a.delta_net, _part(a.delta_net.value_heads, shape.tp)
    of_chunk = _KEPT_CHUNK * DELTA_CHUNK + _KEPT_STATES * sizes.key_dim * sizes.value_dim / DELTA_CHUNK
    of_heads = heads * (_KEPT_LINEAR_KEYS * sizes.key_dim + _KEPT_LINEAR_VALUES * sizes.value_dim + of_chunk)
    of_mixing = (_KEPT_CHANNELS * _part(sizes.conv_channels, shape.tp) + of_heads) * _FLOAT32
    of_rest = (_KEPT_HIDDEN * a.hidden_size + _KEPT_INNER * _part(a.intermediate_size, shape.tp)) * compute_bytes
    prompts, completions, prompt, completion = _micro_batch(config, shape)
    return round((prompts * prompt + completions * completion) * (of_mixing + of_rest))


def _micro_batch(config: Config, shape: MeshShape) -> tuple[int, int, int, int]:
    """Return a device's b and n, and P and T."""
    size = micro_batch_size(config)
    lengths = prompt_tokens(config), episode_tokens(config)
    return shape.rows_per_device(size), shape.rows_per_device(size * config.grpo.num_generations), *lengths


def _input_bytes(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> int:
    """Return the bytes of the residual stream of a micro-batch before a layer."""
    prompts, completions, prompt, completion = _micro_batch(config, shape)
    return (prompts * prompt + completions * completion) * a.hidden_size * compute_bytes


def _logits_bytes(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> int:
    _, completions, _, completion = _micro_batch(config, shape)
    tokens, chunk = completions * completion, chunk_tokens(a)
    logits = round(_UPDATE_LOGITS * min(chunk, tokens) * a.vocab_size * _FLOAT32)
    # Without chunks, no copy of the output matrix is made.
    return logits + (_part(a.vocab_size, shape.tp) * a.hidden_size * compute_bytes if tokens > chunk else 0)


def chunk_tokens(a: Architecture, *, on_tpu: bool = False) -> int:
    """Return the number of tokens whose logits exist at once in an update (`grpo/logps.py`).

    Each chunk reads the whole output matrix. With a large vocabulary, 16 MB of logits would be a few tokens, and most
    of the time would go into reading. A chunk may therefore have up to a quarter of that matrix's numbers, on a TPU as
    many: its compiler keeps one copy of the logits, in bfloat16, which needs as much memory as two in float32 of a
    quarter.
    """
    return max(1, CHUNK_NUMBERS // a.vocab_size, a.hidden_size if on_tpu else a.hidden_size // 4)


def check_memory(plan: MemoryPlan, available: int, *, trains: bool = True) -> str | None:
    """Return a warning if the plan exceeds the memory, or None if it fits.

    Args:
        plan: Plan of the run.
        available: Bytes of a device.
        trains: False for a policy that only samples, whose batches may be smaller than planned.

    Raises:
        ConfigError: What is held throughout, with the keys and values of a run, exceeds the memory: these are exact.
    """
    least = plan.held + (plan.cache if trains else 0)
    if least > available:
        raise ConfigError(
            f"the weights, and the keys and values of sampling, alone need {gigabytes(least)}, but only "
            f"{gigabytes(available)} are available: {plan.describe()}. {_ADVICE}",
            code="not_enough_memory",
        )
    if plan.total > available:
        return (
            f"the run may need about {gigabytes(plan.total)}, but only {gigabytes(available)} are available: "
            f"{plan.describe()}. {_ADVICE}"
        )
    return None


_ADVICE = (
    "To use less: model.lora_rank=16 (no optimiser state or reference of the base), model.quantization=nf4,"
    " model.dtype=bfloat16, model.remat=true, a smaller training.micro_batch_size, fewer or shorter completions at once"
    " (training.batch_size, grpo.num_generations, evaluation.batch_size, generation.max_generation_steps), or more"
    " devices along fsdp or tp of model.mesh_shape"
)


def host_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or less if a control group limits it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(file).read_text()))
        except (OSError, ValueError):
            continue
    return total


def gigabytes(count: int) -> str:
    """Return a size as text, such as `1.19 GB`; sizes below 0.1 GB in MB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
