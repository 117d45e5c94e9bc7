"""What XLA is told as it compiles a program, where its own choice is not the best for small models on a CPU."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from agent_tunix.policy.processor import num_processors

# XLA's newer emitter compiles equal kernels of several layers once, so that it hardly takes longer for more of them;
# the older one takes less for each. In processor time, sampler and reference pass of 2, 3, 4, 6 and 12 layers: older
# 2.2, 2.9, 3.8, 5.1 and 9.1 s; newer 3.8, 3.7, 3.9, 4.6 and 5.2 s.
_NEWER_FROM_LAYERS = 4
# XLA's own number.
_MOST_PARTS = 32


def jit_forward(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` of a function that takes no gradient.

    On a CPU that of a few layers is compiled by XLA's older emitter, in as many parts as there are processors, at
    most 32, into a program that is as fast. With gradients the newer one is no slower to compile, and what it makes is
    faster by a twentieth.

    Args:
        function: Which; it cannot be called within another that is compiled.
        options: Of `jax.jit`.

    Returns:
        What gives the compiled function for a number of layers, on the platform of JAX's devices or the one named.
    """

    @functools.cache
    def on(platform: str, is_shallow: bool) -> Any:
        told = {
            "xla_cpu_use_fusion_emitters": False,
            "xla_cpu_parallel_codegen_split_count": min(num_processors(), _MOST_PARTS),
        }
        return jax.jit(function, compiler_options=told if platform == "cpu" and is_shallow else None, **options)

    def find(num_layers: int, platform: str | None = None) -> Any:
        return on(platform or jax.default_backend(), num_layers < _NEWER_FROM_LAYERS)

    return find
