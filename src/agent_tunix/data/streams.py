"""Streams of rows: a shuffle within a bounded buffer, and repeated passes."""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from agent_tunix.data.batches import permute

T = TypeVar("T")


def shuffle_within(items: Iterator[T], size: int, seeds: tuple[int, ...]) -> Iterator[T]:
    """Yield the items in a random order that depends only on the seeds.

    A buffer holds `size` items. Each draw yields one of these at random, and the next item takes its place; the rest
    come in random order at the end. So an item comes at most `size` places early, but may come arbitrarily late.
    """
    random = np.random.PCG64(list(seeds))
    held = list(itertools.islice(items, size))
    for item in items:
        place = int(random.random_raw()) % size
        yield held[place]
        held[place] = item
    for place in permute(np.arange(len(held)), *seeds, 1):
        yield held[place]


def endless(read_pass: Callable[[int], Iterator[T]]) -> Iterator[T]:
    """Return an iterator that repeats passes over a source forever.

    Args:
        read_pass: Receives the number of a pass, counted from 0, and returns its items, at least one.
    """
    return itertools.chain.from_iterable(map(read_pass, itertools.count()))
