"""Rows that are read as they are needed: a shuffle that holds no more than a buffer of them."""

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from agent_tunix.data.batches import permute

T = TypeVar("T")


def shuffle_within(items: Iterator[T], size: int, seeds: tuple[int, ...]) -> Iterator[T]:
    """The items in a random order that follows from the seeds alone.

    `size` of them are held. Each draw gives one of these at random, and the next item takes its place; those that are
    left at the end come in random order. So an item comes at most `size` places early, and as late as chance has it.
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
    """Pass after pass over a source, without end.

    Args:
        read_pass: The items of a pass, at least one, given its number from 0.
    """
    return itertools.chain.from_iterable(map(read_pass, itertools.count()))
