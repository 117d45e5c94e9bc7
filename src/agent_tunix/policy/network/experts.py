"""A mixture of experts (https://arxiv.org/abs/1701.06538) in place of a layer's MLP, as Qwen 3 computes it.

A router gives each token a distribution over the experts. The token goes through the K likeliest, whose outputs are
added with their probabilities as weights. Few tokens, as in sampling, go through all experts, because that takes no
longer than reading the weights. Many tokens are sorted by expert, so that each expert multiplies its own tokens only.

On a mesh, `tp` divides the experts. Each device computes the share of its own experts in the output of its rows, and
the shares are added.

Axes: B rows, T tokens given, N = B × T tokens, D hidden, E experts (or those of a device), K experts of a token, F
width of an expert.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.mesh import TENSOR, row_axes, sharding_over
from agent_tunix.policy.network.projection import Projection

# Up to this many tokens, an accelerator takes longer to read the matrices than to multiply by them.
FEW_TOKENS = 256
# Rows that an expert multiplies at once.
_BLOCK = 128


class ExpertLoad(NamedTuple):
    """Sums over some tokens, for each expert of a layer, or of several layers.

    Attributes:
        tokens: [E] or [layers, E], tokens that went through the expert.
        probabilities: The same shape, the router's probabilities of the expert.
    """

    tokens: jax.Array
    probabilities: jax.Array

    def describe(self) -> dict[str, jax.Array]:
        """Return `expert_load_max` and `expert_balance_loss`, means over layers; both are 1 if the load is balanced.

        With the share f of the tokens' choices that fall on an expert and the mean p of its probabilities, these are
        E · max f, and E · Σ f p, the auxiliary loss of https://arxiv.org/abs/2101.03961.
        """
        num_experts = self.tokens.shape[-1]
        f, p = (sums / jnp.maximum(sums.sum(axis=-1, keepdims=True), 1e-9) for sums in self)
        return {
            "expert_load_max": num_experts * f.max(axis=-1).mean(),
            "expert_balance_loss": num_experts * (f * p).sum(axis=-1).mean(),
        }


class MixtureOfExperts(nnx.Module):
    """A router and its experts."""

    def __init__(self, config: Architecture, **kinds: Any) -> None:
        """Create a mixture with random weights.

        Args:
            config: The architecture.
            kinds: Types and keys.
        """
        self.config = config
        self.gate = Projection(config.hidden_size, config.num_experts, ("fsdp", "tp"), **kinds)
        self.experts = Experts(config, **kinds)

    def __call__(
        self, x: Float[Array, "B T D"], counted: Bool[Array, "B T"] | None
    ) -> tuple[Float[Array, "B T D"], ExpertLoad | None]:
        """Return the weighted sum of the experts' outputs, and their load.

        Args:
            x: Normed hidden states.
            counted: Tokens that the load counts; None to return none.
        """
        config = self.config
        logits = self.gate(x)
        probabilities = jax.nn.softmax(logits.astype(jnp.promote_types(logits.dtype, jnp.float32)))
        weights, chosen = jax.lax.top_k(probabilities, config.num_experts_per_token)
        if config.norm_topk_prob:
            weights = weights / weights.sum(axis=-1, keepdims=True)
        load = None
        if counted is not None:
            choices = jax.nn.one_hot(chosen, config.num_experts).sum(axis=2)
            masked = (jnp.where(counted[..., None], each, 0.0) for each in (choices, probabilities))
            load = ExpertLoad(*(jax.lax.stop_gradient(each.sum(axis=(0, 1))) for each in masked))
        return self.experts(x, weights.astype(logits.dtype), chosen), load


class Experts(nnx.Module):
    """Gated linear units, whose matrices lie in stacks.

    Attributes:
        gate_proj: [E, D, F].
        up_proj: [E, D, F].
        down_proj: [E, F, D].
        mesh: Mesh of the weights; None for one device.
    """

    def __init__(self, config: Architecture, *, dtype: jnp.dtype, param_dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        """Create small random weights."""
        E, D, F = config.num_experts, config.hidden_size, config.moe_intermediate_size
        self.dtype = dtype
        self.mesh: jax.sharding.Mesh | None = None

        def stack(*shape: int, axes: tuple[str | None, ...]) -> Any:
            weights = jax.nn.initializers.normal(0.02)(rngs.params(), (E, *shape), param_dtype)
            return nnx.Param(weights, out_sharding=(TENSOR, *axes))

        self.gate_proj = stack(D, F, axes=("fsdp", None))
        self.up_proj = stack(D, F, axes=("fsdp", None))
        self.down_proj = stack(F, D, axes=(None, "fsdp"))

    def __call__(
        self, x: Float[Array, "B T D"], weights: Float[Array, "B T K"], chosen: Int[Array, "B T K"]
    ) -> Float[Array, "B T D"]:
        """Return the weighted sum of the chosen experts' outputs."""
        stacks = [stack[...].astype(self.dtype) for stack in (self.gate_proj, self.up_proj, self.down_proj)]
        if self.mesh is None or self.mesh.size == 1:
            return _run_experts(x, weights, chosen, *stacks)
        rows, experts = (
            sharding_over(self.mesh, axes).spec for axes in (row_axes(self.mesh, x.shape[0]) or None, TENSOR)
        )
        run: Any = jax.shard_map(
            functools.partial(_run_experts, axis=TENSOR),
            mesh=self.mesh,
            in_specs=(*[rows] * 3, *[experts] * 3),
            out_specs=rows,
            # JAX 0.10 treats the result of `argsort` as equal on all devices, and would not add their gradients of x.
            check_vma=False,
        )
        out: jax.Array = run(x, weights, chosen, *stacks)
        return out


def _run_experts(
    x: Float[Array, "B T D"],
    weights: Float[Array, "B T K"],
    chosen: Int[Array, "B T K"],
    gate: Float[Array, "E D F"],
    up: Float[Array, "E D F"],
    down: Float[Array, "E F D"],
    axis: str | None = None,
) -> Float[Array, "B T D"]:
    """Return the weighted sum of the chosen experts' outputs.

    Args:
        x: Hidden states.
        weights: Weights of the chosen experts.
        chosen: Numbers of the chosen experts.
        gate: Matrices of the gates.
        up: Matrices beside the gates.
        down: Matrices of the outputs.
        axis: Mesh axis that divides the experts; None if all are here.
    """
    first = 0 if axis is None else jax.lax.axis_index(axis) * gate.shape[0]
    tokens = x.reshape(-1, x.shape[-1])
    run = _run_all if len(tokens) <= FEW_TOKENS else _run_sorted
    K = chosen.shape[-1]
    out = run(tokens, weights.reshape(-1, K), chosen.reshape(-1, K) - first, gate, up, down)
    if axis is not None:
        out = jax.lax.psum(out, axis)  # type: ignore[no-untyped-call]
    return out.reshape(x.shape)


def _run_all(
    x: Float[Array, "N D"],
    weights: Float[Array, "N K"],
    chosen: Int[Array, "N K"],
    gate: Float[Array, "E D F"],
    up: Float[Array, "E D F"],
    down: Float[Array, "E F D"],
) -> Float[Array, "N D"]:
    """Return the weighted sum of the outputs of all experts. Experts that are not chosen have the weight 0."""
    weights = (jax.nn.one_hot(chosen, len(gate), dtype=x.dtype) * weights[..., None]).sum(axis=1)
    inner = jax.nn.silu(jnp.einsum("ti,eio->teo", x, gate)) * jnp.einsum("ti,eio->teo", x, up)
    return jnp.einsum("tei,eio->to", inner * weights[..., None], down)


def _run_sorted(
    x: Float[Array, "N D"],
    weights: Float[Array, "N K"],
    chosen: Int[Array, "N K"],
    gate: Float[Array, "E D F"],
    up: Float[Array, "E D F"],
    down: Float[Array, "E F D"],
) -> Float[Array, "N D"]:
    """Return the output of the chosen experts, each of which multiplies its own tokens.

    A token is copied once for each of its experts. The copies are permuted before the products and back after them, so
    that gradients are permuted too and not scattered: a GPU scatters in no fixed order.
    """
    (N, K), E = chosen.shape, len(gate)
    # Tokens of other devices' experts come last and belong to no group. Their rows of the products are ignored.
    experts = jnp.where((chosen >= 0) & (chosen < E), chosen, E).reshape(-1)
    order = jnp.argsort(experts)
    own = (experts[order] < E)[:, None]
    sizes = jnp.bincount(experts, length=E + 1)[:E].astype(jnp.int32)
    copies = jnp.where(own, _permute(jnp.repeat(x, K, axis=0), order), 0)
    inner = jax.nn.silu(multiply_groups(copies, gate, sizes)) * multiply_groups(copies, up, sizes)
    out = jnp.where(own, multiply_groups(inner, down, sizes), 0)
    return (_permute(out, jnp.argsort(order)).reshape(N, K, -1) * weights[..., None]).sum(axis=1)


def _permute(x: Float[Array, "M D"], order: Int[Array, " M"]) -> Float[Array, "M D"]:
    return x.at[order].get(unique_indices=True, mode="promise_in_bounds")


@jax.custom_vjp
def multiply_groups(
    x: Float[Array, "M I"], stack: Float[Array, "E I O"], sizes: Int[Array, " E"]
) -> Float[Array, "M O"]:
    """Return the products of groups of rows, each with its own matrix: `jax.lax.ragged_dot`.

    Except on TPUs, JAX 0.10 multiplies all rows by all matrices, and copies the rows for each matrix first. Other
    devices therefore multiply blocks of rows, one after the other.

    Args:
        x: Rows, those of a group side by side.
        stack: Matrices.
        sizes: Rows of each group. The result is undefined for rows after the last group.
    """
    out: jax.Array = jax.lax.platform_dependent(x, stack, sizes, tpu=jax.lax.ragged_dot, default=_multiply_blocks)
    return out


def _multiply_forward(x: jax.Array, stack: jax.Array, sizes: jax.Array) -> tuple[jax.Array, Any]:
    return multiply_groups(x, stack, sizes), (x, stack, sizes)


def _multiply_backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    x, stack, sizes = kept
    return multiply_groups(gradient, stack.swapaxes(1, 2), sizes), _add_blocks(x, gradient, stack, sizes), None


multiply_groups.defvjp(_multiply_forward, _multiply_backward)


def _multiply_blocks(x: jax.Array, stack: jax.Array, sizes: jax.Array) -> jax.Array:
    experts, starts, _ = _divide(sizes, len(x))
    rows = jnp.pad(x, ((0, _BLOCK), (0, 0)))

    def multiply(n: Any, out: jax.Array) -> jax.Array:
        block = jax.lax.dynamic_slice_in_dim(rows, starts[n], _BLOCK)
        # The last block of a group may go on into the next group, whose own blocks come later and replace that part.
        return jax.lax.dynamic_update_slice_in_dim(out, block @ stack[experts[n]], starts[n], axis=0)

    out: jax.Array = jnp.zeros((len(rows), stack.shape[-1]), x.dtype)
    out = jax.lax.fori_loop(0, len(starts), multiply, out)
    return out[: len(x)]


def _add_blocks(x: jax.Array, gradient: jax.Array, stack: jax.Array, sizes: jax.Array) -> jax.Array:
    """Return the gradient of the matrices."""
    experts, starts, stops = _divide(sizes, len(x))
    left, right = (jnp.pad(rows, ((0, _BLOCK), (0, 0))) for rows in (x, gradient))
    wide = jnp.promote_types(stack.dtype, jnp.float32)

    def add(n: Any, out: jax.Array) -> jax.Array:
        own = (starts[n] + jnp.arange(_BLOCK) < stops[n])[:, None]
        a, b = (jnp.where(own, jax.lax.dynamic_slice_in_dim(rows, starts[n], _BLOCK), 0) for rows in (left, right))
        return out.at[experts[n]].add(jnp.matmul(a.T, b, preferred_element_type=wide))

    out: jax.Array = jax.lax.fori_loop(0, len(starts), add, jnp.zeros(stack.shape, wide))
    return out.astype(stack.dtype)


def _divide(sizes: Int[Array, " E"], num_rows: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the expert, the first row and the end of the group for each of the maximum number of blocks.

    Blocks that are not needed begin after the last row.
    """
    ends, blocks = jnp.cumsum(sizes), -(-sizes // _BLOCK)
    last = jnp.cumsum(blocks)
    n = jnp.arange(num_rows // _BLOCK + len(sizes))
    experts = jnp.minimum(jnp.searchsorted(last, n, side="right"), len(sizes) - 1)
    starts = (ends - sizes)[experts] + (n - (last - blocks)[experts]) * _BLOCK
    return experts, jnp.where(n < last[-1], starts, num_rows), ends[experts]
