"""The weights of a model by their paths, such as `layers.0.attn.q_proj.w`, and what each of them is.

Groups of weights, weight decay and Muon all ask the same questions of a path and a shape; they are answered here, for
the models of Tunix and the adapters of Qwix.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
from optax import contrib

_T = TypeVar("_T")


def path_of(keys: Any) -> str:
    """The dotted path of a leaf, from what JAX's `tree_map_with_path` gives."""
    return jax.tree_util.keystr(keys, simple=True, separator=".").removesuffix(".value")


def map_weights(function: Callable[[str, Any], _T], weights: Any) -> Any:
    """A tree of what a function makes of each weight's path and array."""
    return jax.tree_util.tree_map_with_path(lambda keys, weight: function(path_of(keys), weight), weights)


def list_weights(weights: Any) -> dict[str, Any]:
    """Path → array, in the order of the tree."""
    return {path_of(keys): weight for keys, weight in jax.tree_util.tree_flatten_with_path(weights)[0]}


def is_vector(path: str, weight: Any) -> bool:
    """Whether a weight is a norm's scale or a bias: it has one axis, or is called a bias."""
    return weight.ndim < 2 or path.rpartition(".")[2].endswith("bias")


def matrix_axes(path: str, weight: Any) -> contrib.MuonDimensionNumbers | None:
    """Over which axes a weight takes its input and gives its output, where it is a matrix inside the network.

    The einsum tensors of attention are matrices whose input or output is written as (heads, head size); axes in neither
    hold several matrices, such as the keys' and the values'. None for vectors, embeddings, the head, and for a tensor
    that is not known, which are no matrices in Muon's sense or cannot be shown to be.
    """
    parts = path.split(".")
    layer, leaf = parts[-2] if len(parts) > 1 else "", parts[-1]
    if is_vector(path, weight) or "embed" in path or "lm_head" in parts:
        return None
    axes = tuple(range(weight.ndim))
    if leaf.endswith("_lora_a"):  # (input…, rank)
        return contrib.MuonDimensionNumbers(axes[:-1], axes[-1:])
    if leaf.endswith("_lora_b"):  # (rank, output…), or (rank, matrices, output…)
        return contrib.MuonDimensionNumbers(axes[:1], axes[2:] if weight.ndim == 4 else axes[1:])
    if weight.ndim == 2:
        return contrib.MuonDimensionNumbers((0,), (1,))
    return _EINSUM_AXES.get((layer, weight.ndim))


def matrix_shape(path: str, weight: Any) -> tuple[int, int]:
    """Inputs and outputs of the matrix, or of each, that `matrix_axes` finds in a weight."""
    axes = matrix_axes(path, weight)
    assert axes is not None, path
    inputs, outputs = (math.prod(weight.shape[axis] for axis in group) for group in axes)
    return inputs, outputs


# (layer, axes of its tensor) → the axes of its input and of its output. N heads, K heads of keys, H their size, D the
# width of the model.
_EINSUM_AXES = {
    **{(name, 3): contrib.MuonDimensionNumbers((0,), (1, 2)) for name in ("q_proj", "k_proj", "v_proj")},  # D N H
    **{(name, 3): contrib.MuonDimensionNumbers((0, 1), (2,)) for name in ("o_proj", "attn_vec_einsum")},  # N H D
    ("q_einsum", 3): contrib.MuonDimensionNumbers((1,), (0, 2)),  # N D H
    **{(name, 4): contrib.MuonDimensionNumbers((2,), (1, 3)) for name in ("kv_einsum", "qkv_einsum")},  # · K D H
}
