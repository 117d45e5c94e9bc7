"""Softmax attention: of texts to themselves, to a cache, and of rows to a prefix that they share.

Keys and values have their heads before their slots, [B, K, S, H]. A matrix product takes its batch axes first, so with
any other layout a decode step would copy the whole cache to transpose it. Queries of heads that share keys lie side by
side. Together with the queries of several tokens they form the rows of one product.

Axes: B rows (N if they continue a prefix, R for each of B texts), T tokens given, P slots of a prefix, L = P + R T of a
text and all its continuations, S slots attended to, Q heads, K key-value heads, G = Q / K, M = T G, H width of a head.
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agent_tunix.policy.network.row_kernel import RowKernel, is_long, put_before

# Far below any logit but finite, so that the softmax of a fully masked row is defined.
_UNSEEN = -(2.0**100)

# Above this number of logits (16 MB), a CPU computes attention for a few rows at a time.
_CACHED_LOGITS = 2**22
# Minimum queries of a row in a block, and maximum number of blocks. Each block is compiled separately.
_SMALLEST_BLOCK, _MOST_BLOCKS = 64, 8

# cuDNN's limits in JAX 0.10.2, on any GPU since Ampere.
_CUDNN_DTYPES = ("bfloat16", "float16")
_CUDNN_WIDEST_HEAD = 128
_CUDNN_CAPABILITY = 8.0


class RowMask(NamedTuple):
    """Mask of rows that continue a prefix, over their own tokens.

    A token sees itself and each earlier token of its row, within the window of its layer.

    Attributes:
        mask: [N, T, T].
    """

    mask: Bool[Array, "N T T"]


class Groups(NamedTuple):
    """Masks for B texts and the R rows that continue each, all side by side.

    Each of the B rows of an array holds the P slots of a text and the R T slots of its continuations.

    Attributes:
        texts: [B, P, P], mask of a text's tokens over its own tokens.
        rows: [N, T, T], mask of a row's tokens over its own tokens.
        shared: [B, R, T, P], mask of a row's tokens over the text that it continues. R and T may be 1 if all are equal.
    """

    texts: Bool[Array, "B P P"]
    rows: Bool[Array, "N T T"]
    shared: Bool[Array, "B R T P"]


def attend(
    q: Float[Array, "B T Q H"],
    k: Float[Array, "B K S H"],
    v: Float[Array, "B K S H"],
    mask: Bool[Array, "B T S"],
    softcap: float | None,
) -> Float[Array, "B T Q H"]:
    """Compute softmax attention of scaled queries.

    A token that may see nothing gets an arbitrary mean of values, which must not be used.
    """
    B, T, Q, H = q.shape
    K, S = k.shape[1:3]
    if uses_cudnn(q.dtype, T, S, H, softcap, gpu_capability()):
        return fused(q, k, v, mask, "cudnn")
    logits = _cap(jnp.einsum("BKMH,BKSH->BKMS", _by_head(q, K), k, preferred_element_type=wide(q.dtype)), softcap)
    logits = jnp.where(mask[:, None, :, None], logits.reshape(B, K, T, Q // K, S), _UNSEEN)
    shares = jax.nn.softmax(logits, axis=-1).astype(v.dtype).reshape(B, K, -1, S)
    return _by_token(jnp.einsum("BKMS,BKSH->BKMH", shares, v), T)


def fused(
    q: Float[Array, "B T Q H"],
    k: Float[Array, "B K S H"],
    v: Float[Array, "B K S H"],
    mask: Bool[Array, "B T S"],
    implementation: Literal["xla", "cudnn"],
) -> Float[Array, "B T Q H"]:
    """Compute `attend` without softcap by JAX's own function, which uses one kernel if cuDNN implements it."""
    return jax.nn.dot_product_attention(
        q, k.swapaxes(1, 2), v.swapaxes(1, 2), mask=mask[:, None], scale=1.0, implementation=implementation
    )


def uses_cudnn(
    dtype: jnp.dtype, num_queries: int, num_keys: int, head_dim: int, softcap: float | None, capability: float | None
) -> bool:
    """Return True if cuDNN has a forward and backward kernel for an attention. All arguments are known at compile time.

    Args:
        dtype: Type of queries, keys and values.
        num_queries: T. With a mask cuDNN's backward pass supports only even numbers.
        num_keys: S. It must be even too.
        head_dim: H.
        softcap: Bound on logits, which cuDNN does not support.
        capability: Compute capability of the GPU; None without a GPU that has cuDNN.
    """
    return (
        capability is not None
        and capability >= _CUDNN_CAPABILITY
        and jnp.dtype(dtype).name in _CUDNN_DTYPES
        and softcap is None
        and head_dim <= _CUDNN_WIDEST_HEAD
        and head_dim % 8 == 0
        and num_queries % 2 == 0
        and num_keys % 2 == 0
    )


def gpu_capability() -> float | None:
    """Return the compute capability of the first GPU, or None if JAX does not compute on an NVIDIA GPU."""
    if jax.default_backend() != "gpu":
        return None
    found = getattr(jax.devices()[0], "compute_capability", None)
    try:
        return None if found is None else float(found)
    except ValueError:  # AMD's capabilities are names
        return None


def attend_after(
    q: Float[Array, "N T Q H"],
    k: Float[Array, "N K S H"],
    v: Float[Array, "N K S H"],
    mask: Bool[Array, "N T S"],
    prefix: tuple[Float[Array, "B K P H"], Float[Array, "B K P H"], Bool[Array, "B R T P"]],
    softcap: float | None,
) -> Float[Array, "N T Q H"]:
    """Compute attention to a prefix that R rows share, and to each row's own keys.

    The softmax is over both. The logits of the two parts keep the layout in which they are computed. Only maxima, sums
    and outputs, which are small, are rearranged (the idea of https://arxiv.org/abs/2506.05433).

    Two results of cuDNN are not merged here, although JAX returns their log-sum-exps on request. In JAX 0.10.2 the
    backward pass silently drops the gradient of a log-sum-exp, and the log-sum-exp itself is in bfloat16.
    """
    prefix_k, prefix_v, prefix_mask = prefix
    N, T, Q, H = q.shape
    B, K, P, _ = prefix_k.shape
    S, R, G = k.shape[2], N // B, Q // K
    number = wide(q.dtype)
    own = _cap(jnp.einsum("NKMH,NKSH->NKMS", _by_head(q, K), k, preferred_element_type=number), softcap)
    own = jnp.where(mask[:, None, :, None], own.reshape(N, K, T, G, S), _UNSEEN).reshape(N, K, -1, S)
    q_shared = _by_head(q.reshape(B, R * T, Q, H), K)
    shared = _cap(jnp.einsum("BKMH,BKPH->BKMP", q_shared, prefix_k, preferred_element_type=number), softcap)
    shared = shared.reshape(B, K, R, T, G, P)
    shared = jnp.where(prefix_mask[:, None, :, :, None], shared, _UNSEEN).reshape(B, K, -1, P)

    def to_rows(x: Float[Array, "B K RM ..."]) -> Float[Array, "N K M ..."]:
        rest = x.shape[3:]
        return x.reshape(B, K, R, T * G, *rest).swapaxes(1, 2).reshape(N, K, T * G, *rest)

    def to_groups(x: Float[Array, "N K M"]) -> Float[Array, "B K RM"]:
        return x.reshape(B, R, K, T * G).swapaxes(1, 2).reshape(B, K, -1)

    highest = jax.lax.stop_gradient(jnp.maximum(own.max(-1), to_rows(shared.max(-1))))
    own = jnp.exp(own - highest[..., None])
    shared = jnp.exp(shared - to_groups(highest)[..., None])
    total = own.sum(-1) + to_rows(shared.sum(-1))
    out = jnp.einsum("NKMS,NKSH->NKMH", own.astype(v.dtype), v, preferred_element_type=number)
    out_shared = jnp.einsum("BKMP,BKPH->BKMH", shared.astype(v.dtype), prefix_v, preferred_element_type=number)
    return _by_token((out + to_rows(out_shared)) / total[..., None], T).astype(v.dtype)


def attend_rows(
    q: Float[Array, "N T Q H"],
    k: Float[Array, "N K T H"],
    v: Float[Array, "N K T H"],
    mask: RowMask,
    prefix: tuple[Float[Array, "B K P H"], Float[Array, "B K P H"], Bool[Array, "B R T P"]],
    kernel: RowKernel,
) -> Float[Array, "N T Q H"]:
    """Compute `attend_after` for rows that are read whole, in the way that suits the platform.

    The platform is that of the lowering, not of this machine. XLA does not compute the other branches.
    """
    (N, T, Q, H), (B, _, P, _) = q.shape, prefix[0].shape
    args = q, k, v, mask.mask, prefix
    if is_long(T) and uses_cudnn(q.dtype, T, P + T, H, kernel.softcap, gpu_capability()):
        in_prefix = jnp.broadcast_to(prefix[2], (B, N // B, T, P)).reshape(N, T, P)
        whole_mask = jnp.concatenate([in_prefix, mask.mask], axis=2)
        return fused(q, put_before(prefix[0], k), put_before(prefix[1], v), whole_mask, "cudnn")
    branches: dict[str, Any] = {}
    if N * Q * T * T > _CACHED_LOGITS and jax.device_count() == 1:
        branches["cpu"] = functools.partial(_attend_in_parts, softcap=kernel.softcap)
    if kernel.supports(T, k.shape[1]):
        branches["tpu"] = kernel
    together = functools.partial(attend_after, softcap=kernel.softcap)
    if not branches:
        return together(*args)
    found: jax.Array = jax.lax.platform_dependent(*args, **branches, default=together)
    return found


def attend_in_groups(
    q: Float[Array, "B L Q H"],
    k: Float[Array, "B L K H"],
    v: Float[Array, "B L K H"],
    groups: Groups,
    kernel: RowKernel,
) -> Float[Array, "B L Q H"]:
    """Compute attention of texts to themselves, and of each row to itself and to its text."""
    (N, T, _), P = groups.rows.shape, groups.texts.shape[1]
    (text_q, row_q), (text_k, row_k), (text_v, row_v) = (jnp.split(x, [P], axis=1) for x in (q, k, v))

    def to_rows(x: Float[Array, "B RT K H"]) -> Float[Array, "N T K H"]:
        return x.reshape(N, T, *x.shape[2:])

    text_k, text_v = text_k.swapaxes(1, 2), text_v.swapaxes(1, 2)
    row_k, row_v = to_rows(row_k).swapaxes(1, 2), to_rows(row_v).swapaxes(1, 2)
    texts = attend(text_q, text_k, text_v, groups.texts, kernel.softcap)
    prefix = text_k, text_v, groups.shared
    rows = attend_rows(to_rows(row_q), row_k, row_v, RowMask(groups.rows), prefix, kernel)
    return jnp.concatenate([texts, rows.reshape(row_q.shape)], axis=1)


def _attend_in_parts(
    q: Float[Array, "N T Q H"],
    k: Float[Array, "N K T H"],
    v: Float[Array, "N K T H"],
    mask: Bool[Array, "N T T"],
    prefix: tuple[Float[Array, "B K P H"], Float[Array, "B K P H"], Bool[Array, "B R T P"]],
    softcap: float | None,
) -> Float[Array, "N T Q H"]:
    """Compute `attend_after` for a few rows at a time, so that their logits stay in the cache of a CPU.

    No token may see a later one of its row: each block of queries reads only the keys up to its end. The backward pass
    computes the logits again.
    """
    prefix_k, prefix_v, prefix_mask = prefix
    (N, T, Q, _), B = q.shape, prefix_k.shape[0]
    R = N // B
    size = max(r for r in range(1, R + 1) if R % r == 0 and (r == 1 or r * Q * T * T <= _CACHED_LOGITS))
    step = max(_SMALLEST_BLOCK, -(-T // _MOST_BLOCKS))

    @jax.checkpoint
    def attend_part(part: tuple[jax.Array, ...]) -> jax.Array:
        q, k, v, mask, prefix_k, prefix_v, prefix_mask = part
        outputs = []
        for start in range(0, T, step):
            block, seen = slice(start, start + step), slice(0, start + step)
            in_prefix = prefix_mask if prefix_mask.shape[2] == 1 else prefix_mask[:, :, block]
            shared = (prefix_k[None], prefix_v[None], in_prefix)
            outputs.append(
                attend_after(q[:, block], k[:, :, seen], v[:, :, seen], mask[:, block, seen], shared, softcap)
            )
        return jnp.concatenate(outputs, axis=1)

    def by_part(x: jax.Array) -> jax.Array:
        return x.reshape(N // size, size, *x.shape[1:])

    def of_text(x: jax.Array) -> jax.Array:
        return jnp.repeat(x, R // size, axis=0)

    masks = jnp.broadcast_to(prefix_mask, (B, R, *prefix_mask.shape[2:])).reshape(
        N // size, 1, size, *prefix_mask.shape[2:]
    )
    parts = (*map(by_part, (q, k, v, mask)), of_text(prefix_k), of_text(prefix_v), masks)
    found: jax.Array = jax.lax.map(attend_part, parts)
    return found.reshape(q.shape)


def _by_head(q: Float[Array, "B T Q H"], num_kv_heads: int) -> Float[Array, "B K M H"]:
    B, T, _, H = q.shape
    return q.reshape(B, T, num_kv_heads, -1, H).swapaxes(1, 2).reshape(B, num_kv_heads, -1, H)


def _by_token(out: Float[Array, "B K M H"], num_tokens: int) -> Float[Array, "B T Q H"]:
    B, K, _, H = out.shape
    return out.reshape(B, K, num_tokens, -1, H).swapaxes(1, 2).reshape(B, num_tokens, -1, H)


def _cap(logits: jax.Array, softcap: float | None) -> jax.Array:
    return logits if softcap is None else jnp.tanh(logits / softcap) * softcap


def wide(dtype: jnp.dtype) -> jnp.dtype:
    """Return float32, or the type itself if it is wider. A float64 model is computed in float64 throughout."""
    return jnp.promote_types(dtype, jnp.float32)
