"""A matrix of the decoder: in full, or frozen in a few bits, with or without an adapter.

LoRA (https://arxiv.org/abs/2106.09685) adds (x A) B · alpha / rank to the output of the matrix. A and B are always
float32, because updates of 1e-5 are lost on bfloat16 weights. The output has the decoder's compute type.

QLoRA (https://arxiv.org/abs/2305.14314) stores the frozen matrix in 8 or 4 bits. In each column, 64 neighbouring inputs
share one float32 scale. Qwix's number formats are used, but not its providers: those need the whole model in full
first, draw A from a constant key in the type of the weights, and keep every dequantised matrix for the backward pass.
Here a matrix is quantised as it is read, dequantised where it is multiplied, and dequantised again in the backward
pass.

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
    """Scales of quantised weights or of layers. They never train, so parameter counts and optimisers ignore them."""


class Projection(nnx.Module):
    """x W + b, plus the output of an adapter if there is one.

    Attributes:
        kernel: [I, O]; if quantised, int8, or two 4-bit codes per byte as [I / 2, O] uint8.
        kernel_scale: [S, O] float32, if quantised.
        bias: [O], or None.
        kernel_lora_a: [I, R] float32, with an adapter.
        kernel_lora_b: [R, O] float32, with an adapter.
        axes: Mesh axes that divide the inputs and the outputs.
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
        """Create small random weights, or zeros to be replaced by loading if they are quantised."""
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
            # The blocks are few, and no mesh is certain to divide their number, so only the outputs are divided.
            self.kernel_scale = Scale(jnp.zeros(scale_shape, jnp.float32), out_sharding=(None, axes[1]))
        self.bias = nnx.Param(jnp.zeros((outputs,), param_dtype)) if use_bias else None

    def __call__(self, x: Float[Array, "... I"]) -> Float[Array, "... O"]:
        """Return the output of the matrix and its adapter, in the decoder's compute type."""
        x = x.astype(self.dtype)
        if self.quantization is None:
            y = _multiply(x, self.kernel[...].astype(self.dtype))
        else:
            y = _multiply_quantised(x, self.kernel[...], self.kernel_scale[...], self.quantization)
        if self.bias is not None:
            y = y + self.bias[...].astype(self.dtype)
        if self.has_adapter:
            wide = jnp.promote_types(self.dtype, jnp.float32)
            delta = _multiply(_multiply(x.astype(wide), self.kernel_lora_a[...]), self.kernel_lora_b[...])
            y = (y + delta * self.lora_scale).astype(self.dtype)
        return y

    @property
    def has_adapter(self) -> bool:
        """True if `add_adapter` was called."""
        return hasattr(self, "kernel_lora_a")

    def add_adapter(self, lora_a: jax.Array, lora_b: jax.Array, scale: float) -> None:
        """Add an adapter to the matrix.

        Args:
            lora_a: [I, R] float32.
            lora_b: [R, O] float32.
            scale: alpha / rank.
        """
        # The arrays are placed already. Their axes are recorded for the optimiser's moments.
        with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
            self.kernel_lora_a = nnx.LoRAParam(lora_a, out_sharding=(self.axes[0], None))
            self.kernel_lora_b = nnx.LoRAParam(lora_b, out_sharding=(None, self.axes[1]))
        self.lora_scale = scale

    def base_weight(self) -> Float[Array, "I O"]:
        """Return the matrix without its adapter, as stored or, if quantised, in float32."""
        if self.quantization is None:
            return self.kernel[...]
        return dequantise(self.kernel[...], self.kernel_scale[...], self.quantization)


def quantised_shapes(shape: tuple[int, int], quantization: Quantization) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the shapes of the codes and scales of an [I, O] matrix. I must be even, as all widths of a decoder are."""
    inputs, outputs = shape
    codes = shape if quantization == "int8" else (inputs // 2, outputs)
    return codes, (inputs // block_size(inputs), outputs)


def quantise(weight: Float[Array, "I O"], quantization: Quantization) -> tuple[jax.Array, jax.Array]:
    """Return the codes and scales of a matrix."""
    import qwix

    tiles = {"channelwise_axes": [1], "tiled_axes": {0: block_size(weight.shape[0])}}
    weight = weight.astype(jnp.float32)
    if quantization == "int8":
        array = qwix.quantize(weight, jnp.int8, **tiles)
        return array.qvalue, array.scale
    array = qwix.quantize(weight, "nf4", **tiles)
    # On CPU JAX stores a 4-bit number in a byte. Here two neighbouring inputs share a byte.
    codes = array.qvalue.astype(jnp.uint8)
    return codes[0::2] | (codes[1::2] << 4), array.scale


def dequantise(codes: jax.Array, scales: jax.Array, quantization: Quantization) -> Float[Array, "I O"]:
    """Return the matrix for codes and scales, in float32."""
    import qwix

    if quantization == "int8":
        return jnp.asarray(qwix.dequantize(qwix.QArray(codes, scales, qtype=jnp.dtype("int8"))), jnp.float32)
    pairs = jnp.stack([codes & 15, codes >> 4], axis=1)
    whole = pairs.reshape(2 * codes.shape[0], codes.shape[1])
    return jnp.asarray(qwix.dequantize(qwix.QArray(whole, scales, qtype="nf4")), jnp.float32)


def _multiply(x: Float[Array, "... I"], weight: Float[Array, "I O"]) -> Float[Array, "... O"]:
    """Return x W, with the tokens of all rows along one axis.

    The gradient of W is a product over the tokens. Over two axes, XLA's CPU compiler would copy and transpose the
    gradient of the output first, which takes three times as long as the product.
    """
    return (x.reshape(-1, x.shape[-1]) @ weight).reshape(*x.shape[:-1], weight.shape[-1])


def _multiply_quantised(
    x: Float[Array, "... I"], codes: jax.Array, scales: jax.Array, quantization: Quantization
) -> Float[Array, "... O"]:
    """Return x W. W exists in full only while it is used.

    Autodiff would keep W between the passes, and compilers would dequantise all matrices before a loop over tokens.
    Either would hold the whole model in full. The barriers tie W to the x, or the gradient, that it multiplies.
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
        # The matrix is frozen. JAX requires gradients of type float0 for integers, and zeros for the scales.
        return gradient @ weight.T, np.zeros(codes.shape, jax.dtypes.float0), jnp.zeros_like(scales)

    multiply.defvjp(forward, backward)
    return multiply(x, codes, scales)


def _together(*arrays: jax.Array) -> Any:
    """Return the same arrays, none of which can be used before all of them are computed."""
    return jax.lax.optimization_barrier(arrays)  # type: ignore[no-untyped-call]
