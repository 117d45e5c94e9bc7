"""Attention of long rows on TPUs, by splash attention: JAX's kernel, which keeps no logits in memory.

A row is a completion that continues a text. The kernel needs lengths that are multiples of 128, and masks that are
known at compile time. Texts, which are padded on the left, therefore get more padding on the left, and rows get padding
on the right. The padding of a text is known only at run time, so the kernel gets it as a segment of its own.

Axes: B texts, N rows, R = N / B, P slots of a text, T tokens of a row, Q heads, K key-value heads, H width of a head.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from agent_tunix.policy.mesh import TENSOR, divide, row_axes

# Shorter rows are left to XLA. Their logits are small, and padding would be a large share of them.
FEWEST_TOKENS = 256

# The kernel's lanes, and the longest block that it computes at once.
_LANES, _LONGEST_BLOCK = 128, 512


def is_long(num_tokens: int) -> bool:
    """Return True if rows are long enough for a kernel that keeps no logits."""
    return num_tokens >= FEWEST_TOKENS


def put_before(texts: Float[Array, "B K P H"], rows: Float[Array, "N K T H"]) -> Float[Array, "N K L H"]:
    """Return keys or values of rows with those of their texts before them; L = P + T."""
    return jnp.concatenate([jnp.repeat(texts, len(rows) // len(texts), axis=0), rows], axis=2)


@dataclasses.dataclass(frozen=True)
class RowKernel:
    """Attention of rows to themselves, causally, and to their texts.

    Attributes:
        softcap: Bound on logits; None for none.
        window: Number of last tokens that a token sees, itself included; None for all.
        mesh: Mesh of the weights; None for one device.
        interpret: True to run the kernel's steps on a machine without a TPU, very slowly.
    """

    softcap: float | None
    window: int | None
    mesh: jax.sharding.Mesh | None
    interpret: bool = False

    def supports(self, num_tokens: int, num_kv_heads: int) -> bool:
        """Return True if rows are long enough, and each device has the key-value heads of its queries.

        A single head is on every device.
        """
        return is_long(num_tokens) and (num_kv_heads == 1 or num_kv_heads % self._num_tensor_parts == 0)

    @property
    def _num_tensor_parts(self) -> int:
        return 1 if self.mesh is None else self.mesh.shape[TENSOR]

    def _tensor_parts(self, num_heads: int) -> int:
        """Return the number of parts of so many heads: 1 if `tp` does not divide them, and each device has all."""
        return self._num_tensor_parts if num_heads % self._num_tensor_parts == 0 else 1

    def __call__(
        self,
        q: Float[Array, "N T Q H"],
        k: Float[Array, "N K T H"],
        v: Float[Array, "N K T H"],
        mask: Bool[Array, "N T T"],
        prefix: tuple[Float[Array, "B K P H"], Float[Array, "B K P H"], Bool[Array, "B R T P"]],
    ) -> Float[Array, "N T Q H"]:
        """Return the weighted sums of values. The mask of the rows is not read: it is causal."""
        prefix_k, prefix_v, prefix_mask = prefix
        (N, T, Q, _), (B, _, P, _) = q.shape, prefix_k.shape
        left, right = -P % _LANES, -T % _LANES

        def pad(x: jax.Array, *, before: int = 0, after: int = 0) -> jax.Array:
            return jnp.pad(x, ((0, 0), (0, 0), (before, after), (0, 0)))

        def join(texts: Float[Array, "B K P H"], rows: Float[Array, "N K T H"]) -> jax.Array:
            return divide(self.mesh, pad(put_before(texts, rows), before=left, after=right), TENSOR)

        in_text = jnp.repeat(prefix_mask.any(axis=(1, 2)), N // B, axis=0).astype(jnp.int32)
        segments = jnp.concatenate([jnp.pad(in_text, ((0, 0), (left, 0))), jnp.ones((N, T + right), jnp.int32)], axis=1)
        run: Any = jax.vmap(self._make(Q // self._tensor_parts(Q), T + right, P + left))
        if self.mesh is not None and self.mesh.size > 1:
            rows = row_axes(self.mesh, N) or None
            spec = jax.sharding.PartitionSpec
            by_row, by_head = spec(rows), spec(rows, TENSOR)  # type: ignore[no-untyped-call]
            queries, keys = (by_head if self._tensor_parts(x) > 1 else by_row for x in (Q, k.shape[1]))
            # JAX cannot infer the mesh axes over which the results of a Pallas kernel vary.
            run = jax.shard_map(
                run, mesh=self.mesh, in_specs=(queries, keys, keys, by_row), out_specs=queries, check_vma=False
            )
        out = run(pad(q.swapaxes(1, 2), after=right), join(prefix_k, k), join(prefix_v, v), segments)
        attended: jax.Array = out[:, :, :T].swapaxes(1, 2)
        return attended

    def _make(self, num_heads: int, num_queries: int, num_slots: int) -> Callable[..., jax.Array]:
        """Return the attention of one row whose queries follow the slots of its text.

        Its arguments are [Q, T, H] queries, [K, P + T, H] keys and values, and [P + T] segments: 0 for padding of the
        text, and 1.
        """
        # Imported here, because few runs need it.
        from jax.experimental.pallas.ops.tpu import splash_attention as splash

        num_keys = num_slots + num_queries
        seen = None if self.window is None else self.window - 1, 0
        mask = splash.LocalMask((num_queries, num_keys), seen, offset=num_slots)
        queries, keys = math.gcd(num_queries, _LONGEST_BLOCK), math.gcd(num_keys, _LONGEST_BLOCK)
        kernel = splash.make_splash_mha_single_device(
            splash.MultiHeadMask([mask] * num_heads),
            block_sizes=splash.BlockSizes(
                block_q=queries,
                block_kv=keys,
                block_q_dkv=queries,
                block_kv_dkv=keys,
                block_kv_dkv_compute=keys,
                block_q_dq=queries,
                block_kv_dq=keys,
            ),
            attn_logits_soft_cap=self.softcap,
            interpret=self.interpret,
        )
        own = jnp.ones(num_queries, jnp.int32)
        return lambda q, k, v, segments: kernel(q, k, v, splash.SegmentIds(own, segments))
