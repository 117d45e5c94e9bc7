"""The prompts of each step, from rows in memory or from a stream.

In both cases a batch is a pure function of the configuration, the rows and the step. Rows in memory are looked up. A
stream is only read forward, so a resumed run first reads again all rows that it has already used.
"""

import collections
import concurrent.futures
import functools
import hashlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent_tunix.config.data_sets import DataSet, data_sets
from agent_tunix.config.schema import Config
from agent_tunix.data import (
    Dropped,
    Example,
    Interleaving,
    Order,
    endless,
    is_held_out,
    iter_examples,
    nothing_left,
    set_seeds,
    shuffle_within,
)
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.prompt_lengths import EpisodeOverhead
from agent_tunix.data.prompting import Prompts, encode_examples
from agent_tunix.errors import DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer

_LOGGER = logging.getLogger("agent_tunix.run")
# Rows of a stream that are encoded together.
_ENCODED_AT_ONCE = 256
# Number of recent batches of a stream to keep. A step may use the batches of later steps, which then use them again.
_BATCHES_KEPT = 32


class Batches(Protocol):
    """The prompts of every step."""

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        ...

    def batch(self, step: int) -> PromptBatch:
        """Return the prompts of a step, from 1 to `num_steps`."""
        ...

    def fingerprint(self, step: int) -> str:
        """Return a hash of the rows that the batches up to a step depend on; a resumed run must find the same."""
        ...


@dataclass(frozen=True)
class LoadedBatches:
    """Batches of rows that are all in memory."""

    prompts: Prompts  # all prompts that can be drawn
    order: Order  # chooses the rows of each batch

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        return self.order.num_steps

    def batch(self, step: int) -> PromptBatch:
        """Return the prompts of a step."""
        return self.prompts.batch(self.order.batch_indices(step))

    def fingerprint(self, step: int) -> str:
        """Return a hash of all problems and references in order; it does not depend on the step."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        return _digest(b"", self.prompts.examples).hex()[:16]


class PrefetchedBatches:
    """Batches made ahead: while a step runs, another thread makes the batch of the next step.

    An error in the thread is raised when its batch is requested.

    Args:
        batches: Makes the batches. Nothing else may use it afterwards.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="prompts")
        self._ahead: tuple[int, concurrent.futures.Future[PromptBatch]] | None = None

    @property
    def num_steps(self) -> int:
        """Steps of the run."""
        return self._batches.num_steps

    def batch(self, step: int) -> PromptBatch:
        """Return the prompts of a step, and start to make those of the next."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == step:
            prepared = ahead[1].result()
        else:
            prepared = self._pool.submit(self._batches.batch, step).result()
        if step < self.num_steps:
            self._ahead = step + 1, self._pool.submit(self._batches.batch, step + 1)
        return prepared

    def fingerprint(self, step: int) -> str:
        """Return a hash of the rows that the batches up to a step depend on; it waits for a batch in progress."""
        return self._pool.submit(self._batches.fingerprint, step).result()


class _Item(NamedTuple):
    """An example, its conversation and its encoded prompt."""

    example: Example
    messages: Sequence[dict[str, str]]
    token_ids: Sequence[int]


class _Taken(NamedTuple):
    """The batch of a step, and a hash of all rows up to it."""

    items: Sequence[_Item]
    digest: bytes


class StreamedBatches:
    """Batches of rows that are read, encoded and shuffled within a buffer when steps need them.

    Each set of a mixture is a stream of its own; the streams take turns by weight. A stream that ends starts again.

    Args:
        config: The run's configuration; `training.num_batches` sets its length.
        tokenizer: The policy's tokenizer.
        overhead: Measures what the tools of environments add; None for completions of one turn.

    Raises:
        DataError: Raised while a batch is made: a file cannot be read, or a set has no usable row.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer, overhead: EpisodeOverhead | None = None) -> None:
        assert config.training.num_batches is not None  # the configuration's checks require it
        self.num_steps = config.training.num_epochs * config.training.num_batches
        self._config = config
        self._tokenizer = tokenizer
        self._overhead = overhead
        self._sets = _sets_of(config)
        self._dropped = {name: Dropped() for name in self._sets}
        self._reader = self._read(counted=True)
        self._fault: DataError | None = None
        self._last_step = 0
        self._kept: collections.OrderedDict[int, _Taken] = collections.OrderedDict()

    def batch(self, step: int) -> PromptBatch:
        """Return the prompts of a step. For a step whose batch is no longer kept, read the data from the beginning."""
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        items = self._take(step).items
        return _prompts_of(items).batch(range(len(items)))

    def first_prompts(self, count: int) -> Prompts:
        """Return the first distinct problems that the steps of the run use, in order; at most `count`."""
        size = self._config.training.batch_size
        items: dict[str, _Item] = {}
        for batch in itertools.islice(self._read(), min(self.num_steps, -(-count // size))):
            items |= {item.example.prompt: item for item in batch.items if item.example.prompt not in items}
        return _prompts_of(list(items.values())[:count])

    def fingerprint(self, step: int) -> str:
        """Return a hash of the problems and references of all batches up to the step, in order."""
        return (self._take(step).digest if step else b"").hex()[:16]

    def _take(self, step: int) -> _Taken:
        if step <= self._last_step and step not in self._kept:
            return next(itertools.islice(self._read(), step - 1, None))
        while self._last_step < step:
            if self._fault is not None:  # a generator that has failed yields nothing more
                raise self._fault
            try:
                self._kept[self._last_step + 1] = next(self._reader)
            except DataError as error:
                self._fault = error
                raise
            self._last_step += 1
            if len(self._kept) > _BATCHES_KEPT:
                self._kept.popitem(last=False)
            if self._last_step == self.num_steps:
                self._tell_dropped()
        return self._kept[step]

    def _read(self, *, counted: bool = False) -> Iterator[_Taken]:
        """Yield batches from the beginning of the data; with `counted`, log the rows that are dropped."""
        interleaving = Interleaving(tuple(one.weight for one in self._sets.values()))
        streams = [
            endless(functools.partial(self._read_pass, name, one.config, set_seeds(self._config, number), counted))
            for number, (name, one) in enumerate(self._sets.items())
        ]
        size, digest = self._config.training.batch_size, b""
        for first in itertools.count(step=size):
            items = [next(streams[number]) for number in interleaving.draws(first, first + size)]
            digest = _digest(digest, [item.example for item in items])
            yield _Taken(items, digest)

    def _read_pass(
        self, name: str | None, config: Config, seeds: tuple[int, ...], counted: bool, number: int
    ) -> Iterator[_Item]:
        """Yield the usable rows of one pass over a set, shuffled; raise DataError if the set has no usable row."""
        dropped = self._dropped[name] if counted and number == 0 else Dropped()
        items = self._encode(name, config, dropped, tell=counted and number == 0)
        if config.data.shuffle:
            items = shuffle_within(items, config.data.shuffle_buffer, (*seeds, number))
        first = next(items, None)
        if first is None:
            raise nothing_left("train", dropped, name)
        yield first
        yield from items

    def _encode(self, name: str | None, config: Config, dropped: Dropped, *, tell: bool) -> Iterator[_Item]:
        examples = iter_examples(config, "train", dropped, name)
        if config.training.train_fraction < 1.0:
            examples = (example for example in examples if not is_held_out(example, self._config))
        reasons: set[str] = set()
        while chunk := list(itertools.islice(examples, _ENCODED_AT_ONCE)):
            prompts = encode_examples(chunk, self._tokenizer, self._config, may_be_empty=True, overhead=self._overhead)
            dropped.absorb(prompts.dropped)
            if tell and (new := dropped.counts.keys() - reasons):
                reasons |= new
                _LOGGER.warning("some streamed rows are dropped: %s", dropped.describe())
            yield from map(_Item, prompts.examples, prompts.messages, prompts.token_ids)

    def _tell_dropped(self) -> None:
        for name, dropped in self._dropped.items():
            if dropped.total:
                whose = dropped.origin or "the source" if name is None else f"data.mixture.{name}"
                _LOGGER.warning("dropped rows of %s in the first pass: %s", whose, dropped.describe())


def _sets_of(config: Config) -> dict[str | None, DataSet]:
    """Return the sets of a mixture by name; a single set has the key None."""
    sets: dict[str | None, DataSet] = {}
    sets.update(data_sets(config))
    return sets or {None: DataSet(1.0, config)}


def _prompts_of(items: Sequence[_Item]) -> Prompts:
    return Prompts(
        [item.example for item in items],
        [item.messages for item in items],
        [item.token_ids for item in items],
        Dropped(),
    )


def _digest(before: bytes, examples: Iterable[Example]) -> bytes:
    """Return a hash of problems, conversations and columns in order, chained to the hash of those before."""
    digest = hashlib.sha256(before)
    for example in examples:
        digest.update(json.dumps([example.prompt, example.messages, example.columns], default=str).encode())
    return digest.digest()
