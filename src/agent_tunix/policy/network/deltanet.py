"""Gated DeltaNet (https://arxiv.org/abs/2412.06464): linear attention, whose state does not grow with the text.

The state S of a head maps keys to values. At each token S decays by α. Then the value that S holds for the token's key
k moves towards the token's value v, by a share β. The query q reads S:

    S_t = α_t (I - β_t k_t k_tᵀ) S_{t-1} + β_t k_t v_tᵀ        o_t = S_tᵀ q_t

S is kept as [keys, values], the transpose of the paper's. Queries, keys and values go through a short causal
convolution first, so a layer also carries its last inputs. Queries and keys have length 1, and queries are
divided by the root of their width.

Several tokens are computed in chunks (section 3.3 of the paper): all products within a chunk are parallel, and only the
state goes from chunk to chunk. One token is one step of the recurrence.

Padding changes neither state nor convolution. It may come after a row's tokens, or before the first token of a text.

Axes: B rows (N if they continue a prefix), T tokens given, D hidden, J key heads, H value heads, K width of a key, V
width of a value, E = 2 J K + H V channels of the convolution, W its width, L tokens of a chunk.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from agent_tunix.policy.architecture import DELTA_CHUNK, Architecture, DeltaNetSizes
from agent_tunix.policy.mesh import TENSOR, divide
from agent_tunix.policy.network.attention import wide
from agent_tunix.policy.network.norms import RMSNorm
from agent_tunix.policy.network.projection import Projection

_EPS = 1e-6  # in the length of queries and keys


class LinearState(NamedTuple):
    """The memory of a layer, for each row's text.

    Attributes:
        memory: S of each head, at least float32.
        recent: The last W - 1 inputs of the convolution; zeros before the text.
    """

    memory: Float[Array, "B H K V"]
    recent: Float[Array, "B W-1 E"]


class JoinedRows(NamedTuple):
    """Masks of the tokens that are not padding, for B texts and for the N rows that continue them, N / B for each."""

    texts: Bool[Array, "B P"]
    rows: Bool[Array, "N T"]


class GatedDeltaNet(nnx.Module):
    """The layer's part that mixes tokens; it takes the place of attention."""

    def __init__(self, config: Architecture, matrices: dict[str, Any], **kinds: Any) -> None:
        """Create the part with random weights.

        Args:
            config: The architecture.
            matrices: Arguments of projections: types, keys and quantisation.
            kinds: Arguments of all other modules: types and keys.
        """
        assert config.delta_net is not None
        self.sizes = sizes = config.delta_net
        self.mesh: jax.sharding.Mesh | None = None
        self.dtype = kinds["dtype"]
        hidden, values, heads = config.hidden_size, sizes.value_heads * sizes.value_dim, sizes.value_heads
        self.in_proj_qkv = Projection(hidden, sizes.conv_channels, ("fsdp", "tp"), **matrices)
        self.in_proj_z = Projection(hidden, values, ("fsdp", "tp"), **matrices)
        self.in_proj_b = Projection(hidden, heads, ("fsdp", "tp"), **matrices)
        self.in_proj_a = Projection(hidden, heads, ("fsdp", "tp"), **matrices)
        self.out_proj = Projection(values, hidden, ("tp", "fsdp"), **matrices)
        self.conv1d = Convolution(sizes, kinds["param_dtype"], kinds["rngs"])
        self.dt_bias = nnx.Param(jnp.ones((heads,), kinds["param_dtype"]))
        self.A_log = nnx.Param(jnp.zeros((heads,), kinds["param_dtype"]))
        self.norm = RMSNorm(sizes.value_dim, replace(config, norm_offset=0.0), **{**kinds, "dtype": wide(self.dtype)})

    def __call__(
        self,
        x: Float[Array, "B T D"],
        angles: Any,
        filled: Bool[Array, "B T"] | JoinedRows,
        cache: LinearState | None,
        prefix: LinearState | None,
    ) -> tuple[Float[Array, "B T D"], LinearState | None]:
        """Return the part's output, and the next state if there is a cache.

        Args:
            x: Normed hidden states.
            angles: Not used; positions are not rotated.
            filled: True where a token is not padding.
            cache: State of each row; None if the rows begin here.
            prefix: State after the texts that the rows continue, if there is no cache.
        """
        inputs = self.in_proj_qkv(x), *self._rates(x)
        state = None
        if isinstance(filled, JoinedRows):
            N, P = len(filled.rows), filled.texts.shape[1]
            texts, rows = [each[:, :P] for each in inputs], [each[:, P:] for each in inputs]
            rows = [each.reshape(N, -1, each.shape[-1]) for each in rows]
            out_texts, after = self._mix(texts, filled.texts, self.initial_state(len(x)))
            out_rows, _ = self._mix(rows, filled.rows, repeat_rows(after, N))
            out = jnp.concatenate([out_texts, out_rows.reshape(len(x), -1, *out_rows.shape[2:])], axis=1)
        elif cache is not None:
            out, state = self._mix(inputs, filled, cache)
        else:
            start = self.initial_state(len(x)) if prefix is None else repeat_rows(prefix, len(x))
            out, _ = self._mix(inputs, filled, start)
        gate = self.in_proj_z(x).reshape(out.shape)
        gated = self.norm(out) * jax.nn.silu(gate.astype(out.dtype))
        return self.out_proj(gated.reshape(*x.shape[:2], -1)), state

    def initial_state(self, num_rows: int) -> LinearState:
        """Return the state of rows before their first token."""
        sizes = self.sizes
        memory = jnp.zeros((num_rows, sizes.value_heads, sizes.key_dim, sizes.value_dim), wide(self.dtype))
        recent = jnp.zeros((num_rows, sizes.conv_width - 1, sizes.conv_channels), self.dtype)
        return LinearState(divide(self.mesh, memory, TENSOR), divide(self.mesh, recent))

    def _rates(self, x: Float[Array, "B T D"]) -> tuple[Float[Array, "B T H"], Float[Array, "B T H"]]:
        """Return log α and β of each token."""
        number = wide(self.dtype)
        speed = jnp.exp(self.A_log[...].astype(number))
        log_decay = -speed * jax.nn.softplus(self.in_proj_a(x).astype(number) + self.dt_bias[...].astype(number))
        return log_decay, jax.nn.sigmoid(self.in_proj_b(x)).astype(number)

    def _mix(
        self, inputs: Sequence[jax.Array], filled: Bool[Array, "B T"], state: LinearState
    ) -> tuple[Float[Array, "B T H V"], LinearState]:
        """Return each token's reading of the state, and the state after the last token.

        Args:
            inputs: Inputs of the convolution, log α and β, each [B, T, ...].
            filled: True where a token is not padding.
            state: State before the first token.
        """
        qkv, log_decay, rate = inputs
        sizes, (B, T, _) = self.sizes, qkv.shape
        # With α = 1 and β = 0 a token leaves the state as it is.
        filled = jnp.broadcast_to(filled, (B, T))
        log_decay, rate = (jnp.where(filled[..., None], each, 0.0) for each in (log_decay, rate))
        mixed, recent = self.conv1d(jnp.where(filled[..., None], qkv, 0.0), filled, state.recent)
        keys = sizes.key_heads * sizes.key_dim
        q, k, v = jnp.split(mixed, [keys, 2 * keys], axis=-1)
        q, k = (_unit(each.reshape(B, T, -1, sizes.key_dim)) for each in (q, k))
        # A head of keys serves neighbouring heads of values.
        q, k = (jnp.repeat(each, sizes.value_heads // sizes.key_heads, axis=2) for each in (q, k))
        q, v = q * sizes.key_dim**-0.5, v.reshape(B, T, -1, sizes.value_dim)
        q, k, v, log_decay, rate = (
            divide(self.mesh, each, None, TENSOR).swapaxes(1, 2) for each in (q, k, v, log_decay, rate)
        )
        rule = delta_step if T == 1 else delta_chunks
        out, memory = rule(q, k, v, log_decay, rate, state.memory)
        return out.swapaxes(1, 2), LinearState(memory, recent)


class Convolution(nnx.Module):
    """A causal convolution of each channel, and SiLU."""

    def __init__(self, sizes: DeltaNetSizes, param_dtype: jnp.dtype, rngs: nnx.Rngs) -> None:
        """Create random weights, in the layout of the files.

        Args:
            sizes: Sizes of the layer.
            param_dtype: Type of the weights.
            rngs: Keys of the random weights.
        """
        shape = (sizes.conv_channels, 1, sizes.conv_width)
        weight = jax.nn.initializers.normal(0.02)(rngs.params(), shape, param_dtype)
        self.weight = nnx.Param(weight, out_sharding=(None, None, None))

    def __call__(
        self, x: Float[Array, "B T E"], filled: Bool[Array, "B T"], recent: Float[Array, "B W-1 E"]
    ) -> tuple[Float[Array, "B T E"], Float[Array, "B W-1 E"]]:
        """Return the output of each token, at least in float32, and the last inputs."""
        weight = self.weight[...].astype(wide(x.dtype))
        T, W = x.shape[1], weight.shape[-1]
        inputs = jnp.concatenate([recent.astype(x.dtype), x], axis=1)
        out = sum(inputs[:, w : w + T].astype(weight.dtype) * weight[:, 0, w] for w in range(W))
        # The inputs up to the last token; a row without tokens keeps those it had.
        end = jnp.where(filled, jnp.arange(1, T + 1), 0).max(axis=1)
        last = jnp.take_along_axis(inputs, (end[:, None] + jnp.arange(W - 1))[..., None], axis=1)
        return jax.nn.silu(out), last.astype(recent.dtype)


def repeat_rows(state: LinearState, num_rows: int) -> LinearState:
    """Return the state of each text for all rows that continue it, which lie side by side."""
    return LinearState(*(jnp.repeat(x, num_rows // len(x), axis=0) for x in state))


def delta_step(
    q: Float[Array, "B H 1 K"],
    k: Float[Array, "B H 1 K"],
    v: Float[Array, "B H 1 V"],
    log_decay: Float[Array, "B H 1"],
    rate: Float[Array, "B H 1"],
    memory: Float[Array, "B H K V"],
) -> tuple[Float[Array, "B H 1 V"], Float[Array, "B H K V"]]:
    """Return the output of one token, and the state after it."""
    memory = memory * jnp.exp(log_decay)[..., None]
    error = (v - k @ memory) * rate[..., None]
    memory = memory + k.swapaxes(-1, -2) * error
    return q @ memory, memory


def delta_chunks(
    q: Float[Array, "B H T K"],
    k: Float[Array, "B H T K"],
    v: Float[Array, "B H T V"],
    log_decay: Float[Array, "B H T"],
    rate: Float[Array, "B H T"],
    memory: Float[Array, "B H K V"],
) -> tuple[Float[Array, "B H T V"], Float[Array, "B H K V"]]:
    """Return the outputs of all tokens, and the state after the last.

    Let γ_i be the product of α up to token i of a chunk, and S the state before the chunk. Then the state after token i
    is γ_i S + Σ_{j≤i} γ_i/γ_j k_j u_jᵀ with u_i = β_i (v_i - γ_i Sᵀ k_i - Σ_{j<i} γ_i/γ_j (k_i·k_j) u_j). The u of a
    chunk solve a triangular system. Its solutions for v and for the reading of S do not depend on S.
    """
    T = q.shape[2]
    L = min(DELTA_CHUNK, T)

    def by_chunk(x: jax.Array) -> jax.Array:
        """Return [chunks, B, H, L, …]; added tokens have α = 1 and β = 0."""
        x = jnp.pad(x, ((0, 0), (0, 0), (0, -T % L), *[(0, 0)] * (x.ndim - 3)))
        return jnp.moveaxis(x.reshape(*x.shape[:2], -1, L, *x.shape[3:]), 2, 0)

    q, k, v, log_decay, rate = map(by_chunk, (q, k, v, log_decay, rate))
    log_decay = jnp.cumsum(log_decay, axis=-1)
    causal = jnp.tril(jnp.ones((L, L), jnp.bool_))
    # A quotient of two later γ may overflow, so it is masked before the exponential.
    ratio = jnp.exp(jnp.where(causal, log_decay[..., :, None] - log_decay[..., None, :], -jnp.inf))
    decay = jnp.exp(log_decay)[..., None]
    scaled = k * rate[..., None]
    system = scaled @ k.swapaxes(-1, -2) * ratio
    sides = jnp.concatenate([v * rate[..., None], scaled * decay], axis=-1)
    of_values, of_state = jnp.split(invert_unit_lower(system) @ sides, [v.shape[-1]], axis=-1)
    shares = q @ k.swapaxes(-1, -2) * ratio
    remaining = jnp.exp(log_decay[..., -1:] - log_decay)[..., None]

    def step(memory: jax.Array, chunk: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        q, k, of_values, of_state, shares, decay = chunk
        u = of_values - of_state @ memory
        out = q @ memory + shares @ u
        return memory * decay + k.swapaxes(-1, -2) @ u, out

    chunks = q * decay, k * remaining, of_values, of_state, shares, decay[..., -1:, :]
    memory, out = jax.lax.scan(step, memory, chunks)
    out = jnp.moveaxis(out, 0, 2)
    return out.reshape(*out.shape[:2], -1, out.shape[-1])[:, :, :T], memory


@jax.custom_vjp
def invert_unit_lower(matrix: Float[Array, "... L L"]) -> Float[Array, "... L L"]:
    """Return the inverse of a lower triangular matrix, whose diagonal counts as 1 and whose upper part as 0.

    The inverse of [[A, 0], [C, D]] is [[A⁻¹, 0], [-D⁻¹ C A⁻¹, D⁻¹]]. All blocks on the diagonal are inverted at once,
    those of 2 rows from those of 1, and so on. JAX's own solver is not used: two of its calls at once block each other
    forever on a CPU of two cores (JAX 0.10.2).
    """
    L = matrix.shape[-1]
    row, column = jnp.arange(L)[:, None], jnp.arange(L)
    inverse = jnp.broadcast_to(jnp.eye(L, dtype=matrix.dtype), matrix.shape)
    size = 1
    while size < L:
        corner = (row // (2 * size) == column // (2 * size)) & (row // size > column // size)
        inverse = inverse - _multiply(_multiply(inverse, jnp.where(corner, matrix, 0.0)), inverse)
        size *= 2
    return inverse


def _invert_forward(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    inverse = invert_unit_lower(matrix)
    return inverse, inverse


def _invert_backward(inverse: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
    turned = inverse.swapaxes(-1, -2)
    return (-jnp.tril(_multiply(_multiply(turned, gradient), turned), -1),)


invert_unit_lower.defvjp(_invert_forward, _invert_backward)


def _multiply(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return a product in full precision, because each is multiplied again."""
    return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)


def _unit(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + _EPS)
