"""The cache of continuous batching and its programs, in a few numbers of rows and slots.

Each size needs a compiled program of its own. A larger program than needed takes its place until the right one has been
wanted often enough to repay its compilation.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import numpy as np

from agent_tunix.planning.cache_plan import LONGEST_PIECE
from agent_tunix.policy.mesh import fetch
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.places import PieceInputs, WritingInputs, copy_place, new_places, read_pieces, write_tokens

# Lengths of pieces, and the most tokens that a program reads in all its rows together. Rows that write wait for it.
PIECES = (32, 128, LONGEST_PIECE)
_TOKENS_TO_READ = LONGEST_PIECE
# Slots of the shortest window; each other window is twice as long as the next shorter one.
_SHORTEST_WINDOW = 64
# Calls of larger programs after which the right one is compiled.
_CALLS_THAT_REPAY = 40

_NEW_PLACES = jax.jit(new_places, static_argnames=("num_places", "num_slots"))
_COPY_PLACE = jax.jit(copy_place, donate_argnums=0)
_READ_PIECES = jax.jit(read_pieces, static_argnames=("window", "num_alternatives"), donate_argnums=2)
_WRITE_TOKENS = jax.jit(
    write_tokens,
    static_argnames=("num_tokens", "window", "pad_id", "eos_ids", "num_alternatives"),
    donate_argnums=2,
)


class PlacePrograms:
    """The places of a cache, and the programs that use them.

    Args:
        num_places: Number of places.
        max_context: Maximum tokens of a text.
        num_tokens: Tokens that a row writes at most in a call.
        pad_id: Padding id.
        eos_ids: Ids that end a row.
    """

    def __init__(
        self, num_places: int, max_context: int, num_tokens: int, pad_id: int, eos_ids: tuple[int, ...]
    ) -> None:
        self.num_places = num_places
        self.pieces = [PIECES[0], *(length for length in PIECES[1:] if length <= max_context)]
        self._writing: dict[str, Any] = {"num_tokens": num_tokens, "pad_id": pad_id, "eos_ids": eos_ids}
        # A program writes its slots after those filled, whether all have a token or not.
        self._num_slots = max_context + max(self.pieces[-1], num_tokens)
        self._windows = _windows(max_context)
        # Of each policy: the programs that are compiled, and how often which would have been the right one.
        self._ready: WeakKeyDictionary[Parts, set[_Program]] = WeakKeyDictionary()
        self._calls: WeakKeyDictionary[Parts, Counter[_Program]] = WeakKeyDictionary()
        self._places: Any = None

    @property
    def is_empty(self) -> bool:
        """True if there is no cache yet, or no more."""
        return self._places is None

    def start(self, policy: Parts) -> None:
        """Make an empty cache."""
        self._places = _NEW_PLACES(*policy.split(), num_places=self.num_places, num_slots=self._num_slots)

    def drop(self) -> None:
        """Give up the cache."""
        self._places = None

    def copy(self, source: int, target: int) -> None:
        """Copy a place to another."""
        self._places = _COPY_PLACE(self._places, np.int32(source), np.int32(target))

    def next_fewer_rows(self, num_rows: int) -> int:
        """Return the rows of the largest program that writes fewer than these; 0 if there is none."""
        return max((size for size in _sizes(self.num_places) if size < num_rows), default=0)

    def most_readers(self, length: int) -> int:
        """Return the maximum number of rows that read pieces of a length in a call."""
        return max(1, _TOKENS_TO_READ // length)

    def read(
        self,
        policy: Parts,
        make_inputs: Callable[[int], PieceInputs],
        filled: Sequence[int],
        length: int,
        num_alternatives: int | None = None,
    ) -> Any:
        """Read a piece in each row; see `read_pieces`.

        Args:
            policy: The policy.
            make_inputs: Function that returns the inputs of a program of some rows.
            filled: Tokens that the places of the rows hold.
            length: Length of the pieces.
            num_alternatives: Likeliest tokens to report with log-probabilities; None for neither.
        """
        sizes = _sizes(self.most_readers(length), factor=4)
        n, window = self._choose(policy, (length, num_alternatives), sizes, len(filled), max(filled))
        statics = {"window": window, "num_alternatives": num_alternatives}
        self._places, scores = _READ_PIECES(*policy.split(), self._places, make_inputs(n), **statics)
        return fetch(scores)

    def write(
        self,
        policy: Parts,
        make_inputs: Callable[[int], WritingInputs],
        filled: Sequence[int],
        num_alternatives: int = 0,
    ) -> Any:
        """Write some tokens in each row; see `write_tokens` and `read`."""
        sizes = _sizes(self.num_places)
        n, window = self._choose(policy, (0, num_alternatives), sizes, len(filled), max(filled))
        statics = {"window": window, "num_alternatives": num_alternatives, **self._writing}
        self._places, turn = _WRITE_TOKENS(*policy.split(), self._places, make_inputs(n), **statics)
        return fetch(turn)

    def _choose(
        self, policy: Parts, kind: tuple[int, int | None], sizes: Sequence[int], num_rows: int, longest: int
    ) -> tuple[int, int]:
        """Return the number of rows and slots of the program to use."""
        best = _Program(kind, _fitting(sizes, num_rows), _fitting(self._windows, longest))
        ready, calls = self._ready.setdefault(policy, set()), self._calls.setdefault(policy, Counter())
        calls[best] += 1
        larger = [
            program
            for program in ready
            if program.kind == kind and program.n >= best.n and program.window >= best.window
        ]
        if larger and calls[best] < _CALLS_THAT_REPAY:
            best = min(larger, key=lambda program: program.n * program.window)
        ready.add(best)
        return best.n, best.window


class _Program(NamedTuple):
    """A compiled program.

    Attributes:
        kind: Length of pieces, 0 to write, and the number of alternatives.
        n: Number of rows.
        window: Number of slots.
    """

    kind: tuple[int, int | None]
    n: int
    window: int


def _sizes(most: int, factor: int = 0) -> list[int]:
    """Return the numbers of rows that programs have, from 1 to the largest.

    A step of few rows costs an accelerator as much as one of more. On a CPU the cost falls with the rows.

    Args:
        most: Largest number.
        factor: Quotient of neighbouring numbers; by default the one that suits the platform.
    """
    factor = factor or (2 if jax.default_backend() == "cpu" else 4)
    sizes = [most]
    while sizes[0] > 4:
        sizes.insert(0, -(-sizes[0] // factor))
    return [1, *sizes] if sizes[0] > 1 else sizes


def _windows(max_context: int) -> list[int]:
    """Return the numbers of slots that programs read, from the shortest to the longest."""
    windows = [min(_SHORTEST_WINDOW, max_context)]
    while windows[-1] < max_context:
        windows.append(min(2 * windows[-1], max_context))
    return windows


def _fitting(sizes: Sequence[int], number: int) -> int:
    """Return the first of the sizes that holds a number."""
    return next(size for size in sizes if size >= number)
