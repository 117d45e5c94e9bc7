"""Paths of a model's weights, such as `layers.0.self_attn.q_proj.kernel`, and the kind of each weight.

Groups of weights, weight decay and Muon all use these functions of a path and a shape.
"""

from collections.abc import Callable
from typing import Any

import jax

# Matrices with a row or column for each token. AdamW trains them if the others are trained by Muon.
_OF_TOKENS = frozenset({"embed_tokens", "lm_head"})


def path_of(keys: Any) -> str:
    """Return the dotted path of a leaf from the keys that JAX's `tree_map_with_path` passes."""
    return jax.tree_util.keystr(keys, simple=True, separator=".").removesuffix(".value")


def map_weights(function: Callable[[str, Any], Any], weights: Any) -> Any:
    """Return a tree with a function's result for each weight's path and array."""
    return jax.tree_util.tree_map_with_path(lambda keys, weight: function(path_of(keys), weight), weights)


def list_weights(weights: Any) -> dict[str, Any]:
    """Return path → array, in the order of the tree."""
    return {path_of(keys): weight for keys, weight in jax.tree_util.tree_flatten_with_path(weights)[0]}


def is_vector(path: str, weight: Any) -> bool:
    """Return True if a weight is a norm's scale or a bias: it has one axis, or its name is `bias`."""
    return weight.ndim < 2 or path.rpartition(".")[2] == "bias"


def is_matrix(path: str, weight: Any) -> bool:
    """Return True if a weight is a matrix inside the network, (inputs, outputs), or a half of its adapter.

    The embedding and the head do not count as matrices for Muon, and neither does a tensor with more than two axes.
    """
    return weight.ndim == 2 and not is_vector(path, weight) and _OF_TOKENS.isdisjoint(path.split("."))
