"""The texts whose keys and values lie in the places of a cache, and the choice of a place for a new text.

A place that no request uses any more keeps its text until the place is needed. A new text that begins as a kept one
continues it, or begins with a copy. Of a text with recurrent states only the whole can be continued.

Axes: N places, L tokens.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

# A shorter common beginning is read again, which costs about as much as a copy.
_SHORTEST_COPY = 16


class Assignment(NamedTuple):
    """The place of a new text.

    Attributes:
        place: The place.
        source: Place to copy first; None if the text begins with what the place itself holds, or with nothing.
        length: Tokens that then need not be read.
    """

    place: int
    source: int | None
    length: int


class KeptTexts:
    """The texts of all places.

    Args:
        num_places: N.
        max_length: L, the maximum tokens of a text.
        whole_only: True if only whole texts can be continued.
    """

    def __init__(self, num_places: int, max_length: int, *, whole_only: bool) -> None:
        self._whole_only = whole_only
        self._tokens = np.full((num_places, max_length), -1, np.int32)
        # Tokens that lie in the cache, and those that will once the prompt is read.
        self.filled = np.zeros(num_places, np.int32)
        self._planned = np.zeros(num_places, np.int32)
        self._in_use = np.zeros(num_places, np.bool_)
        self._last_use = np.zeros(num_places, np.int64)
        self._labels: list[Hashable] = [None] * num_places
        self._clock = 0

    @property
    def is_full(self) -> bool:
        """True if all places are in use."""
        return bool(self._in_use.all())

    def assign(self, tokens: Sequence[int], label: Hashable) -> Assignment | None:
        """Take a place for a text; None if there is none, or if a text that is being read will be a better beginning.

        Args:
            tokens: The tokens to read, at most L.
            label: Only texts with equal labels, such as the version of the weights, share keys and values.
        """
        free = np.flatnonzero(~self._in_use)
        if not len(free):
            return None
        planned, present = self._common(tokens, label)
        best = int(present.argmax())
        length = int(present[best])
        if planned.max() >= length + _SHORTEST_COPY:
            return None
        oldest = int(free[self._last_use[free].argmin()])
        continues = not self._in_use[best] and (length == self.filled[best] or oldest == best)
        if length and continues:
            assignment = Assignment(best, None, length)
        elif length >= _SHORTEST_COPY and oldest != best:
            assignment = Assignment(oldest, best, length)
        else:
            assignment = Assignment(oldest, None, 0)
        self._take(assignment, tokens, label)
        return assignment

    def _common(self, tokens: Sequence[int], label: Hashable) -> tuple[np.ndarray, np.ndarray]:
        """Return how many first tokens each place will hold, and holds now."""
        ids = np.asarray(tokens, np.int32)
        # The added column differs always, so that the first difference is the length.
        differs = np.pad(self._tokens[:, : len(ids)] != ids, ((0, 0), (0, 1)), constant_values=True)
        common = differs.argmax(axis=1)
        same = np.array([other == label for other in self._labels])
        planned = np.where(same, np.minimum(common, self._planned), 0)
        present = np.minimum(planned, self.filled)
        if self._whole_only:
            planned = np.where(planned == self._planned, planned, 0)
            present = np.where(planned == self.filled, planned, 0)
        return planned, present

    def _take(self, assignment: Assignment, tokens: Sequence[int], label: Hashable) -> None:
        place, _, length = assignment
        self._in_use[place], self._labels[place] = True, label
        self._tokens[place, : len(tokens)] = tokens
        self._tokens[place, len(tokens) :] = -1
        self.filled[place], self._planned[place] = length, len(tokens)

    def read(self, place: int, count: int) -> None:
        """Note that the next tokens of a place's text have been read."""
        self.filled[place] += count

    def write(self, place: int, tokens: Sequence[int]) -> None:
        """Note that tokens were added to a text that was read whole."""
        start = self.filled[place]
        self._tokens[place, start : start + len(tokens)] = tokens
        self.filled[place] = self._planned[place] = start + len(tokens)

    def keep(self, place: int, length: int) -> None:
        """End the use of a place, and keep the first tokens of its text if they can be continued."""
        if self._whole_only and length != self.filled[place]:
            length = 0
        self._clock += 1
        self._in_use[place], self._last_use[place] = False, self._clock if length else 0
        self.filled[place] = self._planned[place] = length

    def clear(self) -> None:
        """Drop the texts of all places that are not in use."""
        parked = ~self._in_use
        self.filled[parked] = self._planned[parked] = self._last_use[parked] = 0
