"""A matrix of the decoder: in full, or frozen in a few bits, with or without an adapter beside it.

LoRA (https://arxiv.org/abs/2106.09685) adds (x A) B · alpha / rank to what the matrix gives. A and B are float32
whatever the matrix is stored in, because updates of 1e-5 are lost on weights in bfloat16; what comes out has the type
that the decoder computes in.

QLoRA (https://arxiv.org/abs/2305.14314) stores the frozen matrix in 8 or 4 bits: of each column, 64 neighbouring
inputs share one float32 scale. Qwix's numbers are used and not its providers: those need the whole model in full
first, draw A from a constant key in the type of the weights, and keep every dequantised matrix for the backward pass.
Here a matrix is quantised as it is read, and dequantised where it is multiplied, anew in the backward pass.

Axes: I inputs, O outputs, R rank, S blocks of inputs that share a scale.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from agent_tunix.policy.files.tensors import block_size

Quantization = Literal["int8", "nf4"]


class Scale(nnx.Variable[Any]):
    """What quantised weights are multiplied by; not a weight, so that neither counts nor optimisers see it."""


class Projection(nnx.Module):
    """x W + b, and an adapter's part where there is one.

    Attributes:
        kernel: [I, O]; int8, or two 4-bit codes a byte as [I / 2, O] uint8, where it is quantised.
        kernel_scale: [S, O] float32, where it is quantised.
        bias: [O], or None.
        kernel_lora_a: [I, R] float32, where there is an adapter.
        kernel_lora_b: [R, O] float32, where there is an adapter.
        axes: Mesh axes that the inputs and the outputs are divided over.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        axes: tuple[str, str],
        *,
        use_bias: bool = False,
        quantization: Quantization | None = None,
        dtype: jnp.dtype,
        param_dtype: jnp.dtype,
        rngs: nnx.Rngs,
    ) -> None:
        """Small random weights; where they are quantised, zeros that loading replaces."""
        self.in_features, self.out_features, self.axes = inputs, outputs, axes
        self.dtype, self.quantization = dtype, quantization
        self.lora_scale = 0.0
        if quantization is None:
            kernel = jax.nn.initializers.normal(0.02)(rngs.params(), (inputs, outputs), param_dtype)
            self.kernel = nnx.Param(kernel, out_sharding=axes)
        else:
            code_shape, scale_shape = quantised_shapes((inputs, outputs), quantization)
            code_type = jnp.int8 if quantization == "int8" else jnp.uint8
            self.kernel = nnx.Param(jnp.zeros(code_shape, code_type), out_sharding=axes)
            # Few numbers, and as many of them as no mesh can be relied on to divide.
            self.kernel_scale = Scale(jnp.zeros(scale_shape, jnp.float32), out_sharding=(None, axes[1]))
        self.bias = nnx.Param(jnp.zeros((outputs,), param_dtype)) if use_bias else None

    def __call__(self, x: Float[Array, "... I"]) -> Float[Array, "... O"]:
        """What the next part of the decoder takes, in the type that it computes in."""
        x = x.astype(self.dtype)
        if self.quantization is None:
            y = x @ self.kernel[...].astype(self.dtype)
        else:
            y = _multiply_quantised(x, self.kernel[...], self.kernel_scale[...], self.quantization)
        if self.bias is not None:
            y = y + self.bias[...].astype(self.dtype)
        if self.has_adapter:
            wide = jnp.promote_types(self.dtype, jnp.float32)
            delta = (x.astype(wide) @ self.kernel_lora_a[...]) @ self.kernel_lora_b[...]
            y = (y + delta * self.lora_scale).astype(self.dtype)
        return y

    @property
    def has_adapter(self) -> bool:
        """Whether `add_adapter` was called."""
        return hasattr(self, "kernel_lora_a")

    def add_adapter(self, lora_a: jax.Array, lora_b: jax.Array, scale: float) -> None:
        """Put an adapter beside the matrix.

        Args:
            lora_a: [I, R] float32.
            lora_b: [R, O] float32.
            scale: alpha / rank.
        """
        # They lie where they belong; the axes are noted for the optimiser's moments.
        with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
            self.kernel_lora_a = nnx.LoRAParam(lora_a, out_sharding=(self.axes[0], None))
            self.kernel_lora_b = nnx.LoRAParam(lora_b, out_sharding=(None, self.axes[1]))
        self.lora_scale = scale

    def base_weight(self) -> Float[Array, "I O"]:
        """The matrix without its adapter: as it is stored, or dequantised to float32."""
        if self.quantization is None:
            return self.kernel[...]
        return dequantise(self.kernel[...], self.kernel_scale[...], self.quantization)

    def merged_weight(self) -> Float[Array, "I O"]:
        """The matrix with its adapter in it, in float32; equal to both in exact arithmetic."""
        weight = self.base_weight().astype(jnp.float32)
        if not self.has_adapter:
            return weight
        return weight + self.kernel_lora_a[...] @ self.kernel_lora_b[...] * self.lora_scale


def quantised_shapes(shape: tuple[int, int], quantization: Quantization) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shapes of the codes and of the scales of an [I, O] matrix; I is even, as all widths of a decoder are."""
    inputs, outputs = shape
    codes = shape if quantization == "int8" else (inputs // 2, outputs)
    return codes, (inputs // block_size(inputs), outputs)


def quantise(weight: Float[Array, "I O"], quantization: Quantization) -> tuple[jax.Array, jax.Array]:
    """Codes and scales of a matrix."""
    import qwix

    tiles = {"channelwise_axes": [1], "tiled_axes": {0: block_size(weight.shape[0])}}
    weight = weight.astype(jnp.float32)
    if quantization == "int8":
        array = qwix.quantize(weight, jnp.int8, **tiles)
        return array.qvalue, array.scale
    array = qwix.quantize(weight, "nf4", **tiles)
    # JAX keeps a byte for each number of 4 bits on CPU; two neighbouring inputs share one here.
    codes = array.qvalue.astype(jnp.uint8)
    return codes[0::2] | (codes[1::2] << 4), array.scale


def dequantise(codes: jax.Array, scales: jax.Array, quantization: Quantization) -> Float[Array, "I O"]:
    """The matrix that codes and scales stand for, in float32."""
    import qwix

    if quantization == "int8":
        return jnp.asarray(qwix.dequantize(qwix.QArray(codes, scales, qtype=jnp.dtype("int8"))), jnp.float32)
    pairs = jnp.stack([codes & 15, codes >> 4], axis=1)
    whole = pairs.reshape(2 * codes.shape[0], codes.shape[1])
    return jnp.asarray(qwix.dequantize(qwix.QArray(whole, scales, qtype="nf4")), jnp.float32)


def _multiply_quantised(
    x: Float[Array, "... I"], codes: jax.Array, scales: jax.Array, quantization: Quantization
) -> Float[Array, "... O"]:
    """x W, where W exists in full only while it is used.

    Autodiff would keep W between the passes, and compilers would dequantise all matrices before a loop over tokens:
    either holds the whole model in full. The barriers tie W to the x, or the gradient, that it multiplies.
    """

    @jax.custom_vjp
    def multiply(x: jax.Array, codes: jax.Array, scales: jax.Array) -> jax.Array:
        codes, scales, x = _together(codes, scales, x)
        return x @ dequantise(codes, scales, quantization).astype(x.dtype)

    def forward(x: jax.Array, codes: jax.Array, scales: jax.Array) -> tuple[jax.Array, Any]:
        return multiply(x, codes, scales), (codes, scales)

    def backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, Any, Any]:
        codes, scales, gradient = _together(*kept, gradient)
        weight = dequantise(codes, scales, quantization).astype(gradient.dtype)
        # The matrix is frozen: integers have gradients of no type, and scales have none.
        return gradient @ weight.T, np.zeros(codes.shape, jax.dtypes.float0), jnp.zeros_like(scales)

    multiply.defvjp(forward, backward)
    return multiply(x, codes, scales)


def _together(*arrays: jax.Array) -> Any:
    """The same arrays, none of which may be used before all of them are there."""
    return jax.lax.optimization_barrier(arrays)  # type: ignore[no-untyped-call]
