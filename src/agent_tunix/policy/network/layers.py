"""A layer of the decoder: attention or DeltaNet, and MLP or mixture of experts; its inputs, outputs or both are normed.

Axes: B rows (N if they continue a prefix), T tokens given, S tokens attended to, D hidden.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.mesh import TENSOR, divide
from agent_tunix.policy.network.attention import (
    Groups,
    RowMask,
    attend,
    attend_after,
    attend_in_groups,
    attend_rows,
    wide,
)
from agent_tunix.policy.network.deltanet import GatedDeltaNet
from agent_tunix.policy.network.experts import ExpertLoad, MixtureOfExperts
from agent_tunix.policy.network.norms import RMSNorm, rms_norm
from agent_tunix.policy.network.projection import Projection, Scale
from agent_tunix.policy.network.rotation import Angles, rotate
from agent_tunix.policy.network.row_kernel import RowKernel

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


class DecoderLayer(nnx.Module):
    """Attention or DeltaNet, and MLP or mixture of experts, each added to the residual stream."""

    def __init__(self, config: Architecture, layer: int, matrices: dict[str, Any], **kinds: Any) -> None:
        """Create a layer with random weights.

        Args:
            config: The architecture.
            layer: Number of the layer, from 0.
            matrices: Arguments of projections: types, keys and quantisation.
            kinds: Arguments of all other modules: types and keys.
        """
        self.is_linear = config.layer_kinds[layer] == "linear_attention"
        if self.is_linear:
            self.linear_attn = GatedDeltaNet(config, matrices, **kinds)
        else:
            self.self_attn = Attention(config, layer, matrices, **kinds)
        self.mlp = (
            MixtureOfExperts(config, **kinds)
            if config.has_experts(layer)
            else MLP(config, config.mlp_size_of(layer), matrices)
        )
        self.input_norms, self.output_norms = config.input_norms, config.output_norms
        if self.input_norms:
            self.input_layernorm = RMSNorm(config.hidden_size, config, **kinds)
        # The files use this name twice: with norms of outputs the norm follows attention, else it precedes the MLP.
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config, **kinds)
        if self.output_norms:
            if self.input_norms:
                self.pre_feedforward_layernorm = RMSNorm(config.hidden_size, config, **kinds)
            self.post_feedforward_layernorm = RMSNorm(config.hidden_size, config, **kinds)
        if config.layer_embedding_size:
            sizes = config.hidden_size, config.layer_embedding_size
            self.activation = config.activation
            self.per_layer_input_gate = Projection(*sizes, ("fsdp", "tp"), **matrices)
            self.per_layer_projection = Projection(*sizes[::-1], ("tp", "fsdp"), **matrices)
            self.post_per_layer_input_norm = RMSNorm(config.hidden_size, config, **kinds)
        self.layer_scalar = Scale(jnp.ones((1,), kinds["param_dtype"])) if config.layer_scalars else None

    def __call__(
        self,
        x: Float[Array, "B T D"],
        angles: Angles | None,
        mask: Any,
        cache: Any,
        prefix: Any,
        lent: Any = None,
        embedded: Float[Array, "B T E"] | None = None,
        counted: Bool[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T D"], Any, ExpertLoad | None]:
        """Compute the layer.

        Args:
            x: The residual stream.
            angles: Angles of the rotary embedding; None for none.
            mask: Tokens that each token may see; for linear attention, the tokens that are not padding.
            cache: Keys and values of the cache and the slot of the first token, or the state; None without a cache.
            prefix: Keys and values of a prefix and the mask over it, or the state after it; None without a prefix.
            lent: Keys and values that another layer returned, for a layer without its own.
            embedded: The layer's own embeddings of the tokens, for families that have them.
            counted: Tokens to count in the load of experts; None to count none.

        Returns:
            The residual stream, the keys and values if there is a cache or the layer lends them, and the load.
        """
        normed = self.input_layernorm(x) if self.input_norms else x
        if self.is_linear:
            attended, kept = self.linear_attn(normed, angles, mask, cache, prefix)
        else:
            attended, kept = self.self_attn(normed, angles, mask, cache, prefix, lent)
        if self.output_norms:
            x = x + self.post_attention_layernorm(attended)
            normed = self.pre_feedforward_layernorm(x) if self.input_norms else x
            out, load = self._feed(normed, counted)
            x = x + self.post_feedforward_layernorm(out)
        else:
            x = x + attended
            out, load = self._feed(self.post_attention_layernorm(x), counted)
            x = x + out
        if embedded is not None:
            gate = _ACTIVATIONS[self.activation](self.per_layer_input_gate(x))
            x = x + self.post_per_layer_input_norm(self.per_layer_projection(gate * embedded))
        if self.layer_scalar is not None:
            x = x * self.layer_scalar[...].astype(x.dtype)
        return x, kept, load

    def _feed(self, x: jax.Array, counted: jax.Array | None) -> tuple[jax.Array, ExpertLoad | None]:
        return (self.mlp(x), None) if isinstance(self.mlp, MLP) else self.mlp(x, counted)


class Attention(nnx.Module):
    """Grouped-query attention (https://arxiv.org/abs/2305.13245), with rotary positions unless a layer has none."""

    def __init__(self, config: Architecture, layer: int, matrices: dict[str, Any], **kinds: Any) -> None:
        """Create the attention of a layer with random weights.

        Args:
            config: The architecture.
            layer: Number of the layer, from 0.
            matrices: Arguments of projections: types, keys and quantisation.
            kinds: Arguments of all other modules: types and keys.
        """
        self.config = config
        self.kind = config.layer_kinds[layer]
        self.head_dim = config.head_dim_of(layer)
        self.lends = config.lends(layer)
        self.mesh: jax.sharding.Mesh | None = None
        hidden, queries = config.hidden_size, config.num_heads * self.head_dim
        keys = config.num_kv_heads * self.head_dim
        self.q_proj = Projection(
            hidden, (1 + config.attention_gate) * queries, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices
        )
        self.o_proj = Projection(queries, hidden, ("tp", "fsdp"), **matrices)

        def norm(size: int) -> RMSNorm | None:
            return RMSNorm(size if config.joint_qk_norm else self.head_dim, config, **kinds) if config.qk_norm else None

        self.q_norm = norm(queries)
        if not config.is_borrowing(layer):
            self.k_proj = Projection(hidden, keys, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices)
            self.v_proj = Projection(hidden, keys, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices)
            self.k_norm = norm(keys)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        angles: Angles | None,
        mask: Bool[Array, "B T S"] | Groups | RowMask,
        cache: Any,
        prefix: Any,
        lent: Any,
    ) -> tuple[Float[Array, "B T D"], Any]:
        """Return the attention's output, and all keys and values if there is a cache or this layer lends them."""
        B, T, _ = x.shape
        q, gate = self.q_proj(x), None
        if self.config.attention_gate:
            # Each head of the projection is a query and a gate.
            halves = jnp.split(q.reshape(B, T, -1, 2 * self.head_dim), 2, axis=-1)
            q, gate = (each.reshape(B, T, -1) for each in halves)
        q = self._turn(self._by_heads(q, self.q_norm), angles)
        q = q * jnp.asarray(self.config.query_scale, q.dtype)
        k, v = self._keys_and_values(x, angles) if lent is None else lent
        softcap = self.config.attention_softcap
        window = self.config.window if self.kind == "sliding_attention" else None
        kernel = RowKernel(softcap, window, self.mesh)
        if isinstance(mask, Groups):
            out = attend_in_groups(q, k, v, mask, kernel)
            return self._write(out, gate), (k, v) if self.lends else None
        if lent is None:
            k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
            if cache is not None:
                keys, values, slot = cache
                k = jax.lax.dynamic_update_slice_in_dim(keys, k.astype(keys.dtype), slot, axis=2)
                v = jax.lax.dynamic_update_slice_in_dim(values, v.astype(values.dtype), slot, axis=2)
        if isinstance(mask, RowMask):
            out = attend_rows(q, k, v, mask, prefix, kernel)
        elif prefix is None:
            out = attend(q, k, v, mask, softcap)
        else:
            out = attend_after(q, k, v, mask, prefix, softcap)
        is_kept = lent is None and (cache is not None or self.lends)
        return self._write(out, gate), (k, v) if is_kept else None

    def _write(self, out: Float[Array, "B T Q H"], gate: Float[Array, "B T QH"] | None) -> Float[Array, "B T D"]:
        """Return the contribution of the heads' outputs to the residual stream."""
        out = out.reshape(*out.shape[:2], -1)
        written: jax.Array = self.o_proj(out if gate is None else out * jax.nn.sigmoid(gate))
        return written

    def _keys_and_values(self, x: Float[Array, "B T D"], angles: Angles | None) -> tuple[jax.Array, jax.Array]:
        k = self._turn(self._by_heads(self.k_proj(x), self.k_norm), angles)
        v = self._by_heads(self.v_proj(x))
        if self.config.value_norm:
            ones = jnp.ones(self.head_dim, wide(v.dtype))
            v = rms_norm(v.astype(ones.dtype), ones, self.config.norm_eps).astype(v.dtype)
        return k, v

    def _turn(self, x: Float[Array, "B T N H"], angles: Angles | None) -> Float[Array, "B T N H"]:
        return x if angles is None else rotate(x, angles)

    def _by_heads(self, x: Float[Array, "B T NH"], norm: RMSNorm | None = None) -> Float[Array, "B T N H"]:
        """Return the output of a projection, normed if there is a norm, with whole heads divided over `tp`.

        Projections are divided by width, which may cut a head in two. If `tp` does not divide the number of heads,
        every device has all of them. If there are fewer key-value heads than devices, each device has all of them, but
        only its own queries.
        """
        joint = self.config.joint_qk_norm
        if norm is not None and joint:
            x = norm(x)
        x = divide(self.mesh, x.reshape(*x.shape[:2], -1, self.head_dim), None, TENSOR)
        return x if norm is None or joint else norm(x)


class MLP(nnx.Module):
    """A gated linear unit (https://arxiv.org/abs/2002.05202)."""

    def __init__(self, config: Architecture, inner: int, matrices: dict[str, Any]) -> None:
        """Create the MLP of a layer with random weights.

        Args:
            config: The architecture.
            inner: Width inside the MLP.
            matrices: Arguments of projections: types, keys and quantisation.
        """
        hidden = config.hidden_size
        self.gate_proj = Projection(hidden, inner, ("fsdp", "tp"), **matrices)
        self.up_proj = Projection(hidden, inner, ("fsdp", "tp"), **matrices)
        self.down_proj = Projection(inner, hidden, ("tp", "fsdp"), **matrices)
        self.activation = config.activation

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Return down(act(gate(x)) * up(x))."""
        out: jax.Array = self.down_proj(_ACTIVATIONS[self.activation](self.gate_proj(x)) * self.up_proj(x))
        return out
