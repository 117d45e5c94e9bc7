"""Requests that are being answered: what has been sampled for each, and the inputs that programs need for them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.variables import Parts
from agent_tunix.sampling.places import PieceInputs, WritingInputs
from agent_tunix.sampling.requests import Alternatives, TokenReply, TokenRequest
from agent_tunix.sampling.token_choice import KEEP_ALL, RowSampling


@dataclass(eq=False)
class ServedRow:
    """A request, and what has been done for it.

    Attributes:
        request: The request.
        policy: Policy that answers it.
        key: The two words of its PRNG key.
        on_part: Function that gets each part of the reply.
        future: The whole reply. It is not marked as running, so that it can be cancelled until the end.
        place: Place of the cache; -1 while the request waits.
        version: Version of the weights with which the answer began.
        num_cached: Tokens of the prompt that did not have to be read.
    """

    request: TokenRequest
    policy: Parts
    key: np.ndarray
    on_part: Callable[[TokenReply], None] | None
    future: Future[TokenReply] = field(default_factory=Future)
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
        """The token that the model reads next, once it has read the rest of the prompt."""
        return self.tokens[-1] if self.tokens else self.request.prompt[-1]

    @property
    def wants_alternatives(self) -> bool:
        """True if the likeliest tokens are to be reported."""
        return self.request.num_alternatives > 0

    @property
    def reading_kind(self) -> tuple[Parts, bool, bool]:
        """The properties that rows must have in common to be read by one program."""
        wants_logps = self.request.with_prompt_logps
        return self.policy, wants_logps, wants_logps and self.wants_alternatives

    def add_prompt_scores(self, scores: Any) -> None:
        """Add the log-probabilities of the next tokens of the prompt, and the likeliest tokens."""
        logps, ids, alternatives = scores
        self.prompt_logps += logps.tolist()
        if self.wants_alternatives:
            self.prompt_alternatives += self._pairs(ids, alternatives)

    def add(self, tokens: Sequence[int], logps: Sequence[float], likeliest: Any) -> None:
        """Add sampled tokens."""
        self.tokens += tokens
        self.logps += logps
        if self.wants_alternatives:
            self.alternatives += self._pairs(*likeliest)

    def _pairs(self, ids: np.ndarray, logps: np.ndarray) -> list[Alternatives]:
        count = self.request.num_alternatives
        return [
            tuple(zip(*each, strict=True))
            for each in zip(ids[:, :count].tolist(), logps[:, :count].tolist(), strict=True)
        ]

    def cut_at_stop(self, start: int, tokenizer: Tokenizer) -> bool:
        """Drop the tokens after the first stop token, or after the token that completes the first stop string.

        Args:
            start: Number of tokens that were looked at before.
            tokenizer: Tokenizer of the policy.

        Returns:
            True if there is a stop, with which the reply ends.
        """
        request = self.request
        places = (place for place in range(start, len(self.tokens)) if self.tokens[place] in request.stop_ids)
        end = next(places, None)
        if request.stop_strings:
            last = len(self.tokens) if end is None else end
            # Decoding takes time in proportion to the text, and most parts of it have no stop string.
            if self._has_stop_string(last, tokenizer):
                found = (place for place in range(start, last) if self._has_stop_string(place + 1, tokenizer))
                end = next(found, end)
        if end is None:
            return False
        for each in (self.tokens, self.logps, self.alternatives):
            del each[end + 1 :]
        return True

    def _has_stop_string(self, length: int, tokenizer: Tokenizer) -> bool:
        text = tokenizer.decode(self.tokens[:length])
        return any(stop in text for stop in self.request.stop_strings)

    def part(self, first: int, finish_reason: str | None) -> TokenReply:
        """Return the reply from a token on."""
        return TokenReply(
            tuple(self.tokens[first:]),
            tuple(self.logps[first:]),
            finish_reason,
            version=self.version,
            num_cached=self.num_cached,
            alternatives=tuple(self.alternatives[first:]),
        )

    def whole(self, finish_reason: str) -> TokenReply:
        """Return the whole reply."""
        _, wants_logps, wants_alternatives = self.reading_kind
        return TokenReply(
            tuple(self.tokens),
            tuple(self.logps),
            finish_reason,
            version=self.version,
            num_cached=self.num_cached,
            alternatives=tuple(self.alternatives),
            prompt_logps=tuple(self.prompt_logps) if wants_logps else (),
            prompt_alternatives=tuple(self.prompt_alternatives) if wants_alternatives else (),
        )


def make_piece_inputs(
    rows: Sequence[ServedRow], filled: Sequence[int], length: int, n: int, num_places: int, pad_id: int
) -> PieceInputs:
    """Return the next pieces of prompts.

    Args:
        rows: The rows.
        filled: Tokens that were read of each prompt.
        length: Maximum tokens of a piece.
        n: Rows of the program.
        num_places: Number of places.
        pad_id: Padding id.
    """
    inputs = PieceInputs(
        places=num_places + np.arange(n, dtype=np.int32),  # places that do not exist
        filled=np.zeros(n, np.int32),
        tokens=np.full((n, length), pad_id, np.int32),
        lengths=np.zeros(n, np.int32),
        targets=np.zeros((n, length), np.int32),
        temperature=np.ones(n, np.float32),
    )
    for number, (row, start) in enumerate(zip(rows, filled, strict=True)):
        # The last token of a prompt is read with the reply.
        piece = row.request.prompt[start : start + length + 1]
        count = min(length, len(piece) - 1)
        inputs.places[number], inputs.filled[number], inputs.lengths[number] = row.place, start, count
        inputs.tokens[number, :count], inputs.targets[number, :count] = piece[:count], piece[1 : count + 1]
        inputs.temperature[number] = row.request.temperature or 1.0
    return inputs


def make_writing_inputs(
    rows: Sequence[ServedRow], filled: Sequence[int], n: int, least: int, num_places: int, pad_id: int
) -> WritingInputs:
    """Return the state with which rows begin to write.

    Args:
        rows: The rows.
        filled: Tokens that the place of each row holds.
        n: Rows of the program.
        least: Rows that a smaller program has places for.
        num_places: Number of places.
        pad_id: Padding id.
    """
    requests = [row.request for row in rows]

    def column(values: Sequence[Any], padding: Any, dtype: Any) -> Any:
        return np.array([*values, *[padding] * (n - len(rows))], dtype)

    places = num_places + np.arange(n, dtype=np.int32)
    places[: len(rows)] = [row.place for row in rows]
    return WritingInputs(
        places=places,
        filled=column(filled, 0, np.int32),
        tokens=column([row.unread for row in rows], pad_id, np.int32),
        limits=column([row.request.max_tokens - len(row.tokens) for row in rows], 0, np.int32),
        written=column([len(row.tokens) for row in rows], 0, np.int32),
        keys=column([row.key for row in rows], np.zeros(2, np.uint32), np.uint32),
        least=np.array(least, np.int32),
        sampling=RowSampling(
            temperature=column([request.temperature or 1.0 for request in requests], 1, np.float32),
            top_k=column([min(request.top_k or KEEP_ALL, KEEP_ALL) for request in requests], KEEP_ALL, np.int32),
            top_p=column([request.top_p for request in requests], 1, np.float32),
            min_p=column([request.min_p for request in requests], 0, np.float32),
            greedy=column([request.temperature == 0 for request in requests], False, np.bool_),
        ),
    )
