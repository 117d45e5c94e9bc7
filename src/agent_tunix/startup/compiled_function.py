"""A jitted function whose programs can be compiled in a thread before they are called."""

from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any

import jax


class CompiledFunction:
    """A function compiled by `jax.jit`, called in the same way.

    A program that `compile_ahead` has begun serves every call with the same shapes, types and static arguments. All
    other calls go through `jax.jit`.

    `options`: Options of `jax.jit`. Name static arguments by `static_argnames`, and pass these by keyword.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._jitted = jax.jit(function, **options)
        self._programs: dict[Hashable, Future[Any]] = {}

    def __call__(self, *args: Any, **statics: Hashable) -> Any:
        """Call the function; wait for its program if that is being compiled."""
        if self._programs and (program := self._programs.get(_signature(args, statics))) is not None:
            return program.result()(*args)
        return self._jitted(*args, **statics)

    def compile_ahead(self, executor: Executor, *args: Any, **statics: Hashable) -> None:
        """Begin to compile the program of a call.

        Args:
            executor: Runs the compilation.
            args: Arguments of the call, or trees of `jax.ShapeDtypeStruct` in their place. All of them must be on the
                default device.
            statics: Static arguments of the call.
        """
        signature = _signature(args, statics)
        if signature not in self._programs:
            self._programs[signature] = executor.submit(lambda: self._jitted.lower(*args, **statics).compile())


def _signature(args: tuple[Any, ...], statics: dict[str, Hashable]) -> Hashable:
    leaves, structure = jax.tree.flatten(args)
    return structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves), tuple(sorted(statics.items()))
