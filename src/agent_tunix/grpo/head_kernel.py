"""Log-probabilities over a large vocabulary on TPUs, in a kernel that keeps no logits in memory.

The gradient of a token's log-probability with respect to its hidden state h is the row of the output matrix W of that
token, minus the mean of all rows weighted by their probabilities. That mean is attention of h to the rows of W. Like
attention (https://arxiv.org/abs/2205.14135), the kernel therefore reads W in blocks, and keeps for each token the
largest logit so far, the sums of weights, and the weighted sum of rows.

On a mesh each device has a part of the words, and the parts are merged with small transfers. If there are fewer tokens
than words, `fsdp` divides the words too: then devices exchange hidden states instead of gathering W.

Axes: N tokens, V words, D hidden; C tokens and W words of a block.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from agent_tunix.policy.mesh import FSDP, TENSOR

_LANES = 128
# The most tokens and words of a block, and the most numbers of its tokens' hidden states, which the chip's own memory
# limits.
_MOST_TOKENS, _MOST_WORDS, _MOST_NUMBERS = 1024, 512, 2**20
_MEMORY_LIMIT = 64 * 2**20
# Below any logit, but finite: differences of it are numbers.
_LOWEST = -(2.0**100)


class Sums(NamedTuple):
    """Results of the kernel for each token; the weight of a word is exp(logit − highest).

    Attributes:
        highest: The largest logit of the words of this device.
        total: Sum of the weights.
        moment: Sum of weights × logits.
        chosen: Logit of the token itself, 0 if another device has its word.
        rows: Sum of weights × slopes × rows of W, or None. A slope is the derivative of a bounded logit.
    """

    highest: Float[Array, "N 1"]
    total: Float[Array, "N 1"]
    moment: Float[Array, "N 1"]
    chosen: Float[Array, "N 1"]
    rows: Float[Array, "N D"] | None


class HeadKernel(NamedTuple):
    """The kernel for a matrix.

    Attributes:
        mesh: Mesh of the weights.
        temperature: Sampling temperature.
        softcap: Bound on logits before the temperature; None for none.
        interpret: True to run the kernel's steps on a machine without a TPU, very slowly.
    """

    mesh: jax.sharding.Mesh | None
    temperature: float
    softcap: float | None
    interpret: bool = False

    def supports(self, num_words: int, num_tokens: int) -> bool:
        """Return True if each device's words are whole lanes."""
        return num_words % (_LANES * self._parts(num_words, num_tokens)) == 0

    def _parts(self, num_words: int, num_tokens: int) -> int:
        return math.prod(self._size(axis) for axis in self._axes(num_words, num_tokens))

    def _axes(self, num_words: int, num_tokens: int) -> tuple[str, ...]:
        """Return the axes that divide the words."""
        if self.mesh is None or self.mesh.size == 1:
            return ()
        return (TENSOR, FSDP) if num_tokens < num_words else (TENSOR,)

    def _size(self, axis: str) -> int:
        return 1 if self.mesh is None else self.mesh.shape[axis]

    def __call__(
        self,
        hidden_ND: Float[Array, "N D"],
        tokens_N: Int[Array, " N"],
        mask_N: Bool[Array, " N"],
        matrix_VD: Float[Array, "V D"],
        row_axes: tuple[str, ...],
        *,
        slopes: bool,
    ) -> tuple[Float[Array, " N"], Float[Array, " N"], Float[Array, "N D"] | None]:
        """Return log-probabilities and entropies, and the gradients of the former if `slopes`; 0 outside the mask.

        Args:
            hidden_ND: Normed hidden states, which `row_axes` divide.
            tokens_N: The token after each.
            mask_N: Tokens that count.
            matrix_VD: The output matrix.
            row_axes: Mesh axes that divide the tokens.
            slopes: True to return gradients.
        """
        V, N = len(matrix_VD), len(tokens_N)
        axes = self._axes(V, N)
        run = functools.partial(self._on_device, axes=axes, slopes=slopes)
        if axes:
            spec = jax.sharding.PartitionSpec
            rows = spec(tuple(axis for axis in row_axes if axis not in axes) or None)  # type: ignore[no-untyped-call]
            words = spec(axes)  # type: ignore[no-untyped-call]
            # JAX cannot infer the mesh axes over which the results of a Pallas kernel vary.
            run = jax.shard_map(
                run, mesh=self.mesh, in_specs=(rows, rows, rows, words), out_specs=rows, check_vma=False
            )
        found: tuple[jax.Array, jax.Array, jax.Array | None] = run(hidden_ND, tokens_N, mask_N, matrix_VD)
        return found

    def _on_device(
        self,
        hidden_ND: jax.Array,
        tokens_N: jax.Array,
        mask_N: jax.Array,
        matrix_VD: jax.Array,
        *,
        axes: Any,
        slopes: bool,
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Return the results of `__call__` for the tokens of a device, from its words and those of the others."""
        N, V = len(tokens_N), len(matrix_VD)
        size, count = _block_of_tokens(N, hidden_ND.shape[1])
        # Tokens of the mask come first; blocks without one are not computed.
        order = jnp.pad(jnp.argsort(~mask_N), (0, size * count - N), constant_values=N)
        first_word: Any = 0
        for axis in axes:
            first_word = first_word * self._size(axis) + jax.lax.axis_index(axis)
        own_C1 = tokens_N.at[order].get(mode="clip")[:, None] - first_word * V
        used = mask_N.sum(dtype=jnp.int32)
        sums = self._sum(hidden_ND.at[order].get(mode="clip"), own_C1, used, matrix_VD, size, slopes=slopes)
        highest = jax.lax.pmax(sums.highest, axes) if axes else sums.highest  # type: ignore[no-untyped-call]
        scale = jnp.exp(sums.highest - highest)

        def add(x: jax.Array) -> jax.Array:
            total: jax.Array = jax.lax.psum(x, axes) if axes else x  # type: ignore[no-untyped-call]
            return total

        total, moment = add(scale * sums.total), add(scale * sums.moment)
        chosen = add(sums.chosen)
        normaliser = highest + jnp.log(total)

        def put_back(values: jax.Array) -> jax.Array:
            is_used = (jnp.arange(len(order)) < used).reshape(-1, *[1] * (values.ndim - 1))
            return (
                jnp.zeros((N, *values.shape[1:]), values.dtype)
                .at[order]
                .set(jnp.where(is_used, values, 0), mode="drop")
            )

        logps, entropies = put_back((chosen - normaliser)[:, 0]), put_back((normaliser - moment / total)[:, 0])
        if sums.rows is None:
            return logps, entropies, None
        is_own = (own_C1 >= 0) & (own_C1 < V)
        of_token = jnp.where(is_own, matrix_VD[jnp.clip(own_C1[:, 0], 0, V - 1)].astype(sums.rows.dtype), 0)
        of_token = of_token * self._slope(sums.chosen * self.temperature)
        gradient = add(of_token - sums.rows * scale / total) / self.temperature
        return logps, entropies, put_back(gradient.astype(hidden_ND.dtype))

    def _slope(self, bounded: jax.Array) -> jax.Array | float:
        """Return the derivative of a bounded logit, before the temperature."""
        return 1.0 if self.softcap is None else 1 - jnp.square(bounded / self.softcap)

    def _sum(
        self, hidden: jax.Array, own_tokens: jax.Array, used: jax.Array, matrix: jax.Array, size: int, *, slopes: bool
    ) -> Sums:
        """Run the kernel over blocks of tokens, and for each over blocks of words."""
        from jax.experimental import pallas as pl
        from jax.experimental.pallas import tpu as pltpu

        (N, D), V = hidden.shape, len(matrix)
        words = math.gcd(V, _MOST_WORDS)

        def add_words(used: Any, hidden: Any, tokens: Any, matrix: Any, *sums: Any) -> None:
            self._add_words(pl, used, hidden, tokens, matrix, Sums(*sums, *[None] * (not slopes)))

        def block_of_words(i: Any, j: Any, used: Any) -> Any:
            # A block of tokens that is not computed reads no words.
            return jnp.where(i * size < used[0], j, 0), 0

        of_tokens = [pl.BlockSpec((size, width), lambda i, j, used: (i, 0)) for width in (D, 1)]
        widths = [1] * 4 + [D] * slopes
        shapes: list[Any] = [jax.ShapeDtypeStruct((N, width), jnp.float32) for width in widths]  # type: ignore[no-untyped-call]
        found = pl.pallas_call(
            add_words,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(N // size, V // words),
                in_specs=[*of_tokens, pl.BlockSpec((words, D), block_of_words)],
                out_specs=[pl.BlockSpec((size, width), lambda i, j, used: (i, 0)) for width in widths],
            ),
            out_shape=shapes,
            compiler_params=pltpu.CompilerParams(
                dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=_MEMORY_LIMIT
            ),
            cost_estimate=pl.CostEstimate(
                flops=2 * (1 + slopes) * N * V * D,
                transcendentals=N * V,
                bytes_accessed=N // size * matrix.nbytes + hidden.nbytes + 4 * N * sum(widths),
            ),
            interpret=self.interpret,
            name="vocabulary",
        )(used[None], hidden, own_tokens, matrix)
        return Sums(*found, *[None] * (not slopes))

    def _add_words(self, pl: Any, used: Any, hidden: Any, tokens: Any, matrix: Any, sums: Sums) -> None:
        """Add a block of words to the sums of a block of tokens."""
        block, step = pl.program_id(0), pl.program_id(1)
        (size, _), words = hidden.shape, len(matrix)

        @pl.when(step == 0)  # type: ignore[untyped-decorator]
        def _start() -> None:
            for name, ref in sums._asdict().items():
                if ref is not None:
                    ref[...] = jnp.full(ref.shape, _LOWEST if name == "highest" else 0.0, ref.dtype)

        @pl.when(block * size < used[0])  # type: ignore[untyped-decorator]
        def _add() -> None:
            over_words = (((1,), (1,)), ((), ()))
            logits = jax.lax.dot_general(hidden[...], matrix[...], over_words, preferred_element_type=jnp.float32)
            if self.softcap is not None:
                logits = jnp.tanh(logits / self.softcap) * self.softcap
            slope = self._slope(logits)
            logits = logits / self.temperature
            word = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) + step * words
            sums.chosen[...] += jnp.where(word == tokens[...], logits, 0.0).sum(axis=1, keepdims=True)
            before = sums.highest[...]
            highest = jnp.maximum(before, logits.max(axis=1, keepdims=True))
            shrink, weights = jnp.exp(before - highest), jnp.exp(logits - highest)
            sums.highest[...] = highest
            sums.total[...] = shrink * sums.total[...] + weights.sum(axis=1, keepdims=True)
            sums.moment[...] = shrink * sums.moment[...] + (weights * logits).sum(axis=1, keepdims=True)
            if sums.rows is not None:
                added = jnp.dot((weights * slope).astype(matrix.dtype), matrix[...], preferred_element_type=jnp.float32)
                sums.rows[...] = shrink * sums.rows[...] + added


def differentiable_statistics(
    kernel: HeadKernel,
    hidden_ND: Float[Array, "N D"],
    tokens_N: Int[Array, " N"],
    mask_N: Bool[Array, " N"],
    matrix_VD: Float[Array, "V D"],
    row_axes: tuple[str, ...],
) -> tuple[Float[Array, " N"], Float[Array, " N"]]:
    """Return log-probabilities and entropies as `HeadKernel` does; the former have gradients for hidden states alone.

    The gradient does not depend on the loss, but for a factor. So the forward pass computes it, if there will be a
    backward pass.
    """

    def compute(
        hidden_ND: jax.Array, tokens_N: jax.Array, mask_N: jax.Array, matrix_VD: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        logps_N, entropies_N, _ = kernel(hidden_ND, tokens_N, mask_N, matrix_VD, row_axes, slopes=False)
        return logps_N, entropies_N

    def forward(
        hidden_ND: jax.Array, tokens_N: jax.Array, mask_N: jax.Array, matrix_VD: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        logps_N, entropies_N, slopes_ND = kernel(hidden_ND, tokens_N, mask_N, matrix_VD, row_axes, slopes=True)
        assert slopes_ND is not None
        return (logps_N, entropies_N), slopes_ND

    def backward(slopes_ND: jax.Array, cotangents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array | None, ...]:
        return (cotangents[0][:, None] * slopes_ND).astype(slopes_ND.dtype), None, None, None

    statistics = jax.custom_vjp(compute)
    statistics.defvjp(forward, backward)
    found: tuple[jax.Array, jax.Array] = statistics(hidden_ND, tokens_N, mask_N, matrix_VD)
    return found


def _block_of_tokens(num_tokens: int, width: int) -> tuple[int, int]:
    """Return the tokens of a block, a multiple of 128, and the number of blocks."""
    most = max(_LANES, min(_MOST_TOKENS, _MOST_NUMBERS // width // _LANES * _LANES))
    count = -(-num_tokens // most)
    size = -(-num_tokens // count // _LANES) * _LANES
    return size, -(-num_tokens // size)
