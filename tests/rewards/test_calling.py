"""A plain function of one response: what it is given, what it may return, and a direct call."""

import functools
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.conventions import PlainReward

SAMPLE = Sample(
    "the response",
    prompt="the prompt",
    columns={"answer": "4", "level": 3, "tags": ["a", "b"], "prompt": "a column", "step": "a column"},
    format="the format",
    step=7,
    max_steps=10,
)


def seen_by(function: Callable[..., Any], sample: Sample = SAMPLE, **args: Any) -> Any:
    """Return what a function that returns its arguments was given."""
    seen: list[Any] = []

    @functools.wraps(function)
    def recording(*positional: Any, **named: Any) -> float:
        seen.append(function(*positional, **named))
        return 0.0

    (score,) = PlainReward(recording, "recording", args).score([sample])
    assert score.outcome is Outcome.SCORED, score.detail
    return seen[0]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda response: response, "the response"),
        (lambda completion: completion, "the response"),
        (lambda response, /: response, "the response"),
        (lambda response, answer="": (response, answer), ("the response", "4")),
        (lambda response, prompt="", answer="": (prompt, answer), ("the prompt", "4")),
        (lambda prompt, response: (prompt, response), ("the prompt", "the response")),
        (lambda answer, response, /: (answer, response), ("4", "the response")),
        (lambda response, absent=5, level=0, /: (absent, level), (5, 3)),
        (lambda response, *, level: level, 3),
        (lambda response, format: format, "the format"),
        (lambda response, step, max_steps: (step, max_steps), (7, 10)),
        (lambda response, absent=5: absent, 5),
        (lambda response, prompt, metadata: metadata, dict(SAMPLE.columns)),
        (lambda response, step, **kwargs: (step, kwargs["answer"], "step" in kwargs), (7, "4", False)),
    ],
)
def test_a_function_is_given_what_it_names(function: Callable[..., Any], expected: object) -> None:
    assert seen_by(function) == expected


def test_var_keyword_receives_everything_else_once() -> None:
    kwargs = seen_by(lambda response, **kwargs: kwargs)
    given = {"prompt", "answer", "format", "step", "max_steps", "num_tokens", "metadata", "level", "tags"}
    assert set(kwargs) == given
    assert kwargs["prompt"] == "the prompt"


def test_var_keyword_receives_the_response_where_no_parameter_does() -> None:
    def positional(prompt: str, /, **kwargs: Any) -> dict[str, Any]:
        return kwargs

    assert seen_by(positional)["response"] == "the response"
    assert "completion" not in seen_by(positional)
    assert seen_by(lambda **kwargs: kwargs)["response"] == "the response"


def test_a_wrapped_function_is_called_by_its_own_signature() -> None:
    def plain(response: str, level: int) -> float:
        return float(level)

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> float:
        return plain(*args, **kwargs)

    assert PlainReward(wrapper, "plain")("x", level=2) == 2.0


def test_a_callable_object_and_a_partial_are_functions() -> None:
    class Scorer:
        def __call__(self, response: str, scale: float = 1.0) -> float:
            return scale * len(response)

    assert PlainReward(Scorer(), "scorer")("abc") == 3.0
    assert PlainReward(functools.partial(Scorer(), scale=2.0), "scorer")("abc") == 6.0


def test_an_argument_from_configuration_wins_over_a_column() -> None:
    assert seen_by(lambda response, level: level, level=9) == 9
    assert seen_by(lambda response, step: step, step=1) == 1


def test_one_reward_cannot_corrupt_what_the_next_is_given() -> None:
    def corrupting(response: str, metadata: dict[str, Any], tags: list[str], extra: list[int]) -> float:
        assert extra == [1]
        metadata["tags"].append("c")
        metadata["answer"] = "5"
        tags.clear()
        extra.append(2)
        return 0.0

    reward = PlainReward(corrupting, "corrupting", {"extra": [1]})
    assert [score.outcome for score in reward.score([SAMPLE, SAMPLE])] == [Outcome.SCORED, Outcome.SCORED]
    assert SAMPLE.columns["tags"] == ["a", "b"]
    assert SAMPLE.columns["answer"] == "4"


def needs_level(response: str, level: int) -> float:
    return float(level)


def test_a_required_parameter_that_nothing_provides_is_named_before_training() -> None:
    reward = PlainReward(needs_level, "needs_level")
    with pytest.raises(RewardSignatureError, match=r"`level`.*answer, completion"):
        reward.check_parameters(["answer"])
    reward.check_parameters(["answer", "level"])
    PlainReward(needs_level, "needs_level", {"level": 1}).check_parameters([])
    with pytest.raises(RewardSignatureError, match="`answer`"):  # provided only where there is such a column
        PlainReward(lambda response, answer: 0.0, "mine").check_parameters(["question"])
    with pytest.raises(RewardSignatureError, match="`completions`"):  # `**kwargs` takes the response
        PlainReward(lambda completions, **kwargs: [], "mine").check_parameters(["answer"])


def test_a_column_missing_from_one_row_is_an_error_of_that_row() -> None:
    first, second = PlainReward(needs_level, "needs_level").score([SAMPLE, Sample("x")])
    assert first.value == 3.0
    assert second.outcome is Outcome.ERROR
    assert "level" in second.detail


@pytest.mark.parametrize("name", ["lvl", "response", "completion"])
def test_an_argument_that_cannot_be_set_is_an_error_naming_those_that_can(name: str) -> None:
    with pytest.raises(RewardError, match=f"'{name}'; it has: level"):
        PlainReward(needs_level, "needs_level", {name: 1})


class Scorer:
    def __init__(self, response: str = "") -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda text: 0.0, "rename that parameter to `response`"),
        (lambda: 0.0, "must take `response`"),
        (lambda *response: 0.0, "must take `response`"),
        (Scorer, "is the class Scorer"),
        ("math", "must be callable"),
    ],
)
def test_what_cannot_take_a_response_is_refused(function: Any, message: str) -> None:
    with pytest.raises(RewardSignatureError, match=message):
        PlainReward(function, "mine")


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.int64(-3), -3.0),
        (np.bool_(True), 1.0),
        (np.array(2.0), 2.0),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (Score(0.5, detail="why"), 0.5),
    ],
)
def test_a_number_of_any_type_is_a_score(returned: Any, value: float) -> None:
    (score,) = PlainReward(lambda response: returned, "mine").score([SAMPLE])
    assert (score.outcome, score.value) == (Outcome.SCORED, value)
    assert PlainReward(lambda response: returned, "mine")("x") == value


def raising(error: BaseException) -> Callable[..., Any]:
    def fails(response: str) -> float:
        raise error

    return fails


async def coroutine(response: str) -> float:
    return 1.0


# Of a table of faults in all conventions: conventions/test_faults.py.
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda response: math.nan, "returned nan; a reward is finite and at most 1e+12 in size"),
        (lambda response: Score(1e13), "ValueError: a score must be finite"),
        (lambda response: [1, 2, 3], "returned a list of length 3; a per-response reward returns one number"),
        (lambda response: coroutine(response), "returned a coroutine"),
        (lambda response: 10**400, "OverflowError"),
        (lambda response: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_direct_call_raises_where_a_score_tells_the_fault(function: Callable[..., Any], reason: str) -> None:
    reward = PlainReward(function, "mine")
    (score,) = reward.score([SAMPLE])
    assert score.outcome is Outcome.ERROR
    assert reason in score.detail
    with pytest.raises((ValueError, ArithmeticError)):
        reward("x")


def test_none_means_not_applicable() -> None:
    reward = PlainReward(lambda response: None, "mine")
    assert reward.score([SAMPLE])[0].outcome is Outcome.NOT_APPLICABLE
    assert reward("x") is None


def test_a_score_is_taken_as_it_is() -> None:
    given_score = Score.failed(Outcome.TIMEOUT, "the judge did not answer")
    (score,) = PlainReward(lambda response: given_score, "mine").score([SAMPLE])
    assert (score.outcome, score.detail) == (Outcome.TIMEOUT, "the judge did not answer")


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (raising(StopIteration()), ": raise error)"),
        (lambda response: functools.reduce(max, []), "max, [])"),
        (lambda response: Fraction("x"), 'Fraction("x")'),
    ],
)
def test_the_users_line_is_named_even_when_a_library_raised(function: Callable[..., Any], line: str) -> None:
    (score,) = PlainReward(function, "mine").score([SAMPLE])
    assert "test_calling.py:" in score.detail
    assert line in score.detail


def test_a_bad_reference_is_an_outcome_of_its_own() -> None:
    reward = PlainReward(raising(BadReferenceError("'' is no number")), "mine")
    (score,) = reward.score([SAMPLE])
    assert (score.outcome, score.detail) == (Outcome.BAD_REFERENCE, "'' is no number")
    with pytest.raises(BadReferenceError):
        reward("x")


def test_a_direct_call_takes_columns_and_surroundings_by_name() -> None:
    reward = PlainReward(lambda response, prompt, step, level, metadata: f"{prompt} {step} {level} {metadata}", "mine")
    with pytest.raises(RewardError, match="returned a str"):
        reward("x", prompt="p", step=3, level=2, metadata={"a": 1})
    seen = PlainReward(lambda response, step, metadata: step + metadata["a"] + metadata["level"], "mine")
    assert seen("x", step=3, level=2, metadata={"a": 1}) == 6.0


def test_explain_says_how_the_score_came_about_and_describe_where_it_is_written() -> None:
    score = PlainReward(lambda response: Score(1.0, detail="because"), "mine").explain("x")
    assert (score.value, score.detail) == (1.0, "because")
    description = PlainReward(needs_level, "mine").describe()
    assert description.startswith(f"{__name__}.needs_level (")
    assert description.endswith(f"tests/rewards/test_calling.py:{needs_level.__code__.co_firstlineno})")
