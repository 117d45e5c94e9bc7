"""Rows of tokens from calls: what continues, what forks, and that each sampled token trains once."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.serving.calls import RecordedCall
from agent_tunix.serving.forks import ForkCause
from agent_tunix.serving.rows import TokenRow, is_trained, main_row, make_rows
from tests.serving.agents_at_random import ScriptedPolicy, run_agent


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(65 + token % 57) for token in ids)


def call(prompt: Sequence[int], tokens: Sequence[int], finish_reason: str = "stop") -> RecordedCall:
    return RecordedCall(tuple(prompt), tuple(tokens), tuple(-float(token) for token in tokens), 0, finish_reason)


@given(seed=st.integers(0, 10**9), num_calls=st.integers(1, 14))
def test_every_sampled_token_is_trained_once_with_its_log_probability(seed: int, num_calls: int) -> None:
    calls = run_agent(seed, num_calls).calls
    rows = make_rows(calls, decode)
    trained = Counter(
        (token, logp)
        for row in rows
        for token, own, logp in zip(row.tokens, row.sampled, row.logps, strict=True)
        if own
    )
    sampled = Counter(pair for call in calls if is_trained(call) for pair in zip(call.tokens, call.logps, strict=True))
    assert trained == sampled
    assert sorted(number for row in rows for number in row.calls) == [n for n, c in enumerate(calls) if is_trained(c)]


@given(seed=st.integers(0, 10**9), num_calls=st.integers(1, 14))
def test_a_row_holds_each_of_its_calls_after_the_prompt_that_was_sent(seed: int, num_calls: int) -> None:
    calls = run_agent(seed, num_calls).calls
    rows = make_rows(calls, decode)
    for number, row in enumerate(rows):
        whole = row.prompt + row.tokens
        assert row.prompt == calls[row.calls[0]].prompt
        assert row.sampled[0]
        assert whole == calls[row.calls[-1]].prompt + calls[row.calls[-1]].tokens
        for own in row.calls:
            sent = calls[own].prompt + calls[own].tokens
            assert whole[: len(sent)] == sent
        assert all(logp == 0.0 for logp, own in zip(row.logps, row.sampled, strict=True) if not own)
        assert row.parent is None or row.parent < number
        assert (row.cause is None) == (number == 0)


def test_an_agent_that_appends_makes_one_row_over_ten_turns() -> None:
    policy = ScriptedPolicy()
    history: tuple[int, ...] = (1, 2, 3)
    for turn in range(10):
        history += (*policy.call(history, 4), turn, turn)
    (row,) = make_rows(policy.calls)
    assert row.calls == list(range(10))
    assert sum(row.sampled) == 40
    assert row.prompt + row.tokens == history[:-2]


def test_the_second_of_two_calls_that_continue_a_row_forks() -> None:
    first, second, third = call([1, 2], [10]), call([1, 2, 10, 3], [11]), call([1, 2, 10, 4], [12])
    rows = make_rows([first, second, third], decode)
    assert [row.calls for row in rows] == [[0, 1], [2]]
    assert rows[1] == TokenRow(
        (1, 2, 10, 4, 12), 4, [True], [-12.0], [2], 0, 3, ForkCause.BRANCH, rows[1].first_difference
    )


def test_a_call_continues_its_own_conversation_rather_than_the_beginning_of_it() -> None:
    rows = make_rows([call([1], [10]), call([1], [10]), call([1, 10, 2], [11]), call([1, 10, 2, 11], [12])])
    assert [row.calls for row in rows] == [[0, 2, 3], [1]]


def test_cancelled_and_empty_calls_are_in_no_row() -> None:
    rows = make_rows([call([1], [10], "cancelled"), call([1], []), call([1], [11], "length")])
    assert [row.calls for row in rows] == [[2]]
    assert make_rows([]) == []
    assert main_row([]) is None


LETTERS = [ord(letter) - 65 for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]


@pytest.mark.parametrize(
    ("prompt", "cause", "difference"),
    [
        ("ABCDEFGHIJ", ForkCause.BRANCH, ""),
        ("ABCDEFGHIJKLMNOPQRSTZZ", ForkCause.BRANCH, "after 'QRST': 'UVWX' became 'ZZ'"),
        ("ABCDEFGHIJOPQRSTUV", ForkCause.DROPPED, "after 'GHIJ': 'KLMNOPQR' became 'OPQRSTUV'"),
        ("ABCDEFGHIJKLMZZZ", ForkCause.REWRITTEN, "after 'JKLM': 'NOPQRSTU' became 'ZZZ'"),
        ("ZBCDEFGHIJKLMNOPQRST", ForkCause.REWRITTEN, "after '': 'ABCDEFGH' became 'ZBCDEFGH'"),
        ("AYYYYYYY", ForkCause.NEW, "after 'A': 'BCDEFGHI' became 'YYYYYYY'"),
        ("ABCDEFGYYY", ForkCause.BRANCH, "after 'DEFG': 'HIJKLMNO' became 'YYY'"),
    ],
)
def test_the_cause_and_the_first_difference_of_a_fork_are_named(prompt: str, cause: ForkCause, difference: str) -> None:
    ids = LETTERS
    calls = [call(ids[:10], ids[10:20]), call(ids[:22], ids[22:24]), call([ord(c) - 65 for c in prompt], [50])]
    row = make_rows(calls, decode)[1]
    assert (row.cause, row.first_difference) == (cause, difference)
    assert row.parent == (None if cause is ForkCause.NEW else 0)


def test_other_tokens_of_the_same_text_are_told_from_other_text() -> None:
    texts = {1: "a", 10: "b", 11: "c", 12: "bc", 13: "d", 14: "cd"}
    spell = lambda ids: "".join(texts[token] for token in ids)  # noqa: E731
    rows = make_rows([call([1], [10, 11, 13]), call([1, 12, 13], [13]), call([1, 10, 14], [13])], spell)
    assert [row.cause for row in rows[1:]] == [ForkCause.RETOKENISED] * 2
    assert rows[1].first_difference == "after 'a': the tokens [10, 11, 13] of 'bcd' became [12, 13]"
