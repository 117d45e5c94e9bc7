"""Completions of a step from the calls of agents."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agent_tunix.environments import AgentRecord, EpisodeResult, PolicyCall, StopReason
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.forks import Forks
from agent_tunix.sampling.sampler import Completions
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.rows import TokenRow, main_row, make_rows

# Characters of a reply that a rollout keeps for each call; the transcript has the whole text of the main row.
_LONGEST_REPLY = 500


def completions_of(
    rollouts: Sequence[Sequence[RecordedCall]],
    results: Sequence[EpisodeResult],
    tokenizer: Tokenizer,
    *,
    max_row_tokens: int,
) -> Completions:
    """Return the completions of N rollouts, those of a prompt side by side.

    The row of an episode among the N is its main row (`rows.main_row`), and its other rows are forks. A rollout without
    a token that trains is an empty row.

    Args:
        rollouts: The calls of each rollout, in the order in which they ended.
        results: The episode of each. Its `agent.calls` are filled in.
        tokenizer: The policy's tokenizer.
        max_row_tokens: Longest row, its prompt included: the context of the sampler. All arrays have this width.
    """

    def spell(ids: Sequence[int]) -> str:
        return "".join(tokenizer.pieces(ids))

    rows_of = [make_rows(calls, spell) for calls in rollouts]
    mains = [main_row(rows) for rows in rows_of]
    main_rows = [None if main is None else rows[main] for rows, main in zip(rows_of, mains, strict=True)]
    forks = [
        (owner, row)
        for owner, (rows, main) in enumerate(zip(rows_of, mains, strict=True))
        for number, row in enumerate(rows)
        if number != main
    ]
    arrays = _pad(main_rows, max_row_tokens, tokenizer.pad_id())
    last_calls = [
        [] if row is None else calls[row.calls[-1]].tokens for calls, row in zip(rollouts, main_rows, strict=True)
    ]
    return Completions(
        **arrays,
        ended=np.array(
            [result.stop_reason in (StopReason.FINISHED, StopReason.ENVIRONMENT_DONE) for result in results]
        ),
        texts=tokenizer.decode_batch(last_calls),
        episodes=[
            replace(result, agent=_record(result, calls, rows, main, tokenizer))
            for result, calls, rows, main in zip(results, rollouts, rows_of, mains, strict=True)
        ],
        forks=Forks(
            owners=np.array([owner for owner, _ in forks], np.int32),
            **_pad([row for _, row in forks], max_row_tokens, tokenizer.pad_id()),
        ),
    )


def _pad(rows: Sequence[TokenRow | None], width: int, pad_id: int) -> dict[str, np.ndarray]:
    """Return the arrays of rows by their names in `Completions` and `Forks`.

    None stands for an empty row, whose prompt is one token of padding.
    """
    R = len(rows)
    arrays = {
        "prompt_tokens": np.full((R, width), pad_id, np.int32),
        "prompt_lengths": np.ones(R, np.int32),
        "tokens": np.full((R, width), pad_id, np.int32),
        "lengths": np.zeros(R, np.int32),
        "logps": np.zeros((R, width), np.float32),
        "sampled": np.zeros((R, width), np.bool_),
    }
    for number, row in enumerate(rows):
        if row is None:
            continue
        length = len(row.tokens)
        arrays["prompt_tokens"][number, width - row.num_prompt :] = row.prompt
        arrays["prompt_lengths"][number] = row.num_prompt
        arrays["lengths"][number] = length
        for name in ("tokens", "logps", "sampled"):
            arrays[name][number, :length] = getattr(row, name)
    return arrays


def _role(call: RecordedCall) -> str:
    texts = [message.get("content") for message in call.messages if message["role"] in ("system", "developer")]
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=8).hexdigest() if texts else ""


def _record(
    result: EpisodeResult,
    calls: Sequence[RecordedCall],
    rows: Sequence[TokenRow],
    main: int | None,
    tokenizer: Tokenizer,
) -> AgentRecord:
    row_of = {number: row for row, own in enumerate(rows) for number in own.calls}
    firsts = {row.calls[0]: row for row in rows}
    held = {row.calls[0]: row.num_shared for row in rows}
    for row in rows:
        for before, number in itertools.pairwise(row.calls):
            held[number] = len(calls[before].prompt) + len(calls[before].tokens) - 1
    replies = tokenizer.decode_batch([call.tokens for call in calls])

    def describe(number: int, call: RecordedCall) -> PolicyCall:
        first = firsts.get(number)
        return PolicyCall(
            prompt=len(call.prompt),
            sampled=len(call.tokens),
            cached=call.num_cached,
            needed=len(call.prompt) - held[number] if number in held else None,
            row=row_of.get(number),
            parent=None if first is None else first.parent,
            cause="" if first is None else first.cause or "",
            first_difference="" if first is None else first.first_difference,
            finish_reason=call.finish_reason,
            seconds=call.seconds,
            reply=replies[number][:_LONGEST_REPLY],
            role=_role(call),
        )

    record = result.agent or AgentRecord()
    return replace(record, calls=tuple(describe(number, call) for number, call in enumerate(calls)), main_row=main)
