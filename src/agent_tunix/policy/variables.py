"""The arrays of a module, read and replaced without walking through it.

`nnx.split` and `nnx.update` visit every node of a module and of its optimiser, which takes longer than to start what is
compiled for a small model: milliseconds in which the device has nothing to do. A module whose graph stays as it is can
be walked once.
"""

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx


class Variables:
    """The variables of a module that a filter takes.

    Args:
        module: Its graph must stay as it is; what its variables hold may change.
        filter: Which of them; by default all.
    """

    def __init__(self, module: nnx.Pytree, filter: Any = ...) -> None:
        state = nnx.state(module, filter)
        self._structure = jax.tree.structure(state)
        self._variables = _variables(state)

    def read(self) -> list[Any]:
        """What each of them holds, in the order of the module's state.

        An array, or a tree of arrays: what an optimiser leaves alone has one without any.
        """
        return [variable.get_raw_value() for variable in self._variables]

    def write(self, held: Sequence[Any]) -> None:
        """Let them hold something else, in the same order."""
        for variable, value in zip(self._variables, held, strict=True):
            variable.set_raw_value(value)

    def state(self, held: Sequence[Any]) -> Any:
        """What `read` gave as the state that `nnx.merge` takes."""
        return jax.tree.unflatten(self._structure, jax.tree.leaves(held))


def held_by(state: Any) -> list[Any]:
    """What `write` takes, of a module's state."""
    return [variable.get_raw_value() for variable in _variables(state)]


def _variables(state: Any) -> list[Any]:
    return jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))


class Parts:
    """A module as `nnx.split` divides it, its graph walked once.

    Args:
        module: Its graph must stay as it is; what its variables hold may change.
    """

    def __init__(self, module: nnx.Module) -> None:
        self.module: Any = module
        self._graph = nnx.graphdef(module)
        self._variables = Variables(module)

    def split(self) -> tuple[Any, Any]:
        """The graph, and the state as it is now."""
        return self._graph, self._variables.state(self._variables.read())
