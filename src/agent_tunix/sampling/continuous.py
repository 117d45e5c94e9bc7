"""Continuous batching: requests join the rows that are being written at any time, and leave them when they end.

A thread calls `step` in a loop. Each step gives places to requests that wait, reads a piece of some prompts, and lets
all rows whose prompts are read write some tokens. A long prompt is read in pieces, so that it does not keep others
waiting.

The random numbers of a token depend only on its request's seed and its number in the reply, and each row attends only
to its own place. But programs for other numbers of rows, or other lengths of pieces and windows, may round differently,
and so does a token that is read in a prompt from one that was written. A token whose choice hangs on the last bit of a
number may then differ.
"""

import logging
import secrets
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import jax

from agent_tunix.errors import ModelError, OverloadedError, RequestRefusedError
from agent_tunix.policy.files.adapter_files import read_adapter
from agent_tunix.policy.model import replace_weights
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.kept_texts import KeptTexts
from agent_tunix.sampling.keys import Use, key_words
from agent_tunix.sampling.place_programs import PlacePrograms
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.served_rows import ServedRow, make_piece_inputs, make_writing_inputs

# A text of up to this many times a piece is read in several of them, because a longer piece has more padding.
_PIECES_OF_TEXT = 3
# Calls that read in a step, while more than one row reads.
_MOST_READINGS = 8
MOST_ALTERNATIVES = 20
_IDLE_S = 0.5

_LOGGER = logging.getLogger("agent_tunix.serving")


@dataclass(frozen=True)
class _Load:
    """Weights to load."""

    directory: Path
    version: int
    future: Future[None]


class ContinuousSampler:
    """A source of tokens that samples any number of requests from a policy at a time.

    It shares the policy's weights, so that it samples from their current values. Requests may be submitted from any
    thread; one thread at a time may call `step`, `serve_until` or `serve_forever`.

    Args:
        sampler: Sampler of the policy. Its stop strings are not used.
        num_places: Requests that are answered at a time.
        max_context: Maximum tokens of a prompt and its reply together.
        max_waiting: Maximum requests that wait while all places are taken.
        chunk_tokens: Tokens after which requests may join and leave.
        version: Function that returns the number of weight updates of the policy. Where it changes, nothing that was
            read before is used for new requests.

    Attributes:
        counts: Tokens of prompts (`prompt`), those of them that did not have to be read (`cached`) and that were
            (`read`), and tokens of replies (`written`).
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
        self._version = version
        self._policies: dict[str | None, Parts] = {None: Parts(sampler.policy)}
        whole_only = "linear_attention" in sampler.policy.config.layer_kinds  # type: ignore[attr-defined]
        self._texts = KeptTexts(num_places, max_context, whole_only=whole_only)
        self._current_version = -1
        self._changed = threading.Condition()
        self._waiting: deque[ServedRow] = deque()
        self._reading: deque[ServedRow] = deque()
        self._writing: list[ServedRow] = []
        self._loads: deque[_Load] = deque()
        self._is_closed = False
        self.counts: Counter[str] = Counter()
        self._programs = PlacePrograms(num_places, max_context, chunk_tokens, sampler.pad_id, sampler.eos_ids)

    # --- from any thread -------------------------------------------------------------------------------------------

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt; see `TokenSource`."""
        self._check(request)
        policy = self._policies.get(request.adapter)
        if policy is None:
            raise RequestRefusedError(
                f"the adapter {request.adapter!r} must be loaded to sample from it, but it is not", code="no_adapter"
            )
        seed = secrets.randbits(64) if request.seed is None else request.seed % 2**64
        words = key_words(seed % 2**32, Use.REQUEST, seed // 2**32)
        row = ServedRow(request, policy, words, on_part)
        with self._changed:
            if self._is_closed:
                raise _closed()
            num_busy = len(self._reading) + len(self._writing)
            if num_busy + len(self._waiting) >= self.num_places + self._max_waiting:
                raise OverloadedError(
                    f"at most {self._max_waiting} requests may wait, and as many do; send the request again later"
                )
            self._waiting.append(row)
            self._changed.notify_all()
        return row.future

    def _check(self, request: TokenRequest) -> None:
        """Refuse a request that cannot be answered.

        Raises:
            RequestRefusedError: It has no prompt, unknown ids, or more tokens than the context.
        """
        vocab_size = self._sampler.policy.config.vocab_size  # type: ignore[attr-defined]
        if not request.prompt or not all(0 <= token < vocab_size for token in request.prompt):
            raise RequestRefusedError(f"a prompt must have one or more ids from 0 to {vocab_size - 1}, but has others")
        length = len(request.prompt) + request.max_tokens
        if length > self.max_context:
            raise RequestRefusedError(
                f"prompt and reply may have {self.max_context} tokens together, but the prompt has "
                f"{len(request.prompt)} and the reply up to {request.max_tokens}; shorten one of them",
                code="context_exceeded",
            )

    def load_adapter(self, name: str, directory: Path) -> None:
        """Answer requests that name an adapter with the policy and that adapter, whose base both share.

        Args:
            name: Name of the adapter. Another one of that name answers no new request.
            directory: Directory in PEFT's format.

        Raises:
            ModelError: The directory has no adapter of this model.
        """
        model = read_adapter(cast(Decoder, self._sampler.policy), directory, self._sampler.mesh)
        self._policies[name] = Parts(model)

    def unload_adapter(self, name: str) -> None:
        """Refuse new requests that name an adapter; those that were submitted are still answered.

        Raises:
            RequestRefusedError: There is no such adapter.
        """
        if self._policies.pop(name, None) is None:
            raise RequestRefusedError(f"an adapter must be loaded to unload it, but {name!r} is not", code="no_adapter")

    def load_weights(self, directory: Path, version: int) -> Future[None]:
        """Sample with other weights from when the requests that are being answered have ended.

        Adapters are forgotten, because their base is replaced.

        Args:
            directory: Hugging Face directory of the same model.
            version: Number of the weights, which replies then have.

        Returns:
            A future that is done when the weights are in use. If they do not fit, it fails with ModelError, and the
            weights stay as they were unless a file is damaged.
        """
        load = _Load(directory, version, Future())
        with self._changed:
            if self._is_closed:
                raise _closed()
            self._loads.append(load)
            self._changed.notify_all()
        return load.future

    @property
    def adapters(self) -> list[str]:
        """The names of the adapters."""
        return sorted(name for name in list(self._policies) if name is not None)  # another thread may add one

    def wake(self) -> None:
        """Let `serve_until` and `serve_forever` look at their conditions."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Fail all requests that were not answered, and refuse new ones. No thread may be in `step`."""
        with self._changed:
            self._is_closed = True
        self._fail(_closed())
        self._programs.drop()
        self.wake()

    # --- in the thread that samples --------------------------------------------------------------------------------

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Answer requests until a condition holds, which is looked at after each step and each `wake`.

        If nothing is being answered then, the cache is given up, so that its memory is free for a training step.
        """
        while not is_done():
            if not self.step():
                self._wait(is_done)
        self._drop_cancelled()
        if not self._reading and not self._writing:
            self._programs.drop()

    def serve_forever(self, stop: threading.Event) -> None:
        """Answer requests until an event is set and `wake` called. After an error, later requests are tried again."""
        while not stop.is_set():
            try:
                self.serve_until(stop.is_set)
            except Exception:  # the requests have failed with it
                _LOGGER.exception("sampling failed, and so did the requests that waited; later ones are tried again")
                time.sleep(_IDLE_S)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        with self._changed:
            if not self._waiting and not self._loads and not is_done():
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
            self._drop_cancelled()
            did_load = self._load_weights()
            self._follow_weights()
            self._admit()
            did_read = self._read_next()
            # Few rows write as slowly as many, so more are read first. One long prompt alone keeps no others waiting.
            for _ in range(_MOST_READINGS - 1):
                if len(self._reading) < 2:
                    break
                self._read_next()
            did_write = self._write_next()
        except BaseException as error:
            self._programs.drop()
            self._fail(error if isinstance(error, Exception) else _closed())
            raise
        return did_read or did_write or did_load

    def _load_weights(self) -> bool:
        """Replace the weights as asked, once no request is being answered; return True if that was done."""
        if not self._loads or self._reading or self._writing:
            return False
        load = self._loads[0]
        try:
            replace_weights(cast(Decoder, self._sampler.policy), load.directory, self._sampler.mesh)
        except ModelError as error:
            load.future.set_exception(error)
        else:
            self._policies = {None: self._policies[None]}
            self._version = lambda: load.version
            self._texts.clear()
            load.future.set_result(None)
        with self._changed:
            self._loads.popleft()
        return True

    def _follow_weights(self) -> None:
        version = self._version()
        if self._current_version != version:
            self._texts.clear()
            self._current_version = version
        if self._programs.is_empty:
            self._texts.clear()
            self._programs.start(self._policies[None])

    def _fail(self, error: Exception) -> None:
        with self._changed:
            rows = [*self._waiting, *self._reading, *self._writing]
            for queue in (self._waiting, self._reading, self._writing):
                queue.clear()
            loads, self._loads = self._loads, deque()
        for load in loads:
            load.future.set_exception(error)
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
            rows = [] if self._loads else list(self._waiting)
        for row in rows:
            request, version = row.request, self._current_version
            # Log-probabilities of a prompt need all of it to be read; a label of its own shares nothing.
            label: Hashable = object() if request.with_prompt_logps else (weakref.ref(row.policy), version)
            assignment = self._texts.assign(request.prompt[:-1], label)
            if assignment is None:
                if self._texts.is_full:
                    return
                continue
            row.place, row.num_cached, row.version = assignment.place, assignment.length, version
            if assignment.source is not None:
                self._programs.copy(assignment.source, assignment.place)
            with self._changed:
                self._waiting.remove(row)
                (self._reading if self._num_unread(row) else self._writing).append(row)
                self.counts["prompt"] += len(request.prompt)
                self.counts["cached"] += row.num_cached

    def _num_unread(self, row: ServedRow) -> int:
        """Return the tokens of a prompt that are to be read, without the last, with which the reply begins."""
        return len(row.request.prompt) - 1 - int(self._texts.filled[row.place])

    def _filled(self, rows: Sequence[ServedRow]) -> list[int]:
        return [int(self._texts.filled[row.place]) for row in rows]

    # --- reading ---------------------------------------------------------------------------------------------------

    def _read_next(self) -> bool:
        """Read a piece of the prompts that have waited longest."""
        if not self._reading:
            return False
        first, programs = self._reading[0], self._programs
        num_unread = self._num_unread(first)
        length = next((C for C in programs.pieces if num_unread <= _PIECES_OF_TEXT * C), programs.pieces[-1])
        rows = [row for row in self._reading if row.reading_kind == first.reading_kind][: programs.most_readers(length)]
        filled = self._filled(rows)
        policy, wants_logps, wants_alternatives = first.reading_kind
        scores = programs.read(
            policy,
            lambda n: make_piece_inputs(rows, filled, length, n, self.num_places, self._sampler.pad_id),
            filled,
            length,
            (MOST_ALTERNATIVES if wants_alternatives else 0) if wants_logps else None,
        )
        for number, row in enumerate(rows):
            count = min(length, self._num_unread(row))
            self._texts.read(row.place, count)
            if wants_logps:
                row.add_prompt_scores(_of_row(scores, number, count))
            with self._changed:
                self.counts["read"] += count
                self._reading.remove(row)
                (self._reading if self._num_unread(row) else self._writing).append(row)
        self._admit()  # rows that begin with a prompt that was just read, before it is continued
        return True

    # --- writing ---------------------------------------------------------------------------------------------------

    def _write_next(self) -> bool:
        """Let all rows write some tokens, those of each adapter in turn."""
        did_write = bool(self._writing)
        for policy in dict.fromkeys(row.policy for row in self._writing):
            rows = [row for row in self._writing if row.policy is policy]
            self._write([row for row in rows if row.request.max_tokens > 0], policy)
            for row in rows:
                if row.request.max_tokens == 0:
                    self._finish(row, "length")
        return did_write

    def _write(self, rows: Sequence[ServedRow], policy: Parts) -> None:
        if not rows:
            return
        filled, least = self._filled(rows), self._programs.next_fewer_rows(len(rows))
        turn = self._programs.write(
            policy,
            lambda n: make_writing_inputs(rows, filled, n, least, self.num_places, self._sampler.pad_id),
            filled,
            MOST_ALTERNATIVES if any(row.wants_alternatives for row in rows) else 0,
        )
        for number, row in enumerate(rows):
            length, start = int(turn.lengths[number]), len(row.tokens)
            tokens = turn.tokens[number, :length].tolist()
            self._texts.write(row.place, [row.unread, *tokens[:-1]])
            row.add(tokens, turn.logps[number, :length].tolist(), _of_row(turn.likeliest, number, length))
            self._hand_on(row, start, ended=bool(turn.ended[number]))

    def _hand_on(self, row: ServedRow, start: int, *, ended: bool) -> None:
        """End a reply at its first stop, and give its new tokens to whoever reads along."""
        was_cut = row.cut_at_stop(start, self._sampler.tokenizer)
        finish_reason = None
        if ended or was_cut:
            finish_reason = "stop"
        elif len(row.tokens) == row.request.max_tokens:
            finish_reason = "length"
        self.counts["written"] += len(row.tokens) - start
        if row.on_part is not None and not row.future.cancelled():
            try:
                row.on_part(row.part(start, finish_reason))
            except Exception as error:  # whoever reads along has failed, not the others
                self._finish(row, "stop", error)
                return
        if finish_reason is not None:
            self._finish(row, finish_reason)

    def _finish(self, row: ServedRow, finish_reason: str, error: Exception | None = None) -> None:
        length = len(row.request.prompt) - 1 + len(row.tokens)
        self._texts.keep(row.place, min(length, int(self._texts.filled[row.place])))
        with self._changed:
            self._writing.remove(row)
        if row.future.set_running_or_notify_cancel():
            if error is None:
                row.future.set_result(row.whole(finish_reason))
            else:
                row.future.set_exception(error)


def _of_row(arrays: Any, number: int, count: int) -> Any:
    """Return the first tokens of a row, of arrays of rows and tokens."""
    return jax.tree.map(lambda x: x[number, :count], arrays)


def _closed() -> OverloadedError:
    return OverloadedError("the sampler must be open to answer a request, but it was closed", code="closed")
