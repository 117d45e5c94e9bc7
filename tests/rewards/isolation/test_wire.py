"""Replies that no worker sends: each is refused, and none of them is ever run or believed."""

import itertools
import json
import pickle
from typing import Any

import pytest

from agent_tunix.execution.workers import frames
from agent_tunix.rewards import Outcome, Score
from agent_tunix.rewards.execution import plain_wire, wire

GOOD = [1.0, "scored", "", {}, 0.1, {}, {}]


def with_part(place: int, value: Any) -> bytes:
    score = [*GOOD[:place], value, *GOOD[place + 1 :]]
    return json.dumps(["ended", 0, [score]]).encode()


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
    "a mapping as a part": b'["unbuilt", 0, {}]',
    "brackets without end": b"[" * 1_000_000,
    "a number of a million digits": b'["ended", ' + b"9" * 1_000_000 + b"]",
    "a score that is none": b'["ended", 0, [{}]]',
    "a score with parts left out": b'["ended", 0, [[1.0, "scored"]]]',
    "a value that is a text": with_part(0, "1.0"),
    "a value that is a truth": with_part(0, True),
    "a value beyond bounds": with_part(0, 1e13),
    "a value that is no number": b'["ended", 0, [[NaN, "scored", "", {}, 0.1, {}, {}]]]',
    "no value of a score": with_part(0, None),
    "an outcome that is none": with_part(1, "won"),
    "an outcome that is a list": with_part(1, []),
    "a failure with a value": with_part(1, "error"),
    "a detail that is a number": with_part(2, 3),
    "extras that are a list": with_part(3, []),
    "extras too deep": with_part(3, {"x": deep(500)}),
    "seconds that are a text": with_part(4, "long"),
    "negative seconds": with_part(4, -1.0),
    "a component that is a text": with_part(5, {"x": "y"}),
    "a metric that is a list": with_part(6, {"x": []}),
    "a value of 400 digits": with_part(0, 10**400),
    "seconds of 400 digits": with_part(4, 10**400),
    "a component of 400 digits": with_part(5, {"x": 10**400}),
    "extras of too many items": with_part(3, {"x": [{}] * 20_000}),
    "many scores of many items": json.dumps(["ended", 0, [[*GOOD[:3], {"x": [0] * 9000}, *GOOD[4:]]] * 20]).encode(),
}


@pytest.mark.parametrize("name", FORGED)
def test_it_is_refused(name: str) -> None:
    with pytest.raises(frames.BrokenFrameError):
        plain_wire.load(FORGED[name])


def test_a_reply_too_large_is_refused_before_it_has_come() -> None:
    reader = frames.FrameReader(plain_wire.load, plain_wire.LARGEST_REPLY_BYTES)
    with pytest.raises(frames.BrokenFrameError, match="bytes"):
        list(reader.feed(b"ATRW" + (plain_wire.LARGEST_REPLY_BYTES + 1).to_bytes(4, "big")))


def test_a_reply_in_too_many_pieces_is_refused() -> None:
    reader = frames.FrameReader(plain_wire.load, plain_wire.LARGEST_REPLY_BYTES)
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
    plain = wire.to_plain(score)
    ((kind, number, (read,)),) = frames.FrameReader(plain_wire.load).feed(frames.pack_json(("ended", 3, [plain])))
    assert (kind, number) == ("ended", 3)
    assert wire.from_plain(read) == wire.from_plain(plain)


def test_what_a_terminal_would_obey_is_written_out() -> None:
    ((_, _, detail, *_),) = plain_wire.load(with_part(2, "\x1b]0;mine\x07\nnext line"))[2]
    assert detail == r"\x1b]0;mine\x07\x0anext line"


def test_texts_of_extras_and_names_are_cut_and_hold_nothing_hidden() -> None:
    forged = [1.0, "scored", "", {"\x1b[2J": ["\ud800\x1b" + "x" * 50_000]}, 0.0, {"a\nb": 1}, {"\ud800": 1.0}]
    ((_, _, _, extras, _, components, metrics),) = plain_wire.load(json.dumps(["ended", 0, [forged]]).encode())[2]
    (((name, (text,)),)) = extras.items()
    assert (name, components, metrics) == (r"\x1b[2J", {r"a\x0ab": 1.0}, {r"\ud800": 1.0})
    assert text.startswith(r"\ud800\x1bxxx")
    assert len(text) < 21_000


def test_as_much_as_a_worker_may_send_is_taken() -> None:
    plain = wire.to_plain(Score(1.0, extras={"list": list(range(50_000)), "other": 1}))
    assert not plain_wire.has_too_many_items([plain])
    assert plain_wire.load(frames.pack_json(("ended", 0, [plain]))[frames.HEADER_BYTES :])


def test_texts_of_a_score_are_left_out_once_there_are_too_many() -> None:
    (score,) = plain_wire.load(with_part(3, {f"note {number}": "\x1b" * 4_000 for number in range(50)}))[2]
    assert 20_000 < len(json.dumps(score)) < 2**18
    assert wire.TOO_MUCH in score[3].values()


def test_a_long_detail_is_cut() -> None:
    _, _, why = plain_wire.load(json.dumps(["unbuilt", 0, "x" * 100_000]).encode())
    assert len(why) == wire.LONGEST_DETAIL


def test_workers_that_are_not_isolated_say_nothing_hidden_either() -> None:
    from agent_tunix.rewards.execution import wire
    from agent_tunix.rewards.sample import Outcome, Score

    hidden = "a\x1b[31m\u202e\nb"
    score = Score(1.0, {hidden: 1.0}, Outcome.SCORED, hidden, {hidden: [hidden]}, 0.0, metrics={hidden: 1.0})
    read = wire.from_plain(wire.to_plain(score))
    for name in (read.detail, *read.components, *read.metrics, *read.extras):
        assert name == "a\\x1b[31m\\u202e\\x0ab"
    assert list(read.extras.values()) == [["a\\x1b[31m\\u202e\nb"]]
