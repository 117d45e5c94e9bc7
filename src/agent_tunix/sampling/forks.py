"""Further rows of tokens of episodes whose conversations are not one row."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class Forks:
    """F rows of tokens as NumPy arrays, with the widths P and T of the completions that they belong to.

    Attributes:
        owners: [F], the number of the completion that each row belongs to, whose advantage it shares.
        prompt_tokens: [F, P], padded on the left.
        prompt_lengths: [F], tokens of each prompt.
        tokens: [F, T], padded on the right.
        lengths: [F], tokens after the prompt.
        logps: [F, T] float32, the log-probability of each token; 0 at padding, and at tokens that the model did not
            write.
        sampled: [F, T], True at tokens that the model wrote.
    """

    owners: np.ndarray
    prompt_tokens: np.ndarray
    prompt_lengths: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    logps: np.ndarray
    sampled: np.ndarray

    @property
    def mask(self) -> np.ndarray:
        """[F, T], True at tokens that the model wrote."""
        mask: np.ndarray = self.sampled & (np.arange(self.tokens.shape[1]) < self.lengths[:, None])
        return mask

    @property
    def observed(self) -> np.ndarray:
        """[F, T], True at tokens after the prompt that the model did not write."""
        observed: np.ndarray = ~self.sampled & (np.arange(self.tokens.shape[1]) < self.lengths[:, None])
        return observed

    def add_to(self, values: np.ndarray, addends: np.ndarray) -> np.ndarray:
        """Return [N] values of completions, plus the sums of [F, T] values of their forks."""
        sums = values.copy()
        np.add.at(sums, self.owners, addends.sum(axis=1))
        return sums


def join_forks(parts: Sequence[Forks | None], rows: Sequence[tuple[int, int]]) -> Forks | None:
    """Select the forks of completions from several samplings; None if these have none.

    Args:
        parts: The forks of each sampling.
        rows: Pairs (index of the sampling, completion in it), in the order wanted.
    """
    chosen = [
        (part, fork, place)
        for place, (part, row) in enumerate(rows)
        if (forks := parts[part]) is not None
        for fork in np.flatnonzero(forks.owners == row)
    ]
    if parts[0] is None:
        return None
    owners = np.array([place for _, _, place in chosen], np.int32)

    def take(name: str) -> np.ndarray:
        picked = [getattr(parts[part], name)[fork] for part, fork, _ in chosen]
        return np.stack(picked) if picked else getattr(parts[0], name)[:0]

    return Forks(owners, *(take(field.name) for field in fields(Forks)[1:]))
