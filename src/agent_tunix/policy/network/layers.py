"""A layer of the decoder: attention and MLP or mixture of experts, whose inputs, outputs or both are normed.

Axes: B rows (N if they continue a prefix), T tokens given, S tokens attended to, D hidden.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from agent_tunix.policy.architecture import Architecture, LayerKind
from agent_tunix.policy.mesh import TENSOR, divide
from agent_tunix.policy.network.attention import Groups, attend, attend_after, attend_in_groups
from agent_tunix.policy.network.experts import ExpertLoad, MixtureOfExperts
from agent_tunix.policy.network.norms import RMSNorm
from agent_tunix.policy.network.projection import Projection
from agent_tunix.policy.network.rotation import Angles, rotate

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True),
}


class DecoderLayer(nnx.Module):
    """Attention and MLP or mixture of experts, each added to the residual stream."""

    def __init__(self, config: Architecture, number: int, matrices: dict[str, Any], **kinds: Any) -> None:
        """Create a layer with random weights.

        Args:
            config: The architecture.
            number: Number of the layer, from 0.
            matrices: Arguments of projections: types, keys and quantisation.
            kinds: Arguments of all other modules: types and keys.
        """
        self.self_attn = Attention(config, config.layer_kinds[number], matrices, **kinds)
        self.mlp = MixtureOfExperts(config, **kinds) if config.has_experts(number) else MLP(config, matrices)
        self.input_norms, self.output_norms = config.input_norms, config.output_norms
        if self.input_norms:
            self.input_layernorm = RMSNorm(config.hidden_size, config, **kinds)
        # The files' name means two things: among norms of outputs this one follows attention, else it precedes the MLP.
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config, **kinds)
        if self.output_norms:
            if self.input_norms:
                self.pre_feedforward_layernorm = RMSNorm(config.hidden_size, config, **kinds)
            self.post_feedforward_layernorm = RMSNorm(config.hidden_size, config, **kinds)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        angles: Angles | None,
        mask: Bool[Array, "B T S"] | Groups,
        cache: Any,
        prefix: Any,
        counted: Bool[Array, "B T"] | None,
    ) -> tuple[Float[Array, "B T D"], Any, ExpertLoad | None]:
        """Return the residual stream after this layer, its keys and values, and the load of experts."""
        normed = self.input_layernorm(x) if self.input_norms else x
        attended, cache = self.self_attn(normed, angles, mask, cache, prefix)
        if not self.output_norms:
            x = x + attended
            out, load = self._feed(self.post_attention_layernorm(x), counted)
            return x + out, cache, load
        x = x + self.post_attention_layernorm(attended)
        normed = self.pre_feedforward_layernorm(x) if self.input_norms else x
        out, load = self._feed(normed, counted)
        return x + self.post_feedforward_layernorm(out), cache, load

    def _feed(self, x: jax.Array, counted: jax.Array | None) -> tuple[jax.Array, ExpertLoad | None]:
        return (self.mlp(x), None) if isinstance(self.mlp, MLP) else self.mlp(x, counted)


class Attention(nnx.Module):
    """Grouped-query attention (https://arxiv.org/abs/2305.13245), with rotary positions unless a layer has none."""

    def __init__(self, config: Architecture, kind: LayerKind, matrices: dict[str, Any], **kinds: Any) -> None:
        """Create the attention of a layer with random weights.

        Args:
            config: The architecture.
            kind: Kind of attention.
            matrices: Arguments of projections: types, keys and quantisation.
            kinds: Arguments of all other modules: types and keys.
        """
        self.config = config
        self.kind = kind
        self.mesh: jax.sharding.Mesh | None = None
        hidden, queries = config.hidden_size, config.num_heads * config.head_dim
        keys = config.num_kv_heads * config.head_dim
        self.q_proj = Projection(hidden, queries, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices)
        self.k_proj = Projection(hidden, keys, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices)
        self.v_proj = Projection(hidden, keys, ("fsdp", "tp"), use_bias=config.qkv_bias, **matrices)
        self.o_proj = Projection(queries, hidden, ("tp", "fsdp"), **matrices)
        if config.qk_norm:
            self.q_norm = RMSNorm(queries if config.joint_qk_norm else config.head_dim, config, **kinds)
            self.k_norm = RMSNorm(keys if config.joint_qk_norm else config.head_dim, config, **kinds)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        angles: Angles | None,
        mask: Bool[Array, "B T S"] | Groups,
        cache: Any,
        prefix: Any,
    ) -> tuple[Float[Array, "B T D"], Any]:
        """Return the attention's output, and all keys and values if there is a cache."""
        B, T, _ = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.config.joint_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (self._by_heads(each.reshape(B, T, -1, self.config.head_dim)) for each in (q, k, v))
        if self.config.qk_norm and not self.config.joint_qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if angles is not None:
            q, k = rotate(q, angles), rotate(k, angles)
        q = q * jnp.asarray(self.config.query_scale, q.dtype)
        if isinstance(mask, Groups):
            out = attend_in_groups(q, k, v, mask, self.config.attention_softcap)
            return self.o_proj(out.reshape(B, T, -1)), None
        k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
        if cache is not None:
            keys, values, slot = cache
            k = jax.lax.dynamic_update_slice_in_dim(keys, k.astype(keys.dtype), slot, axis=2)
            v = jax.lax.dynamic_update_slice_in_dim(values, v.astype(values.dtype), slot, axis=2)
        if prefix is None:
            out = attend(q, k, v, mask, self.config.attention_softcap)
        else:
            out = attend_after(q, k, v, mask, prefix, self.config.attention_softcap)
        return self.o_proj(out.reshape(B, T, -1)), None if cache is None else (k, v)

    def _by_heads(self, x: jax.Array) -> jax.Array:
        """Divide whole heads over `tp`, or give every device all heads if their number is uneven.

        Projections are divided by width, which may cut a head in two. If there are fewer key-value heads than devices,
        each device has all of them, but only its own queries.
        """
        return divide(self.mesh, x, None, TENSOR)


class MLP(nnx.Module):
    """A gated linear unit (https://arxiv.org/abs/2002.05202)."""

    def __init__(self, config: Architecture, matrices: dict[str, Any]) -> None:
        """Create the MLP of a layer with random weights.

        Args:
            config: The architecture.
            matrices: Arguments of projections: types, keys and quantisation.
        """
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = Projection(hidden, inner, ("fsdp", "tp"), **matrices)
        self.up_proj = Projection(hidden, inner, ("fsdp", "tp"), **matrices)
        self.down_proj = Projection(inner, hidden, ("tp", "fsdp"), **matrices)
        self.activation = config.activation

    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Return down(act(gate(x)) * up(x))."""
        out: jax.Array = self.down_proj(_ACTIVATIONS[self.activation](self.gate_proj(x)) * self.up_proj(x))
        return out
