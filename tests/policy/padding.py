"""Texts of several lengths in one array, padded on either side."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

Side = Literal["left", "right"]


class Padded(NamedTuple):
    """A batch: [B, T] ids, where there is a token, each token's position in its text, and [B, T, T] what each sees."""

    tokens: np.ndarray
    filled: np.ndarray
    positions: np.ndarray
    mask: np.ndarray


def pad(rows: Sequence[np.ndarray], side: Side, pad_id: int) -> Padded:
    """The rows as one array, as wide as the longest."""
    T = max(map(len, rows))
    filled = np.zeros((len(rows), T), bool)
    tokens = np.full(filled.shape, pad_id)
    for number, row in enumerate(rows):
        where = slice(T - len(row), T) if side == "left" else slice(0, len(row))
        filled[number, where] = True
        tokens[number, where] = row
    mask = np.tril(np.ones((T, T), bool)) & filled[:, None, :]
    return Padded(tokens, filled, np.maximum(filled.cumsum(1) - 1, 0), mask)
