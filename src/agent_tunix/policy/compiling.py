"""What XLA is told as it compiles a program, where its own choice is not the best for small models on a CPU."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from agent_tunix.policy.processor import num_processors


def jit_forward(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`jax.jit` of a function that takes no gradient.

    On a CPU XLA's older emitter compiles such a program in up to a third less processor time, in as many parts as there
    are processors and not in 32, into one that is as fast. With gradients the newer one is no slower to compile, and
    what it makes is faster by a twentieth.

    Args:
        function: Which.
        options: Of `jax.jit`.

    Returns:
        What gives the function as it is compiled for a platform; for that of JAX's devices where none is named.
    """

    @functools.cache
    def on(platform: str) -> Any:
        told = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": num_processors()}
        return jax.jit(function, compiler_options=told if platform == "cpu" else None, **options)

    def find(platform: str | None = None) -> Any:
        return on(platform or jax.default_backend())

    return find
