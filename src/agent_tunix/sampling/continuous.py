"""Continuous batching: requests join the rows that are being written at any time, and leave them when they end.

A thread calls `step` in a loop. Each step gives places to requests that wait, reads a piece of some prompts, and lets
all rows whose prompts are read write some tokens. A long prompt is read in pieces, so that it does not keep others
waiting.

The random numbers of a token depend only on its request's seed and its number in the reply, and each row attends only
to its own place. But programs for other numbers of rows, or other lengths of pieces and windows, may round differently,
and so does a token that is read in a prompt from one that was written. A token whose choice hangs on the last bit of a
number may then differ.
"""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from agent_tunix.errors import OverloadedError, RequestRefusedError
from agent_tunix.policy.mesh import fetch
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.kept_texts import KeptTexts
from agent_tunix.sampling.keys import Use, key_words
from agent_tunix.sampling.places import (
    PieceInputs,
    WritingInputs,
    copy_place,
    new_places,
    read_pieces,
    write_tokens,
)
from agent_tunix.sampling.requests import Alternatives, TokenReply, TokenRequest
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import KEEP_ALL, RowSampling

# Tokens that a program reads, in all its rows together. Rows that write wait for it.
_TOKENS_TO_READ = 512
# Lengths of pieces; a program for a longer one has fewer rows.
_PIECES = (32, 64, 128, 256)
# Slots of the shortest window that programs read; the others are multiples by 2.
_SHORTEST_WINDOW = 128
# A program has this many times as many rows as the next smaller one.
_FACTOR_OF_ROWS = 4
MOST_ALTERNATIVES = 20

_NEW_PLACES = jax.jit(new_places, static_argnames=("num_places", "num_slots"))
_COPY_PLACE = jax.jit(copy_place, donate_argnums=0)
_READ_PIECES = jax.jit(read_pieces, static_argnames=("window", "num_alternatives"), donate_argnums=2)
_WRITE_TOKENS = jax.jit(
    write_tokens,
    static_argnames=("num_tokens", "window", "pad_id", "eos_ids", "num_alternatives"),
    donate_argnums=2,
)
_IDLE_S = 0.5


@dataclass(frozen=True)
class SamplerCounts:
    """What a sampler has done since it was made.

    Attributes:
        requests: Requests that were answered.
        prompt_tokens: Tokens of their prompts, and of those being answered.
        cached_tokens: Those that did not have to be read.
        read_tokens: Tokens of prompts that were read.
        written_tokens: Tokens of replies.
        wasted_tokens: Tokens that were written after a stop string or stop token, and dropped.
        waiting: Requests that wait now.
        running: Requests that are being answered now.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    read_tokens: int = 0
    written_tokens: int = 0
    wasted_tokens: int = 0
    waiting: int = 0
    running: int = 0


@dataclass(eq=False)
class _Row:
    """A request, and what has been done for it."""

    request: TokenRequest
    future: Future[TokenReply]
    on_part: Callable[[TokenReply], None] | None
    key: np.ndarray
    place: int = -1
    version: int = 0
    num_cached: int = 0
    tokens: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    alternatives: list[Alternatives] = field(default_factory=list)
    prompt_logps: list[float | None] = field(default_factory=lambda: [None])
    prompt_alternatives: list[Alternatives] = field(default_factory=lambda: [()])

    @property
    def unread(self) -> int:
        """The token that the model reads next."""
        return self.tokens[-1] if self.tokens else self.request.prompt[-1]

    def reply(self, first: int, finish_reason: str | None) -> TokenReply:
        """Return the reply from a token on; the whole reply from 0."""
        is_whole, wants_logps = finish_reason is not None and first == 0, self.request.with_prompt_logps
        has_alternatives = wants_logps and self.request.num_alternatives > 0
        return TokenReply(
            tuple(self.tokens[first:]),
            tuple(self.logps[first:]),
            finish_reason,
            version=self.version,
            num_cached=self.num_cached,
            alternatives=tuple(self.alternatives[first:]),
            prompt_logps=tuple(self.prompt_logps) if is_whole and wants_logps else (),
            prompt_alternatives=tuple(self.prompt_alternatives) if is_whole and has_alternatives else (),
        )


class ContinuousSampler:
    """A source of tokens that samples any number of requests from a policy at a time.

    It shares the policy's weights, so that it samples from their current values. Requests may be submitted from any
    thread; one thread at a time may call `step`, `serve_until` or `serve_forever`.

    Args:
        sampler: Sampler of the policy. Its stop strings are not used.
        num_places: Requests that are answered at a time.
        max_context: Maximum tokens of a prompt and its reply together.
        max_waiting: Maximum requests that wait for a place.
        chunk_tokens: Tokens after which requests may join and leave.
        version: Function that returns the number of weight updates of the policy. Where it changes, nothing that was
            read before is used for new requests.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        num_places: int,
        max_context: int,
        max_waiting: int = 1024,
        chunk_tokens: int = 16,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        self.max_context = max_context
        self.num_places = num_places
        self._sampler = sampler
        self._max_waiting = max_waiting
        self._chunk = chunk_tokens
        self._version = version
        self._policies: dict[str | None, Parts] = {None: Parts(sampler.policy)}
        self._longest_piece = min(_PIECES[-1], _power_of_two(max_context, _PIECES[0]))
        self._num_slots = max_context + max(self._longest_piece, chunk_tokens)
        whole_only = "linear_attention" in sampler.policy.config.layer_kinds  # type: ignore[attr-defined]
        self._texts = KeptTexts(num_places, max_context, whole_only=whole_only)
        self._current_version = -1
        self._changed = threading.Condition()
        self._waiting: deque[_Row] = deque()
        self._reading: deque[_Row] = deque()
        self._writing: list[_Row] = []
        self._is_closed = False
        self._counts = dict.fromkeys(SamplerCounts.__dataclass_fields__, 0)
        self._places: Any = None

    # --- from any thread -------------------------------------------------------------------------------------------

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        self._check(request)
        seed = secrets.randbits(64) if request.seed is None else request.seed % 2**64
        words = key_words(seed % 2**32, Use.REQUEST, seed // 2**32)
        row = _Row(request, Future(), on_part, words)
        with self._changed:
            if self._is_closed:
                raise _closed()
            if len(self._waiting) >= self._max_waiting:
                raise OverloadedError(
                    f"at most {self._max_waiting} requests may wait, and as many do; send the request again later"
                )
            self._waiting.append(row)
            self._changed.notify_all()
        return row.future

    def _check(self, request: TokenRequest) -> None:
        """Refuse a request that cannot be answered.

        Raises:
            RequestRefusedError: A value is out of range.
        """
        top_k = request.top_k
        vocab_size = self._sampler.policy.config.vocab_size  # type: ignore[attr-defined]
        rules = {
            "prompt: at least one token": bool(request.prompt),
            f"prompt: ids from 0 to {vocab_size - 1}": all(0 <= token < vocab_size for token in request.prompt),
            "max_tokens: at least 1, or 0 with the prompt's log-probabilities": request.max_tokens
            >= (0 if request.with_prompt_logps else 1),
            "temperature: 0 or more, and finite": 0 <= request.temperature < float("inf"),
            "top_k: at least 1, or none": top_k is None or top_k >= 1,
            "top_p: above 0, at most 1": 0 < request.top_p <= 1,
            "min_p: at least 0, below 1": 0 <= request.min_p < 1,
            f"num_alternatives: from 0 to {MOST_ALTERNATIVES}": 0 <= request.num_alternatives <= MOST_ALTERNATIVES,
            "stop_strings: none of them empty": all(request.stop_strings),
        }
        for rule, holds in rules.items():
            if not holds:
                raise RequestRefusedError(f"a request must have {rule}; the request has another value")
        if request.adapter not in self._policies:
            raise RequestRefusedError(
                f"the adapter {request.adapter!r} must be loaded to sample from it, but it is not", code="no_adapter"
            )
        length = len(request.prompt) + request.max_tokens
        if length > self.max_context:
            raise RequestRefusedError(
                f"prompt and reply may have {self.max_context} tokens together, but the prompt has "
                f"{len(request.prompt)} and the reply up to {request.max_tokens}; shorten one of them",
                code="context_exceeded",
            )

    @property
    def counts(self) -> SamplerCounts:
        """What the sampler has done."""
        with self._changed:
            running = len(self._reading) + len(self._writing)
            return SamplerCounts(**{**self._counts, "waiting": len(self._waiting), "running": running})

    def wake(self) -> None:
        """Let `serve_until` and `serve_forever` look at their conditions."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Fail all requests that were not answered, and refuse new ones. No thread may be in `step`."""
        with self._changed:
            self._is_closed = True
        self._fail(_closed())
        self._places = None
        self.wake()

    # --- in the thread that samples --------------------------------------------------------------------------------

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Answer requests until a condition holds, which is looked at after each step and each `wake`."""
        while not is_done():
            if not self.step():
                self._wait(is_done)

    def serve_forever(self, stop: threading.Event) -> None:
        """Answer requests until an event is set and `wake` called. After an error, later requests are tried again."""
        while not stop.is_set():
            try:
                self.serve_until(stop.is_set)
            except Exception:  # the requests have failed with it
                time.sleep(_IDLE_S)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        with self._changed:
            if not self._waiting and not is_done():
                self._changed.wait(_IDLE_S)

    def run_pending(self) -> None:
        """Answer all requests that were submitted."""
        while self.step():
            pass

    def step(self) -> bool:
        """Read some tokens of prompts, and write some of replies.

        Returns:
            True if there was anything to do.

        Raises:
            Exception: Whatever failed. All requests that were not answered fail with it.
        """
        try:
            self._follow_weights()
            self._drop_cancelled()
            self._admit()
            did_read = self._read_next()
            if did_read:
                self._admit()  # rows that begin with a prompt that was just read, before it is continued
            did_write = self._write_next()
        except BaseException as error:
            self._places = None
            self._fail(error)
            raise
        return did_read or did_write

    def _follow_weights(self) -> None:
        version = self._version()
        if self._current_version != version:
            self._texts.clear()
            self._current_version = version
        if self._places is None:
            self._texts.clear()
            self._places = _NEW_PLACES(
                *self._policies[None].split(), num_places=self.num_places, num_slots=self._num_slots
            )

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            rows = [*self._waiting, *self._reading, *self._writing]
            for queue in (self._waiting, self._reading, self._writing):
                queue.clear()
        for row in rows:
            if row.place >= 0:
                self._texts.keep(row.place, 0)
            if row.future.set_running_or_notify_cancel():
                row.future.set_exception(error)

    def _drop_cancelled(self) -> None:
        for queue in (self._waiting, self._reading, self._writing):
            with self._changed:
                cancelled = [row for row in queue if row.future.cancelled()]
                for row in cancelled:
                    queue.remove(row)
            for row in cancelled:
                if row.place >= 0:
                    self._texts.keep(row.place, int(self._texts.filled[row.place]))
                row.future.set_running_or_notify_cancel()

    # --- places ----------------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Give places to requests that wait, in order of their arrival."""
        with self._changed:
            rows = list(self._waiting)
        for row in rows:
            request, version = row.request, self._current_version
            # Log-probabilities of a prompt need all of it to be read; a label of its own shares nothing.
            label: Hashable = object() if request.with_prompt_logps else (request.adapter, version)
            assignment = self._texts.assign(request.prompt[:-1], label)
            if assignment is None:
                if self._texts.is_full:
                    return
                continue
            if assignment.source is not None:
                self._places = _COPY_PLACE(self._places, np.int32(assignment.source), np.int32(assignment.place))
            row.place, row.num_cached, row.version = assignment.place, assignment.length, version
            with self._changed:
                self._waiting.remove(row)
                (self._reading if self._num_unread(row) else self._writing).append(row)
                self._counts["prompt_tokens"] += len(request.prompt)
                self._counts["cached_tokens"] += row.num_cached

    def _num_unread(self, row: _Row) -> int:
        """Return the tokens of a prompt that are to be read, without the last, with which the reply begins."""
        return len(row.request.prompt) - 1 - int(self._texts.filled[row.place])

    def _window(self, rows: Sequence[_Row]) -> int:
        longest = max(int(self._texts.filled[row.place]) for row in rows)
        return min(self.max_context, _power_of_two(longest, _SHORTEST_WINDOW))

    # --- reading ---------------------------------------------------------------------------------------------------

    def _read_next(self) -> bool:
        """Read a piece of the prompts that have waited longest."""
        if not self._reading:
            return False
        first = self._reading[0]
        kind = _reading_kind(first.request)
        C = min(self._longest_piece, _power_of_two(self._num_unread(first), _PIECES[0]))
        rows = [row for row in self._reading if _reading_kind(row.request) == kind][: max(1, _TOKENS_TO_READ // C)]
        inputs = self._pieces(rows, C)
        num_alternatives = MOST_ALTERNATIVES if kind[2] else 0
        self._places, scores = _READ_PIECES(
            *self._policies[first.request.adapter].split(),
            self._places,
            inputs,
            window=self._window(rows),
            num_alternatives=num_alternatives if kind[1] else None,
        )
        scores = fetch(scores)
        for number, row in enumerate(rows):
            length = int(inputs.lengths[number])
            self._texts.read(row.place, length)
            if row.request.with_prompt_logps:
                self._add_scores(row, jax.tree.map(lambda x: x[number, :length], scores))  # noqa: B023
        with self._changed:
            self._counts["read_tokens"] += int(inputs.lengths.sum())
            for row in rows:
                self._reading.remove(row)
                (self._reading if self._num_unread(row) else self._writing).append(row)
        return True

    def _pieces(self, rows: Sequence[_Row], length: int) -> PieceInputs:
        n = max(1, _TOKENS_TO_READ // length)
        inputs = PieceInputs(
            places=self.num_places + np.arange(n, dtype=np.int32),
            filled=np.zeros(n, np.int32),
            tokens=np.full((n, length), self._sampler.pad_id, np.int32),
            lengths=np.zeros(n, np.int32),
            targets=np.zeros((n, length), np.int32),
            temperature=np.ones(n, np.float32),
        )
        for number, row in enumerate(rows):
            start = int(self._texts.filled[row.place])
            piece = row.request.prompt[start : start + length + 1]
            count = min(length, len(piece) - 1)
            inputs.places[number], inputs.filled[number], inputs.lengths[number] = row.place, start, count
            inputs.tokens[number, :count], inputs.targets[number, :count] = piece[:count], piece[1 : count + 1]
            inputs.temperature[number] = row.request.temperature or 1.0
        return inputs

    def _add_scores(self, row: _Row, scores: Any) -> None:
        logps, ids, alternatives = scores
        row.prompt_logps += logps.tolist()
        if row.request.num_alternatives:
            row.prompt_alternatives += _alternatives(ids, alternatives, row.request.num_alternatives)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _write_next(self) -> bool:
        """Let all rows write some tokens, those of each adapter in turn."""
        did_write = bool(self._writing)
        for adapter in sorted({row.request.adapter for row in self._writing}, key=str):
            rows = [row for row in self._writing if row.request.adapter == adapter]
            self._write([row for row in rows if row.request.max_tokens > 0], adapter)
            for row in rows:
                if row.request.max_tokens == 0:
                    self._finish(row, "length")
        return did_write

    def _write(self, rows: Sequence[_Row], adapter: str | None) -> None:
        if not rows:
            return
        inputs = self._writing_inputs(rows)
        wants_alternatives = any(row.request.num_alternatives for row in rows)
        self._places, turn = _WRITE_TOKENS(
            *self._policies[adapter].split(),
            self._places,
            inputs,
            num_tokens=self._chunk,
            window=self._window(rows),
            pad_id=self._sampler.pad_id,
            eos_ids=self._sampler.eos_ids,
            num_alternatives=MOST_ALTERNATIVES if wants_alternatives else 0,
        )
        turn = fetch(turn)
        for number, row in enumerate(rows):
            length, start = int(turn.lengths[number]), len(row.tokens)
            written = turn.tokens[number, :length].tolist()
            self._texts.write(row.place, [row.unread, *written[:-1]])
            row.tokens += written
            row.logps += turn.logps[number, :length].tolist()
            if row.request.num_alternatives:
                ids, logps = (x[number, :length] for x in turn.likeliest)
                row.alternatives += _alternatives(ids, logps, row.request.num_alternatives)
            self._hand_on(row, start, ended=bool(turn.ended[number]))

    def _writing_inputs(self, rows: Sequence[_Row]) -> WritingInputs:
        n = self.num_places
        while -(-n // _FACTOR_OF_ROWS) >= len(rows) and n > 1:
            n = -(-n // _FACTOR_OF_ROWS)
        requests = [row.request for row in rows]

        def column(values: Sequence[Any], padding: Any, dtype: Any) -> np.ndarray:
            return np.array([*values, *[padding] * (n - len(rows))], dtype)

        places = self.num_places + np.arange(n, dtype=np.int32)
        places[: len(rows)] = [row.place for row in rows]
        return WritingInputs(
            places=places,
            filled=column([self._texts.filled[row.place] for row in rows], 0, np.int32),
            tokens=column([row.unread for row in rows], self._sampler.pad_id, np.int32),
            limits=column([row.request.max_tokens - len(row.tokens) for row in rows], 0, np.int32),
            written=column([len(row.tokens) for row in rows], 0, np.int32),
            keys=column([row.key for row in rows], np.zeros(2, np.uint32), np.uint32),
            sampling=RowSampling(
                temperature=column([request.temperature or 1.0 for request in requests], 1, np.float32),
                top_k=column([request.top_k or KEEP_ALL for request in requests], KEEP_ALL, np.int32),
                top_p=column([request.top_p for request in requests], 1, np.float32),
                min_p=column([request.min_p for request in requests], 0, np.float32),
                greedy=column([request.temperature == 0 for request in requests], False, np.bool_),
            ),
        )

    def _hand_on(self, row: _Row, start: int, *, ended: bool) -> None:
        """End a reply at its first stop, and give its new tokens to whoever reads along."""
        request = row.request
        end = self._find_stop(row, start)
        if end is not None:
            with self._changed:
                self._counts["wasted_tokens"] += len(row.tokens) - end
            for each in (row.tokens, row.logps, row.alternatives):
                del each[end:]
            ended = True
        finish_reason = "stop" if ended else "length" if len(row.tokens) == request.max_tokens else None
        with self._changed:
            self._counts["written_tokens"] += len(row.tokens) - start
        if row.on_part is not None and not row.future.cancelled():
            try:
                row.on_part(row.reply(start, finish_reason))
            except Exception as error:  # who reads along has failed, not the others
                self._finish(row, "stop", error)
                return
        if finish_reason is not None:
            self._finish(row, finish_reason)

    def _find_stop(self, row: _Row, start: int) -> int | None:
        """Return the number of tokens up to the first stop token or stop string; None without one."""
        request = row.request
        found = [number + 1 for number in range(start, len(row.tokens)) if row.tokens[number] in request.stop_ids]
        if request.stop_strings:
            limit = found[0] if found else len(row.tokens)
            for end in range(start + 1, limit + 1):
                text = self._sampler.tokenizer.decode(row.tokens[:end])
                if any(stop in text for stop in request.stop_strings):
                    return end
        return found[0] if found else None

    def _finish(self, row: _Row, finish_reason: str, error: Exception | None = None) -> None:
        self._writing.remove(row)
        length = len(row.request.prompt) - 1 + len(row.tokens)
        self._texts.keep(row.place, min(length, int(self._texts.filled[row.place])))
        with self._changed:
            self._counts["requests"] += 1
        if row.future.set_running_or_notify_cancel():
            if error is None:
                row.future.set_result(row.reply(0, finish_reason))
            else:
                row.future.set_exception(error)


def _closed() -> OverloadedError:
    return OverloadedError("the sampler must be open to answer a request, but it was closed", code="closed")


def _power_of_two(length: int, smallest: int) -> int:
    """Return the smallest multiple of `smallest` by a power of two that holds `length`."""
    while smallest < length:
        smallest *= 2
    return smallest


def _reading_kind(request: TokenRequest) -> tuple[str | None, bool, bool]:
    """Return what requests must have in common to be read by one program."""
    wants_logps = request.with_prompt_logps
    return request.adapter, wants_logps, wants_logps and request.num_alternatives > 0


def _alternatives(ids: np.ndarray, logps: np.ndarray, count: int) -> list[Alternatives]:
    """Return the likeliest tokens at each place."""
    pairs = zip(ids[:, :count].tolist(), logps[:, :count].tolist(), strict=True)
    return [tuple(zip(*pair, strict=True)) for pair in pairs]
