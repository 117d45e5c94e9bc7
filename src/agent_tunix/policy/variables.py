"""The arrays of a module, read and replaced without walking the module.

`nnx.split` and `nnx.update` visit every node of a module and its optimiser. For a small model that takes longer than
launching the compiled program: milliseconds in which the device is idle. A module whose graph does not change needs to
be walked only once.
"""

from collections.abc import Sequence
from typing import Any

import jax
from flax import nnx


class Variables:
    """The variables of a module that a filter selects.

    Args:
        module: Module whose graph does not change. The values of its variables may change.
        filter: Filter of the variables; by default all.
    """

    def __init__(self, module: nnx.Pytree, filter: Any = ...) -> None:
        state = nnx.state(module, filter)
        self._structure = jax.tree.structure(state)
        self._variables = _variables(state)

    def read(self) -> list[Any]:
        """Return the values of the variables, in the order of the module's state.

        A value is an array or a tree of arrays. The state of an optimiser for untouched weights is a tree without
        arrays.
        """
        return [variable.get_raw_value() for variable in self._variables]

    def write(self, held: Sequence[Any]) -> None:
        """Set the values of the variables, in the same order."""
        for variable, value in zip(self._variables, held, strict=True):
            variable.set_raw_value(value)

    def state(self, held: Sequence[Any]) -> Any:
        """Return values from `read` as a state that `nnx.merge` accepts."""
        return jax.tree.unflatten(self._structure, jax.tree.leaves(held))


def held_by(state: Any) -> list[Any]:
    """Return the values in a module's state, as `write` takes them."""
    return [variable.get_raw_value() for variable in _variables(state)]


def _variables(state: Any) -> list[Any]:
    return jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, nnx.Variable))


class Parts:
    """A module as `nnx.split` divides it, with its graph walked only once.

    Args:
        module: Module whose graph does not change. The values of its variables may change.
    """

    def __init__(self, module: nnx.Module) -> None:
        self.module: Any = module
        self._graph = nnx.graphdef(module)
        self._variables = Variables(module)

    def split(self) -> tuple[Any, Any]:
        """Return the graph and the current state."""
        return self._graph, self._variables.state(self._variables.read())
