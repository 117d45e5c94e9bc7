"""Conversion of a step's samples and scores to the columns of a table and back, bit for bit.

Whole columns are built, one list at a time: rows of dicts would cost several times as much.
"""

import dataclasses
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score, Term
from agent_tunix.tracking.rollouts.arrays import make_array
from agent_tunix.tracking.rollouts.encoding import RESPONSE, Padding, decode, encode
from agent_tunix.tracking.rollouts.schema import (
    COMPONENT_FIELDS,
    ScoringSettings,
    StoredStep,
    arrow_schema,
    arrow_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TEXTS_OF_COMPONENT = ("name", "detail", "term_detail")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


# --- to a table ------------------------------------------------------------------------------------------------------


def to_table(stored: StoredStep) -> "pa.Table":
    """Return the table of a step, with columns in the order of `COLUMNS`."""
    import pyarrow as pa

    samples, scores = stored.samples, stored.scores
    texts = _Texts()
    columns: dict[str, Any] = {
        "step": [stored.step] * len(samples),
        "group": [sample.group_id for sample in samples],
        "rollout_id": texts.of_column("rollout_id", [sample.rollout_id for sample in samples]),
        "prompt": texts.of_column("prompt", [sample.prompt for sample in samples]),
        "messages": _encode_messages(samples),
        "response": texts.of_column("response", [sample.response for sample in samples]),
        "columns": _encode_shared([sample.columns for sample in samples]),
        "format": texts.of_column("format", [sample.format for sample in samples]),
        "max_steps": [sample.max_steps for sample in samples],
        "outcome": [score.outcome for score in scores],
        "detail": texts.of_column("detail", [score.detail for score in scores]),
        "total": [score.value for score in scores],
        "advantage": stored.advantages,
        "num_tokens": [sample.num_tokens for sample in samples],
        "ended": [sample.ended for sample in samples],
        "stop_reason": [_stop_reason(sample) for sample in samples],
        "episode": [None if sample.episode is None else encode(_data_of(sample.episode)) for sample in samples],
        "logprob": [None if np.isnan(value) else value for value in stored.logprobs],
        "tokens": _tokens(samples),
        "fingerprint": [stored.settings.fingerprint] * len(samples),
        "extras": [_encode_extras(score) for score in scores],
        "logged": [_encode_logged(score) for score in scores],
        "seconds": [score.seconds for score in scores],
        "groups_in_step": [stored.groups_in_step] * len(samples),
        "components": _components(scores, texts),
    }
    # Encoded last, after every text has been cleaned.
    columns["exact"] = [encode(texts.exact[row]) if row in texts.exact else None for row in range(len(samples))]
    schema = arrow_schema(stored.settings)
    arrays = []
    for field in schema:
        column = columns[field.name]
        arrays.append(column if isinstance(column, pa.Array) else make_array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


class _Texts:
    """A cleaner of invalid Unicode that keeps the original texts.

    Attributes:
        exact: Row → place in the row → original text.
    """

    def __init__(self) -> None:
        self.exact: defaultdict[int, dict[str, str]] = defaultdict(dict)

    def of_column(self, column: str, texts: Sequence[str]) -> Sequence[str]:
        """Return a column's texts, one for each row, with � for lone surrogates."""
        return self.clean(texts, lambda row: (row, column))

    def clean(self, texts: Sequence[Any], place_of: Callable[[int], tuple[int, str]]) -> Sequence[Any]:
        """Return texts (or None) with � for lone surrogates; `place_of` gives the row and the place of the i-th."""
        if all(text is None or text.isascii() for text in texts):
            return texts
        cleaned = []
        for index, text in enumerate(texts):
            if text is not None and not text.isascii() and _LONE_SURROGATE.search(text):
                row, place = place_of(index)
                self.exact[row][place] = text
                text = _LONE_SURROGATE.sub("\ufffd", text)
            cleaned.append(text)
        return cleaned


def _tokens(samples: Sequence[Sample]) -> "pa.Array":
    import pyarrow as pa

    offsets = make_array([0, *itertools.accumulate(len(sample.tokens) for sample in samples)], pa.int32())
    values = make_array(list(itertools.chain.from_iterable(sample.tokens for sample in samples)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=arrow_type("list<int32>"))


def _stop_reason(sample: Sample) -> str:
    if sample.episode is not None:
        return str(sample.episode.stop_reason)
    return "stop" if sample.ended else "length"


def _encode_shared(values: Sequence[Any]) -> list[str]:
    """Return the JSON of each value; a value shared by a group is encoded once."""
    known: dict[int, str] = {}
    for value in values:
        if id(value) not in known:
            known[id(value)] = encode(value)
    return [known[id(value)] for value in values]


def _encode_messages(samples: Sequence[Sample]) -> list[str]:
    """Return the JSON of each conversation, without the response's text; a group's is encoded once."""
    known: dict[tuple[int, ...], str] = {}
    encoded = []
    for sample in samples:
        before, last = list(sample.messages[:-1]), dict(sample.messages[-1]) if sample.messages else {}
        if not isinstance(last.get("content"), str) or last["content"] != sample.response:
            encoded.append(encode(list(sample.messages)))
            continue
        last["content"] = RESPONSE
        key = tuple(map(id, before))
        if last.keys() != {"role", "content"} or last["role"] != "assistant":
            encoded.append(encode([*before, last]))
        else:
            if key not in known:
                known[key] = encode([*before, last])
            encoded.append(known[key])
    return encoded


def _shares_extras(score: Score, name: str) -> bool:
    """Return True if the total's extras hold, under a component's name, the same object as the component's extras."""
    return name in score.extras and score.extras[name] is score.parts[name].extras


def _has_log(score: Score, name: str) -> bool:
    return _shares_extras(score, name) and isinstance(score.parts[name].extras.get("log"), str)


def _encode_extras(score: Score) -> str:
    if not score.extras:
        return "{}"
    logs = {name for name in score.parts if _has_log(score, name)}
    return encode(
        {
            name: {key: value for key, value in extras.items() if key != "log"} if name in logs else extras
            for name, extras in score.extras.items()
        }
    )


def _encode_logged(score: Score) -> str:
    logged: dict[str, dict[str, Any]] = {}
    for name, part in score.parts.items():
        text = {"text": part.extras["log"]} if _has_log(score, name) else {}
        metrics = {"metrics": part.metrics} if part.metrics else {}
        if text or metrics:
            logged[name] = text | metrics
    return encode(logged) if logged else "{}"


def _components(scores: Sequence[Score], texts: _Texts) -> "pa.Array":
    import pyarrow as pa

    stored: list[tuple[Any, ...]] = []  # fields in the order of COMPONENT_FIELDS
    places: list[tuple[int, int]] = []  # row, position
    offsets = [0]
    for row, score in enumerate(scores):
        parts, terms = score.parts, score.terms
        names = terms.keys() if terms.keys() >= score.components.keys() | parts.keys() else _names(score)
        for position, name in enumerate(names):
            part, term = parts.get(name), terms.get(name)
            of_part: tuple[Any, ...] = (score.components.get(name), None, None, None)
            of_term: tuple[Any, ...] = (None, None, None, None, None)
            more = None
            if part is not None:
                of_part = (part.value, part.outcome, part.detail, part.seconds)
                if part.components or part.extras or part.parts or part.terms:
                    more = _encode_more(part, with_extras=not _shares_extras(score, name))
            if term is not None:
                of_term = (term.weight, term.value, term.gate_shut, term.outcome, term.detail)
            stored.append((name, *of_part, *of_term, more))
            places.append((row, position))
        offsets.append(len(stored))
    of_list = arrow_type("list<struct>")
    columns: list[Sequence[Any]] = list(zip(*stored, strict=True)) or [()] * len(COMPONENT_FIELDS)
    arrays = []
    for field, column in zip(of_list.value_type, columns, strict=True):

        def place_of(index: int, name: str = field.name) -> tuple[int, str]:
            row, position = places[index]
            return row, f"components/{position}/{name}"

        values = texts.clean(column, place_of) if field.name in _TEXTS_OF_COMPONENT else column
        arrays.append(make_array(values, field.type))
    structs = pa.StructArray.from_arrays(arrays, fields=list(of_list.value_type))
    return pa.ListArray.from_arrays(make_array(offsets, pa.int32()), structs, type=of_list)


def _names(score: Score) -> list[str]:
    return list(dict.fromkeys((*score.terms, *score.components, *score.parts)))


def _encode_more(part: Score, *, with_extras: bool) -> str | None:
    """Return the parts of a component's score that have no field of their own; None if there are none."""
    more: dict[str, Any] = {}
    if part.components:
        more["components"] = part.components
    if part.extras and with_extras:
        more["extras"] = part.extras
    if part.parts:
        more["parts"] = {name: _data_of(inner) for name, inner in part.parts.items()}
    if part.terms:
        more["terms"] = {name: _data_of(term) for name, term in part.terms.items()}
    return encode(more) if more else None


def _data_of(said: Score | Term | EpisodeSummary) -> dict[str, Any]:
    """Return the fields of a score, term or episode, recursively; values from users are unchanged."""
    data = {field.name: getattr(said, field.name) for field in dataclasses.fields(said)}
    if isinstance(data.get("score"), Score):
        data["score"] = _data_of(data["score"])
    for inside in ("parts", "terms"):
        if inside in data:
            data[inside] = {name: _data_of(inner) for name, inner in data[inside].items()}
    return data


# --- from a table ----------------------------------------------------------------------------------------------------


def from_table(table: "pa.Table", settings: ScoringSettings) -> StoredStep:
    """Return the step that `to_table` was given; its rows may have been filtered.

    Raises:
        ValueError: A column holds a value that no writer produces.
    """
    try:
        return _from_table(table, settings)
    except (TypeError, AttributeError, LookupError, RecursionError) as error:
        raise ValueError(f"a row is not a completion: {type(error).__name__}: {error}") from error


def _from_table(table: "pa.Table", settings: ScoringSettings) -> StoredStep:
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names}
    decode_once = _Decoder()
    samples, scores = [], []
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        exact = {} if row["exact"] is None else decode_once(row["exact"])

        def text(place: str, stored: str, exact: Mapping[str, str] = exact) -> str:
            return exact.get(place, stored)

        sample = _read_sample(row, text, decode_once)
        _ = sample.episode and sample.shown  # raises an error unless each turn is a chat message
        samples.append(sample)
        scores.append(_read_score(row, text, decode_once))
    return StoredStep(
        step=columns["step"][0],
        samples=samples,
        scores=scores,
        advantages=np.array(columns["advantage"], dtype=np.float32),
        logprobs=np.array([np.nan if value is None else value for value in columns["logprob"]], dtype=np.float32),
        settings=settings,
        groups_in_step=columns["groups_in_step"][0],
    )


_Text = Callable[[str, str], str]


class _Decoder:
    """A decoder of a step's JSON texts. A text that a group shares is decoded once; all texts share one `Padding`."""

    def __init__(self) -> None:
        self._padding = Padding()
        self._known: dict[str, Any] = {"{}": {}}

    def __call__(self, text: str) -> Any:
        if text not in self._known:
            self._known[text] = decode(text, self._padding)
        return self._known[text]


def _read_sample(row: Mapping[str, Any], text: _Text, decode_once: _Decoder) -> Sample:
    response = text("response", row["response"])
    messages = decode_once(row["messages"])
    if messages and messages[-1].get("content") is RESPONSE:
        messages = [*messages[:-1], {**messages[-1], "content": response}]
    return Sample(
        response=response,
        prompt=text("prompt", row["prompt"]),
        messages=tuple(messages),
        columns=decode_once(row["columns"]),
        format=text("format", row["format"]),
        step=row["step"],
        max_steps=row["max_steps"],
        group_id=row["group"],
        rollout_id=text("rollout_id", row["rollout_id"]),
        num_tokens=row["num_tokens"],
        ended=row["ended"],
        tokens=tuple(row["tokens"]),
        episode=None if row.get("episode") is None else _read_episode(decode_once(row["episode"])),
    )


def _read_episode(data: Mapping[str, Any]) -> EpisodeSummary:
    score = None if data["score"] is None else _score_of(data["score"])
    texts, numbers = (data["stop_reason"], data["error"]), (data["num_turns"], data["num_prompt_messages"])
    if any(type(text) is not str for text in texts) or any(type(number) is not int for number in numbers):
        raise TypeError(f"an episode with {texts} and {numbers}")
    lists = {name: tuple(data.get(name, ())) for name in ("calls", "tokens", "loss_mask", "unread_calls")}
    return EpisodeSummary(**{**data, **lists, "score": score})


def _read_score(row: Mapping[str, Any], text: _Text, decode_once: _Decoder) -> Score:
    logged = decode_once(row["logged"])
    extras = dict(decode_once(row["extras"]))
    for name, said in logged.items():
        if "text" in said:
            extras[name] = {**extras[name], "log": said["text"]}
    components: dict[str, float | None] = {}
    parts: dict[str, Score] = {}
    terms: dict[str, Term] = {}
    for position, stored in enumerate(row["components"]):
        place = f"components/{position}"
        name = text(f"{place}/name", stored["name"])
        components[name] = stored["value"]
        if stored["outcome"] is not None:
            part = Score(
                value=stored["value"],
                outcome=Outcome(stored["outcome"]),
                detail=text(f"{place}/detail", stored["detail"]),
                extras=extras.get(name, {}),
                seconds=stored["seconds"],
                metrics=logged[name].get("metrics", {}) if name in logged else {},
            )
            parts[name] = part if stored["more"] is None else _with_more(part, decode_once(stored["more"]))
        if stored["term_outcome"] is not None:
            terms[name] = Term(
                weight=stored["weight"],
                value=stored["weighed"],
                outcome=Outcome(stored["term_outcome"]),
                gate_shut=stored["gate_shut"],
                detail=text(f"{place}/term_detail", stored["term_detail"]),
            )
    return Score(
        value=row["total"],
        components=components,
        outcome=Outcome(row["outcome"]),
        detail=text("detail", row["detail"]),
        extras=extras,
        seconds=row["seconds"],
        parts=parts,
        terms=terms,
    )


def _with_more(part: Score, more: Mapping[str, Any]) -> Score:
    return dataclasses.replace(
        part,
        components=more.get("components", {}),
        extras=more.get("extras", part.extras),
        parts={name: _score_of(data) for name, data in more.get("parts", {}).items()},
        terms={name: _term_of(data) for name, data in more.get("terms", {}).items()},
    )


def _score_of(data: Mapping[str, Any]) -> Score:
    return Score(
        **{
            **data,
            "outcome": Outcome(data["outcome"]),
            "parts": {name: _score_of(inner) for name, inner in data["parts"].items()},
            "terms": {name: _term_of(inner) for name, inner in data["terms"].items()},
        }
    )


def _term_of(data: Mapping[str, Any]) -> Term:
    return Term(**{**data, "outcome": Outcome(data["outcome"])})
