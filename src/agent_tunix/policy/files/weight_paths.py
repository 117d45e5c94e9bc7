"""The weights of a model by their paths, such as `layers.0.self_attn.q_proj.kernel`, and what each of them is.

Groups of weights, weight decay and Muon all ask the same questions of a path and a shape; they are answered here.
"""

from collections.abc import Callable
from typing import Any

import jax

# Matrices of which each row or column is a token: Muon leaves them to AdamW.
_OF_TOKENS = frozenset({"embed_tokens", "lm_head"})


def path_of(keys: Any) -> str:
    """The dotted path of a leaf, from what JAX's `tree_map_with_path` gives."""
    return jax.tree_util.keystr(keys, simple=True, separator=".").removesuffix(".value")


def map_weights(function: Callable[[str, Any], Any], weights: Any) -> Any:
    """A tree of what a function makes of each weight's path and array."""
    return jax.tree_util.tree_map_with_path(lambda keys, weight: function(path_of(keys), weight), weights)


def list_weights(weights: Any) -> dict[str, Any]:
    """Path → array, in the order of the tree."""
    return {path_of(keys): weight for keys, weight in jax.tree_util.tree_flatten_with_path(weights)[0]}


def is_vector(path: str, weight: Any) -> bool:
    """Whether a weight is a norm's scale or a bias: it has one axis, or is called a bias."""
    return weight.ndim < 2 or path.rpartition(".")[2] == "bias"


def is_matrix(path: str, weight: Any) -> bool:
    """Whether a weight is a matrix inside the network, (inputs, outputs), or half of an adapter of one.

    The embedding and the head are none in Muon's sense; a tensor of more axes cannot be shown to be one.
    """
    return weight.ndim == 2 and not is_vector(path, weight) and _OF_TOKENS.isdisjoint(path.split("."))
