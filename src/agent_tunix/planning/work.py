"""The work of a step: operations of each phase and bytes that it reads and sends; loads no JAX.

The counts follow the program. A prompt is read once for its G completions: in sampling, in the passes of the reference
policy and of the teacher, and in the update. Attention is computed for all slots, masked ones included. An update goes
through frozen matrices twice, forward and backward, and through trained ones three times. The backward pass computes
logits again.

Lengths are the maximum, `generation.max_prompt_length` and `max_generation_steps`. A step with shorter texts does less
work, because arrays are cut to the texts.

Axes: B prompts, G completions each, N = B × G, P prompt slots, T completion slots.
"""

import math
from dataclasses import dataclass

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.config.episodes import episode_tokens, prompt_tokens
from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.planning.cache_plan import slot_bytes, state_bytes
from agent_tunix.planning.known_models import plannable_architecture
from agent_tunix.planning.memory import plan_memory
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.files.teacher import SELF, is_initial_policy, teacher_model
from agent_tunix.policy.files.tensors import Tensor, list_tensors

_FLOAT32 = 4
# Times that logits go through memory in sampling: one write, and reads for the choice and for the log-probability.
_LOGITS_PASSES = 3


@dataclass(frozen=True)
class WorkEstimate:
    """The work of one phase."""

    flops: float  # floating-point operations of all devices; a multiply-add counts as two
    read: float  # bytes that a device reads from its memory
    sent: float  # bytes that a device sends to others
    layers: int = 0  # layers in sequence, of passes that are too short to hide the start of their kernels


@dataclass(frozen=True)
class Counts:
    """Floating-point operations of a forward pass, by the quantity they are proportional to."""

    of_token: float  # operations in the layers' matrices, and in recurrent states, for each token
    of_pair: float  # operations of attention for each pair of a token and a token it may see
    of_logits: float  # operations for the logits of one token


def count_operations(architecture: Architecture, lora_rank: int = 0) -> Counts:
    """Return the operations of a forward pass, with an adapter of the given rank on every matrix that may have one."""
    a = architecture
    matrices = [t for t in list_tensors(a) if t.transposed and t.path[0] != "lm_head"]
    adapted = [t for t in matrices if not a.num_experts or "self_attn" in t.path]
    with_keys = [layer for layer, kind in enumerate(a.layer_kinds) if kind != "linear_attention"]
    of_states = 0.0
    if a.delta_net is not None:
        # A state decays, is read for the correction, corrected, and read for the output.
        state = a.delta_net.value_heads * a.delta_net.key_dim * a.delta_net.value_dim
        of_states = a.num_linear_layers * (7.0 * state + 2.0 * a.delta_net.conv_width * a.delta_net.conv_channels)
    return Counts(
        of_token=2.0 * (_count(matrices, a)[1] + lora_rank * sum(sum(t.shape) for t in adapted)) + of_states,
        of_pair=4.0 * a.num_heads * sum(map(a.head_dim_of, with_keys)),
        of_logits=2.0 * a.hidden_size * a.vocab_size,
    )


def count_weights(architecture: Architecture) -> tuple[int, int]:
    """Return the number of weights of a model, and of those that one token uses: of the experts, only its own."""
    return _count(list_tensors(architecture), architecture)


def _count(tensors: list[Tensor], a: Architecture) -> tuple[int, int]:
    of_experts = sum(math.prod(t.shape) for t in tensors if t.of_expert)
    total = sum(math.prod(t.shape) for t in tensors)
    unused = of_experts * (a.num_experts - a.num_experts_per_token) // a.num_experts if of_experts else 0
    return total, total - unused


def work_of_sampling(
    a: Architecture, config: Config, compute_bytes: int, shape: MeshShape, *, prompts: int, group: int, batches: int = 1
) -> dict[str, WorkEstimate]:
    """Return the work of reading B prompts (`prefill`) and of drawing G completions of each, token by token (`decode`).

    Args:
        a: Architecture of the policy.
        config: Configuration of the run, which gives the lengths.
        compute_bytes: Bytes of a number in the type that the policy computes in.
        shape: Shape of the mesh.
        prompts: B.
        group: G.
        batches: Number of consecutive batches of the prompts. Each batch reads all weights.
    """
    counts = count_operations(a, config.model.lora_rank)
    P, T = prompt_tokens(config), episode_tokens(config)
    N = prompts * group
    gathered = _gathered_weights(a, config, compute_bytes, shape)
    cache = (prompts * P + N * T) / shape.row_shards * slot_bytes(a, compute_bytes, shape)
    cache += 2 * N / shape.row_shards * state_bytes(a, compute_bytes, shape)  # a state is read and written
    logits = _LOGITS_PASSES * N / shape.row_shards * a.vocab_size / shape.tp * _FLOAT32
    return {
        "prefill": WorkEstimate(
            flops=prompts * P * counts.of_token + prompts * P**2 * counts.of_pair + N * counts.of_logits,
            read=batches * gathered,
            sent=batches * _sent_weights(gathered, shape) + _sent_tokens(a, compute_bytes, shape, prompts * P),
        ),
        "decode": WorkEstimate(
            flops=N * T * (counts.of_token + counts.of_logits + (P + T) * counts.of_pair),
            read=T * (batches * gathered + cache + logits),
            sent=T * batches * _sent_weights(gathered, shape) + _sent_tokens(a, compute_bytes, shape, N * T),
            layers=T * batches * a.num_layers,
        ),
    }


def work_of_step(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> dict[str, WorkEstimate]:
    """Return the work of each phase of a step: prefill, decode, reference (with a KL penalty), teacher and update.

    With an engine, the first two are not here.
    """
    model = config.model
    B, G = config.training.batch_size, config.grpo.num_generations
    P, T = prompt_tokens(config), episode_tokens(config)
    N = B * G
    counts = count_operations(a, model.lora_rank)
    frozen = model.lora_rank > 0
    micro_batches = B // micro_batch_size(config)
    tokens = B * P + N * T
    layers, attention = tokens * counts.of_token, (B * P**2 + N * T * (P + T)) * counts.of_pair
    # An upper bound for frozen matrices: on one device, chunks of logits are not computed again for the backward pass.
    logits = N * T * counts.of_logits
    gathered = _gathered_weights(a, config, compute_bytes, shape)
    one_way = _sent_tokens(a, compute_bytes, shape, tokens)
    phases = {}
    if config.engine.name == "none":
        phases = work_of_sampling(a, config, compute_bytes, shape, prompts=B, group=G)
    if config.grpo.beta != 0.0:
        phases["reference"] = _work_of_pass(a, config, compute_bytes, shape, model.lora_rank, gathered)
    if config.grpo.teacher is not None and (config.grpo.teacher == SELF or is_initial_policy(config)):
        phases["teacher"] = _work_of_pass(a, config, compute_bytes, shape, model.lora_rank, gathered, of_teacher=True)
    elif config.grpo.teacher is not None:
        teacher = plannable_architecture(teacher_model(config))
        of_teacher = plan_memory(a, config, compute_bytes, MeshShape(1, 1, shape.tp)).teacher
        phases["teacher"] = _work_of_pass(teacher, config, compute_bytes, shape, 0, of_teacher, of_teacher=True)
    passes = 3 if model.remat else 2
    trained = plan_memory(a, config, compute_bytes, shape).gradients / 2
    updates = config.grpo.num_iterations
    phases["update"] = WorkEstimate(
        flops=updates
        * (
            layers * ((2 if frozen else 3) + model.remat)
            + attention * (3 + model.remat)
            + logits * (3 if frozen else 4)
        ),
        read=updates * micro_batches * passes * gathered,
        sent=updates
        * (
            micro_batches * (passes * _sent_weights(gathered, shape) + 2 * trained * (shape.row_shards > 1))
            + passes * one_way
        ),
    )
    return phases


def _work_of_pass(
    a: Architecture,
    config: Config,
    compute_bytes: int,
    shape: MeshShape,
    lora_rank: int,
    gathered: float,
    *,
    of_teacher: bool = False,
) -> WorkEstimate:
    """Return the work of a forward pass of a model over the completions of a step, with all logits.

    A teacher with prompts of its own has one for each completion. It is taken to be longer by a completion.
    """
    B, N = config.training.batch_size, config.training.batch_size * config.grpo.num_generations
    P, T = prompt_tokens(config), episode_tokens(config)
    if of_teacher and (config.grpo.teacher == SELF or config.grpo.teacher_prompt is not None):
        B, P = N, P + T
    counts = count_operations(a, lora_rank)
    micro_batches = config.training.batch_size // micro_batch_size(config)
    tokens, pairs = B * P + N * T, B * P**2 + N * T * (P + T)
    return WorkEstimate(
        flops=tokens * counts.of_token + pairs * counts.of_pair + N * T * counts.of_logits,
        read=micro_batches * gathered,
        sent=micro_batches * _sent_weights(gathered, shape) + _sent_tokens(a, compute_bytes, shape, tokens),
    )


def _gathered_weights(a: Architecture, config: Config, compute_bytes: int, shape: MeshShape) -> float:
    """Return the bytes of weights that a device reads in a pass: its part along `tp`, gathered over `fsdp`."""
    return plan_memory(a, config, compute_bytes, MeshShape(1, 1, shape.tp)).weights


def _sent_weights(gathered: float, shape: MeshShape) -> float:
    """Return the bytes that the other devices of `fsdp` send in a pass."""
    return gathered * (shape.fsdp - 1) / shape.fsdp


def _sent_tokens(a: Architecture, compute_bytes: int, shape: MeshShape, tokens: int) -> float:
    """Return the bytes of the sums over `tp` after attention and after the MLP of each layer."""
    of_sum = 2 * (shape.tp - 1) / shape.tp * a.hidden_size * compute_bytes
    return 2 * a.num_layers * of_sum * tokens / shape.row_shards
