import csv
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_tunix.errors import UndecidedAnswerError
from agent_tunix.rewards import Outcome, Sample, get_reward_function
from agent_tunix.rewards.answers import (
    Question,
    Ruling,
    Tier,
    Verdict,
    compare_answers,
    read_reference,
    set_thorough_runner,
    verify_thoroughly,
)
from tests.raising import raises

ROOT = Path(__file__).parents[3]
PAIRS = ROOT / "benchmarks" / "answer_pairs.tsv"
# What the grammar does not read.
HARD = (r"\boxed{\int \sin x}", r"\cos x + 1")
HARD_QUESTION = Question(r"\int \sin x", r"\cos x + 1")


class Asked:
    """A runner that notes what it is asked, batch by batch, and always says the same."""

    def __init__(self) -> None:
        self.batches: list[list[Question]] = []
        self.says = Ruling(Verdict.EQUAL)

    def __call__(self, questions: Sequence[Question]) -> list[Ruling]:
        self.batches.append(list(questions))
        return [self.says] * len(questions)


@pytest.fixture
def asked() -> Iterator[Asked]:
    runner = Asked()
    previous = set_thorough_runner(runner)
    yield runner
    set_thorough_runner(previous)


def read_pairs() -> list[dict[str, str]]:
    with PAIRS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def sample(response: str, answer: str) -> Sample:
    return Sample(response, columns={"answer": answer})


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", read_pairs(), ids=lambda pair: f"{pair['answer']} for {pair['reference']}")
def test_the_verdict_of_a_pair(pair: dict[str, str]) -> None:
    assert compare_answers(pair["answer"] or None, read_reference(pair["reference"])).verdict == pair["verdict"]


def test_every_pair_that_differs_from_math_verify_is_documented_with_its_reason() -> None:
    page = (ROOT / "docs" / "answers.md").read_text(encoding="utf-8")
    for pair in read_pairs():
        reason = pair["differs from math-verify"]
        if reason:
            assert f"**{reason}**" in page.lower(), reason
            assert f"`{pair['answer']}` for `{pair['reference']}`" in page, pair


def test_it_works_off_the_main_thread() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(verify_thoroughly, r"\sin\frac{\pi}{6}", "0.5").result() is Verdict.EQUAL


# --- who answers -----------------------------------------------------------------------------------------------------


def test_what_the_grammar_reads_is_not_asked(asked: Asked) -> None:
    for answer, reference in (("19", "18"), ("1/2", "0.5"), (r"\sqrt{8}", r"2\sqrt{2}"), ("(2,1)", "(1,2)")):
        assert compare_answers(answer, read_reference(reference)).tier is not Tier.THOROUGH
    assert asked.batches == []


def test_what_is_not_proved_is_asked_and_the_detail_says_who_answered(asked: Asked) -> None:
    comparison = compare_answers(*HARD_QUESTION[:1], read_reference(HARD_QUESTION.reference))
    assert comparison.equal
    assert comparison.tier is Tier.THOROUGH
    assert comparison.detail.endswith("(math-verify)")
    assert asked.batches == [[HARD_QUESTION]]


@pytest.mark.parametrize(
    "name",
    ["math", "debug", "check_numbers", "answer_correctness", "format_and_content", "conciseness", "multi_aspect"],
)
def test_the_detail_of_a_score_says_which_tier_answered(asked: Asked, name: str) -> None:
    exact, thorough = get_reward_function(name).score([sample("4", "4"), sample(*HARD)])
    assert "(exact)" in exact.detail
    assert "(math-verify)" in thorough.detail


def test_a_text_of_any_length_is_refused_rather_than_parsed(asked: Asked) -> None:
    comparison = compare_answers("x" * 3000, read_reference("5"))
    assert comparison.verdict is Verdict.DIFFERENT
    assert "more than 2,000 characters" in comparison.detail
    assert asked.batches == []


# --- a batch ---------------------------------------------------------------------------------------------------------


def test_a_batch_asks_once_for_all_its_completions(asked: Asked) -> None:
    samples = [sample(*HARD), sample("4", "4"), sample(r"\boxed{\int z}", "z^2"), sample(*HARD), sample("5", "4")]
    scores = get_reward_function("math").score(samples)
    assert [score.value for score in scores] == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert asked.batches == [[HARD_QUESTION, Question(r"\int z", "z^2")]]


def test_what_was_ruled_is_not_asked_again(asked: Asked) -> None:
    for _ in range(3):
        assert get_reward_function("math")(HARD[0], answer=HARD[1]) == 1.0
    assert len(asked.batches) == 1


def test_a_reward_that_logs_does_so_once_for_a_completion_that_had_to_wait(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agent_tunix.rewards")
    (score,) = get_reward_function("debug").score([sample(*HARD)])
    assert score.extras["log"].count("INFO") == 1


# --- what is not decided ---------------------------------------------------------------------------------------------


def test_an_answer_for_which_time_runs_out_is_a_timeout_and_not_wrong(asked: Asked) -> None:
    asked.says = Ruling(Verdict.UNDECIDED, "took too long", timed_out=True)
    (score,) = get_reward_function("math").score([sample(*HARD)])
    assert (score.value, score.outcome) == (None, Outcome.TIMEOUT)
    assert score.detail.endswith("(math-verify): took too long")


def test_an_answer_over_which_math_verify_fails_is_an_error_and_is_asked_again(asked: Asked) -> None:
    asked.says = Ruling(Verdict.UNDECIDED, "died")
    for _ in range(2):
        (score,) = get_reward_function("math").score([sample(*HARD)])
        assert (score.value, score.outcome) == (None, Outcome.ERROR)
    assert len(asked.batches) == 2


def test_a_direct_call_raises_what_a_batch_has_as_an_outcome(asked: Asked) -> None:
    asked.says = Ruling(Verdict.UNDECIDED, "took too long", timed_out=True)
    with raises(UndecidedAnswerError, "undecided_answer") as caught:
        get_reward_function("math")(HARD[0], answer=HARD[1])
    assert caught.value.timed_out
    assert "took too long" in str(caught.value)
