"""Scores as plain data: what a worker can send, and replies that none sends, which are refused or cut."""

import itertools
import json
import pickle
from typing import Any

import pytest

from agent_tunix.execution.workers import frames
from agent_tunix.rewards import Outcome, Score
from agent_tunix.rewards.sample import Term
from agent_tunix.rewards.score_data import (
    LONGEST_DETAIL,
    MOST_ITEMS,
    TOO_MUCH,
    from_data,
    pack,
    plain_mapping,
    tidy,
    to_data,
    unpack,
)
from tests.tracking.rollouts.support import same

GOOD = pack(Score(1.0, seconds=0.1))


def with_part(name: str, value: Any) -> bytes:
    return json.dumps(["ended", 0, [GOOD | {name: value}]]).encode()


def receive(content: bytes) -> list[Score]:
    """Return the scores of a reply as the trainer reads it."""
    _, _, scores = frames.load_json(content)
    return [unpack(score) for score in scores]


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


FORGED = {
    "a pickle": pickle.dumps(("ended", 0, [])),
    "a pickle that would run a program": b"cos\nsystem\n(S'true'\ntR.",
    "no text": b"\xff\xfe",
    "nothing": b"",
    "a mapping": b'{"ended": 0}',
    "an empty list": b"[]",
    "a kind that is no text": b"[[]]",
    "brackets without end": b"[" * 1_000_000,
    "a number of a million digits": b'["ended", ' + b"9" * 1_000_000 + b"]",
    "a score that is none": b'["ended", 0, [{}]]',
    "a score that is a list": b'["ended", 0, [[1.0, "scored"]]]',
    "a score with parts left out": b'["ended", 0, [{"value": 1.0, "outcome": "scored"}]]',
    "a score with unknown parts": with_part("more", 1),
    "a score with scores inside": with_part("parts", {"x": GOOD}),
    "a value that is a text": with_part("value", "1.0"),
    "a value that is a truth": with_part("value", True),
    "a value beyond bounds": with_part("value", 1e13),
    "a value that is no number": with_part("value", float("nan")),
    "no value of a score": with_part("value", None),
    "an outcome that is none": with_part("outcome", "won"),
    "an outcome that is a list": with_part("outcome", []),
    "a failure with a value": with_part("outcome", "error"),
    "a detail that is a number": with_part("detail", 3),
    "extras that are a list": with_part("extras", []),
    "seconds that are a text": with_part("seconds", "long"),
    "negative seconds": with_part("seconds", -1.0),
    "a component that is a text": with_part("components", {"x": "y"}),
    "a metric that is a list": with_part("metrics", {"x": []}),
    "a value of 400 digits": with_part("value", 10**400),
    "seconds of 400 digits": with_part("seconds", 10**400),
    "a component of 400 digits": with_part("components", {"x": 10**400}),
}


@pytest.mark.parametrize("name", FORGED)
def test_it_is_refused(name: str) -> None:
    with pytest.raises((frames.BrokenFrameError, ValueError)):
        receive(FORGED[name])


def test_a_reply_too_large_is_refused_before_it_has_come() -> None:
    reader = frames.FrameReader(frames.load_json, frames.LARGEST_JSON_BYTES)
    with pytest.raises(frames.BrokenFrameError, match="bytes"):
        list(reader.feed(b"ATRW" + (frames.LARGEST_JSON_BYTES + 1).to_bytes(4, "big")))


def test_a_reply_in_too_many_pieces_is_refused() -> None:
    reader = frames.FrameReader(frames.load_json, frames.LARGEST_JSON_BYTES)
    assert not list(reader.feed(b"ATRW" + (1_000_000).to_bytes(4, "big")))
    with pytest.raises(frames.BrokenFrameError, match="pieces"):
        list(itertools.chain.from_iterable(map(reader.feed, [b" "] * 100_000)))


@pytest.mark.parametrize(
    "score",
    [
        Score(0.5),
        Score(
            0.25, {"a": 1.0, "b": None}, extras={"text": "é\ud800", "list": [1, None, {"x": 2.5}]}, metrics={"m": 3.0}
        ),
        Score.failed(Outcome.TIMEOUT, "too long", 3.0),
    ],
)
def test_a_score_arrives_as_it_was_sent(score: Score) -> None:
    reader = frames.FrameReader(frames.load_json)
    ((kind, number, (data,)),) = reader.feed(frames.pack_json(("ended", 3, [pack(score)])))
    assert (kind, number) == ("ended", 3)
    assert unpack(data) == tidy(score)


def test_every_field_of_a_score_survives_the_journey() -> None:
    part = Score.failed(Outcome.TIMEOUT, "slow", 0.25)
    score = Score(
        0.1 + 0.2,
        {"a": None, "b": -0.0},
        detail="why",
        extras={"shown": [1, {"x": "ü"}], "set": {1, 2}},
        seconds=1.5,
        parts={"a": part, "b": Score(-0.0, metrics={"m": 1e-300})},
        terms={
            "a": Term(0.5, None, Outcome.TIMEOUT, detail="slow"),
            "b": Term(2.0, 0.0, Outcome.NOT_APPLICABLE, gate_shut=True),
        },
        metrics={"n": 3.0},
    )
    assert same(from_data(to_data(score)), score)
    assert same(from_data(to_data(tidy(score))), score)


def test_what_a_terminal_would_obey_is_written_out() -> None:
    (score,) = receive(with_part("detail", "\x1b]0;mine\x07\nnext line"))
    assert score.detail == r"\x1b]0;mine\x07\x0anext line"


def test_texts_of_extras_and_names_are_cut_and_hold_nothing_hidden() -> None:
    forged = {
        "extras": {"\x1b[2J": ["\ud800\x1b" + "x" * 50_000]},
        "components": {"a\nb": 1},
        "metrics": {"\ud800": 1.0},
    }
    (score,) = receive(json.dumps(["ended", 0, [GOOD | forged]]).encode())
    (((name, (text,)),)) = score.extras.items()
    assert (name, score.components, score.metrics) == (r"\x1b[2J", {r"a\x0ab": 1.0}, {r"\ud800": 1.0})
    assert text.startswith(r"\ud800\x1bxxx")
    assert len(text) < 21_000


@pytest.mark.parametrize(
    "extras",
    [
        {"x": [{}] * 200_000},
        {str(number): number for number in range(100_000)},
        {"x": deep(500)},
        {f"note {number}": "\x1b" * 4_000 for number in range(50)},
    ],
    ids=["many items", "many names", "deep", "much text"],
)
def test_extras_of_a_forged_reply_are_cut(extras: dict[str, Any]) -> None:
    (score,) = receive(with_part("extras", extras))
    shown = json.dumps(score.extras)
    assert len(shown) < 2**18
    assert list(score.extras) == list(extras)[: len(score.extras)]
    assert TOO_MUCH in score.extras.values() or len(extras) == 1
    assert plain_mapping(score.extras) == score.extras  # cutting again changes nothing


def test_a_forged_reply_has_no_more_names_than_a_score_may_have() -> None:
    (score,) = receive(with_part("components", {str(number): number for number in range(20_000)}))
    assert len(score.components) == MOST_ITEMS


def test_a_long_detail_is_cut() -> None:
    _, _, why = frames.load_json(json.dumps(["unbuilt", 0, "x" * 100_000]).encode())
    assert len(why) == LONGEST_DETAIL


def test_names_and_texts_hold_nothing_hidden() -> None:
    hidden = "a\x1b[31m\u202e\nb"
    score = Score(1.0, {hidden: 1.0}, Outcome.SCORED, hidden, {hidden: [hidden]}, 0.0, metrics={hidden: 1.0})
    sent = tidy(score)
    for name in (sent.detail, *sent.components, *sent.metrics, *sent.extras):
        assert name == "a\\x1b[31m\\u202e\\x0ab"
    assert list(sent.extras.values()) == [["a\\x1b[31m\\u202e\nb"]]


def test_values_that_a_reward_reads_are_not_escaped() -> None:
    state = {"a\nb": ["\x1b", "x" * 20_000, *["y" * 20_000] * 9], "seen": {1}}
    assert plain_mapping(state, shown=False) == state
