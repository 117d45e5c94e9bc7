"""Conversion of a step's samples and scores to the columns of a table and back.

What a replay needs is restored to the bit: samples, values, weights and advantages. Extras are stored as they leave a
worker, in built-in types.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score, Term
from agent_tunix.rewards.score_data import from_data, plain_mapping, to_data
from agent_tunix.tracking.rollouts.encoding import RESPONSE, decode, encode
from agent_tunix.tracking.rollouts.schema import ScoringSettings, StoredStep, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Columns whose originals are kept in `exact`.
_TEXTS = ("rollout_id", "prompt", "response", "format", "detail")


# --- to a table ------------------------------------------------------------------------------------------------------


def to_table(stored: StoredStep) -> "pa.Table":
    """Return the table of a step, with columns in the order of `COLUMNS`."""
    import pyarrow as pa

    samples, scores = stored.samples, stored.scores
    encoded_rows = {id(sample.columns): encode(sample.columns) for sample in _first_of_each(samples)}
    columns: dict[str, Any] = {
        "step": [stored.step] * len(samples),
        "group": [sample.group_id for sample in samples],
        "rollout_id": [sample.rollout_id for sample in samples],
        "prompt": [sample.prompt for sample in samples],
        "messages": [_encode_messages(sample) for sample in samples],
        "response": [sample.response for sample in samples],
        "columns": [encoded_rows[id(sample.columns)] for sample in samples],
        "format": [sample.format for sample in samples],
        "max_steps": [sample.max_steps for sample in samples],
        "sampled_step": [sample.step if 0 < sample.step < stored.step else None for sample in samples],
        "outcome": [score.outcome.value for score in scores],
        "detail": [score.detail for score in scores],
        "total": [score.value for score in scores],
        "advantage": stored.advantages,
        "turn_advantages": [None] * len(samples)
        if stored.turn_advantages is None
        else [row[~np.isnan(row)] for row in stored.turn_advantages],
        "num_tokens": [sample.num_tokens for sample in samples],
        "ended": [sample.ended for sample in samples],
        "stop_reason": [_stop_reason(sample) for sample in samples],
        "episode": [None if sample.episode is None else encode(_episode_data(sample.episode)) for sample in samples],
        "logprob": [None if np.isnan(value) else value for value in stored.logprobs],
        "tokens": [sample.tokens for sample in samples],
        "fingerprint": [stored.settings.fingerprint] * len(samples),
        "seconds": [score.seconds for score in scores],
        "groups_in_step": [stored.groups_in_step] * len(samples),
    }
    columns["extras"], columns["logged"], columns["components"] = zip(*map(_score_columns, scores), strict=True)
    valid = {name: [_valid(text) for text in columns[name]] for name in _TEXTS}
    originals = [
        {name: columns[name][row] for name in _TEXTS if columns[name][row] != valid[name][row]}
        for row in range(len(samples))
    ]
    columns |= valid | {"exact": [encode(texts) if texts else None for texts in originals]}
    return pa.Table.from_pydict(columns, arrow_schema(stored.settings))


def _first_of_each(samples: Sequence[Sample]) -> list[Sample]:
    """Return one sample for each row of the dataset, which the samples of a group share."""
    return list({id(sample.columns): sample for sample in samples}.values())


def _valid(text: str) -> str:
    """Return a text with � for lone surrogates."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def _stop_reason(sample: Sample) -> str:
    if sample.episode is not None:
        return str(sample.episode.stop_reason)
    return "stop" if sample.ended else "length"


def _encode_messages(sample: Sample) -> str:
    """Return the JSON of a conversation, without the response's text."""
    messages = list(sample.messages)
    if messages and messages[-1].get("content") == sample.response:
        messages[-1] = {**messages[-1], "content": RESPONSE}
    return encode(messages)


def _episode_data(episode: EpisodeSummary) -> dict[str, Any]:
    data = {field.name: getattr(episode, field.name) for field in dataclasses.fields(episode)}
    data = {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}
    if episode.agent is None:
        del data["agent"]
    return data if episode.score is None else data | {"score": to_data(episode.score)}


def _score_columns(score: Score) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the columns `extras`, `logged` and `components`."""
    extras = plain_mapping(score.extras)
    logged: dict[str, dict[str, Any]] = {}
    components = []
    for name in dict.fromkeys((*score.terms, *score.components, *score.parts)):
        part, term = score.parts.get(name), score.terms.get(name)
        component: dict[str, Any] = {"name": _valid(name), "value": score.components.get(name)}
        if part is not None:
            part_extras = plain_mapping(part.extras)
            shared = name in extras and extras[name] == part_extras
            component |= {
                "value": part.value,
                "outcome": part.outcome.value,
                "detail": _valid(part.detail),
                "seconds": part.seconds,
                "more": _encode_more(part, {} if shared else part_extras),
            }
            if shared and isinstance(part_extras.get("log"), str):
                logged[name] = {"text": part_extras.pop("log")}
                extras[name] = part_extras
            if part.metrics:
                logged[name] = logged.get(name, {}) | {"metrics": part.metrics}
        if term is not None:
            component |= {
                "weight": term.weight,
                "weighed": term.value,
                "gate_shut": term.gate_shut,
                "term_outcome": term.outcome.value,
                "term_detail": _valid(term.detail),
            }
        components.append(component)
    return encode(extras), encode(logged), components


def _encode_more(part: Score, extras: Mapping[str, Any]) -> str | None:
    """Return the fields of a component's score that have no column of their own; None if there are none."""
    data = to_data(part) | {"extras": extras}
    more = {name: data[name] for name in ("components", "extras", "parts", "terms", "turns") if data.get(name)}
    return encode(more) if more else None


# --- from a table ----------------------------------------------------------------------------------------------------


def from_table(table: "pa.Table", settings: ScoringSettings) -> StoredStep:
    """Return the step that `to_table` was given; its rows may have been filtered."""
    decode_once = functools.cache(decode)  # the rows of a group share texts
    rows = table.to_pylist()
    rows = [row if row["exact"] is None else row | decode_once(row["exact"]) for row in rows]
    return StoredStep(
        step=rows[0]["step"],
        samples=[_read_sample(row, decode_once) for row in rows],
        scores=[_read_score(row, decode_once) for row in rows],
        advantages=np.array([row["advantage"] for row in rows], dtype=np.float32),
        logprobs=np.array([np.nan if row["logprob"] is None else row["logprob"] for row in rows], dtype=np.float32),
        settings=settings,
        groups_in_step=rows[0]["groups_in_step"],
        turn_advantages=_read_turns([row.get("turn_advantages") for row in rows]),
    )


def _read_turns(lists: Sequence[Sequence[float] | None]) -> np.ndarray | None:
    """Return [N, K] advantages of turns, NaN after the last turn of each row; None if none are stored."""
    if lists[0] is None:
        return None
    advantages = np.full((len(lists), max(len(turns or ()) for turns in lists)), np.nan, np.float32)
    for row, turns in zip(advantages, lists, strict=True):
        row[: len(turns or ())] = turns
    return advantages


_Decode = Callable[[str], Any]


def _read_sample(row: Mapping[str, Any], decode_once: _Decode) -> Sample:
    return Sample(
        response=row["response"],
        prompt=row["prompt"],
        messages=tuple(restore_response(decode_once(row["messages"]), row["response"])),
        columns=decode_once(row["columns"]),
        format=row["format"],
        step=row.get("sampled_step") or row["step"],
        max_steps=row["max_steps"],
        group_id=row["group"],
        rollout_id=row["rollout_id"],
        num_tokens=row["num_tokens"],
        ended=row["ended"],
        tokens=tuple(row["tokens"]),
        episode=None if row.get("episode") is None else _read_episode(decode_once(row["episode"])),
    )


def restore_response(messages: Sequence[Mapping[str, Any]], response: str) -> Sequence[Mapping[str, Any]]:
    """Return decoded messages with the response's text in the last one, if it stands for that."""
    if messages and messages[-1].get("content") is RESPONSE:
        return [*messages[:-1], {**messages[-1], "content": response}]
    return messages


def _read_episode(data: Mapping[str, Any]) -> EpisodeSummary:
    score = None if data["score"] is None else from_data(data["score"])
    lists = {name: tuple(data.get(name, ())) for name in ("calls", "tokens", "loss_mask", "unread_calls")}
    return EpisodeSummary(**{**data, **lists, "score": score})


def _read_score(row: Mapping[str, Any], decode_once: _Decode) -> Score:
    logged = decode_once(row["logged"])
    extras = dict(decode_once(row["extras"]))
    for name, log in logged.items():
        if "text" in log:
            extras[name] = {**extras[name], "log": log["text"]}
    components: dict[str, float | None] = {}
    parts: dict[str, Score] = {}
    terms: dict[str, Term] = {}
    for component in row["components"]:
        name = component["name"]
        components[name] = component["value"]
        if component["outcome"] is not None:
            part = Score(
                value=component["value"],
                outcome=Outcome(component["outcome"]),
                detail=component["detail"],
                extras=extras.get(name, {}),
                seconds=component["seconds"],
                metrics=logged.get(name, {}).get("metrics", {}),
            )
            more = component["more"]
            parts[name] = part if more is None else from_data(to_data(part) | decode_once(more))
        if component["term_outcome"] is not None:
            terms[name] = Term(
                weight=component["weight"],
                value=component["weighed"],
                outcome=Outcome(component["term_outcome"]),
                gate_shut=component["gate_shut"],
                detail=component["term_detail"],
            )
    return Score(
        value=row["total"],
        components=components,
        outcome=Outcome(row["outcome"]),
        detail=row["detail"],
        extras=extras,
        seconds=row["seconds"],
        parts=parts,
        terms=terms,
    )
