import copy
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.rewards import EpisodeSummary, Outcome, Sample, Score, resolve_reward, settle_completions
from agent_tunix.rewards.conventions import CallSettings, TrlReward
from tests.rewards.execution.leftovers import check_nothing_left, take_stock

from .shapes import samples

TEXT, MESSAGES = CallSettings(completions="text"), CallSettings(completions="messages")


def seen_by(function: Any, settings: CallSettings = TEXT, **args: Any) -> Any:
    """Return what a function that returns its arguments was given, for two completions."""
    seen: list[Any] = []

    def recording(**kwargs: Any) -> list[float]:
        seen.append(function(**kwargs))
        return [0.0, 0.0]

    recording.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    scores = TrlReward(recording, "recording", args, settings).score(samples("one", "two two"))
    assert [score.outcome for score in scores] == [Outcome.SCORED] * 2, scores[0].detail
    return seen[0]


@pytest.mark.parametrize(
    ("function", "text", "messages"),
    [
        (
            lambda completions: completions,
            ["one", "two two"],
            [[{"role": "assistant", "content": "one"}], [{"role": "assistant", "content": "two two"}]],
        ),
        (lambda prompts: prompts, ["2 + 2?"] * 2, [[{"role": "user", "content": "2 + 2?"}]] * 2),
        (lambda completions, answer: answer, ["4", "4"], ["4", "4"]),
        (lambda completion_ids: completion_ids, [[0], [0, 1]], [[0], [0, 1]]),
        (lambda completions, absent=5: absent, 5, 5),
    ],
)
def test_a_function_is_given_lists_of_what_it_names(function: Any, text: Any, messages: Any) -> None:
    assert seen_by(function) == text
    assert seen_by(function, MESSAGES) == messages


def test_var_keyword_receives_everything() -> None:
    kwargs = seen_by(lambda completions, **kwargs: kwargs, scale=3)
    provided = {"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric"}
    assert set(kwargs) == {*provided, "answer", "tags", "scale"}
    assert kwargs["scale"] == 3


def test_the_trainer_state_counts_completed_steps() -> None:
    state = seen_by(lambda completions, trainer_state: trainer_state)
    assert (state.global_step, state.max_steps) == (2, 9)


def test_token_ids_that_are_not_known_are_an_error_and_not_an_empty_list() -> None:
    reward = TrlReward(lambda completion_ids: [float(len(ids)) for ids in completion_ids], "length")
    assert [score.value for score in reward.settled("text").score(samples("one", "two two"))] == [1.0, 2.0]
    (score,) = reward.settled("text").score([Sample("one", num_tokens=1)])
    assert score.outcome is Outcome.ERROR
    assert "completion_ids" in score.detail


def test_token_ids_that_are_not_known_can_be_counted_but_not_read() -> None:
    def counted(completions: Any, **kwargs: Any) -> list[float]:
        return [float(len(kwargs["completion_ids"]))] * len(completions)

    def swallowed(completions: Any, completion_ids: Any, **kwargs: Any) -> list[float]:
        try:
            return [float(sum(ids)) for ids in completion_ids]
        except Exception:
            return [0.0] * len(completions)

    unknown = [Sample("one", num_tokens=1)]
    assert TrlReward(counted, "mine", settings=TEXT).score(unknown)[0].value == 1.0
    (score,) = TrlReward(swallowed, "mine", settings=TEXT).score(unknown)
    assert score.outcome is Outcome.ERROR
    assert "completion_ids" in score.detail


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda environment: environment._inner["score"], "store it as `self.inner`"),
        (lambda environment: environment.absent, "Rewards get count, get_reward"),
        (lambda environment: environment.count, ""),
        (lambda environment: copy.deepcopy(environment).get_reward(), ""),
        (lambda environment: hasattr(environment, "_inner") + 1.0, ""),
    ],
)
def test_private_state_of_an_environment_is_said_to_be_private(read: Any, reason: str) -> None:
    episode = EpisodeSummary("finished", 1, 0, score=Score(1.0), state={"count": 1})
    given = TrlReward(lambda environments, **kwargs: [read(environments[0])], "mine")
    (score,) = given.score([Sample("a", episode=episode)])
    assert reason in score.detail
    assert score.value == (None if reason else 1.0), score.detail


def test_environments_without_an_episode_are_said_to_need_a_run() -> None:
    (score,) = TrlReward(lambda environments, **kwargs: [1.0], "mine").score(samples("a"))
    assert "environment.name" in score.detail


def test_a_column_that_a_row_lacks_is_none_there() -> None:
    reward = TrlReward(lambda completions, level: [None if n is None else n for n in level], "level", settings=TEXT)
    first, second = reward.score([Sample("a", columns={"level": 2.0}), Sample("b")])
    assert (first.value, second.outcome) == (2.0, Outcome.NOT_APPLICABLE)


def test_an_argument_from_configuration_wins_over_a_column() -> None:
    assert seen_by(lambda completions, answer: answer, answer="5") == "5"


def test_one_call_cannot_corrupt_the_next() -> None:
    def corrupting(completions: list[str], tags: list[list[str]], extra: list[int]) -> list[float]:
        assert extra == [1]
        assert tags == [["a"], ["a"]]
        completions.clear()
        tags[0].append("b")
        extra.append(2)
        return [0.0, 0.0]

    reward = TrlReward(corrupting, "corrupting", {"extra": [1]}, TEXT)
    batch = samples("a", "b")
    for _ in range(2):
        assert [score.outcome for score in reward.score(batch)] == [Outcome.SCORED] * 2
    assert batch[0].columns["tags"] == ["a"]


def test_log_extra_is_kept_beside_each_completion_and_log_metric_with_all() -> None:
    def logging(completions: list[str], log_extra: Any, log_metric: Any, **kwargs: Any) -> list[float | None]:
        log_extra("length", [len(text) for text in completions])
        log_metric("share", 0.25)
        log_metric("share", 0.75)
        return [1.0, None]

    first, second = TrlReward(logging, "logging", settings=TEXT).score(samples("a", "bb"))
    assert (first.extras, second.extras) == ({"length": 1}, {"length": 2})
    assert first.metrics == second.metrics == {"share": 0.5}
    assert second.outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (lambda extra, metric: extra("length", [1]), "got 1 values for 2 completions"),
        (lambda extra, metric: metric("share", float("nan")), "requires a finite number"),
        (lambda extra, metric: metric("share", "much"), "requires a finite number"),
    ],
)
def test_what_cannot_be_logged_is_an_error(log: Any, reason: str) -> None:
    def logging(completions: list[str], log_extra: Any, log_metric: Any) -> list[float]:
        log(log_extra, log_metric)
        return [1.0, 1.0]

    scores = TrlReward(logging, "logging", settings=TEXT).score(samples("a", "b"))
    assert {score.outcome for score in scores} == {Outcome.ERROR}
    assert reason in scores[0].detail


def takes_text(completions: Any) -> list[float]:
    return [float(completion.count("a")) for completion in completions]


def takes_messages(completions: Any) -> list[float]:
    return [float(completion[0]["content"].count("a")) for completion in completions]


@pytest.mark.parametrize(
    ("function", "expected", "reason"),
    [
        (
            lambda completions: [float(not isinstance(c, str) and "a" in c[0]["content"]) for c in completions],
            "messages",
            "it scores every text 0.0, but tells messages apart",
        ),
        (takes_text, "text", "it accepts text"),
        (takes_messages, "messages", "it accepts messages but not text (TypeError"),
        (lambda completions: [float(len(c)) for c in completions], "text", "it accepts text"),
        (lambda completions: 1 / 0, "text", "it accepts neither text (ZeroDivisionError"),
    ],
)
def test_a_function_is_asked_what_it_takes(function: Any, expected: str, reason: str) -> None:
    choice = TrlReward(function, "mine").probe(samples("a")[0])
    assert choice.completions == expected
    assert reason in choice.reason
    assert choice.is_guess == reason.startswith("it accepts neither")
    if function in (takes_text, takes_messages):  # `.count` exists on lists too: only its result tells
        assert TrlReward(function, "mine").score(samples("aa"))[0].value == 2.0


def test_a_function_of_messages_that_fails_on_the_trial_gets_messages() -> None:
    """Its own fault is then shown, not that of a form that its author never meant."""

    def find(completions: Any) -> Any:
        return [float(re.search(r"#### (\d+)", completion[0]["content"]).group(1)) for completion in completions]  # type: ignore[union-attr]

    reward = TrlReward(find, "mine")
    found = [reward.score(samples(response))[0] for response in ("four", "#### 4")]
    assert "'NoneType' object has no attribute 'group'" in found[0].detail
    assert found[1].value == 4.0


def test_an_array_of_values_is_a_list_of_them() -> None:
    scores = TrlReward(lambda completions: np.array([0.5, 1.0]), "mine", settings=TEXT).score(samples("a", "b"))
    assert [score.value for score in scores] == [0.5, 1.0]


def test_the_choice_is_told_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    reward = TrlReward(takes_messages, "mine")
    with caplog.at_level("INFO", "agent_tunix.rewards"):
        reward.score(samples("a"))
        reward.score(samples("a"))
    assert caplog.text.count("reward 'mine' gets completions as messages: it accepts messages") == 1
    assert reward.describe().endswith("trl, completions as messages)")


def test_trying_happens_elsewhere_and_leaves_no_trace(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "calls = []\n"
        "def reward(completions, **kwargs):\n"
        "    calls.append(completions)\n"
        "    print('noise')\n"
        "    return [float(c[0]['content'] == 'x') for c in completions]\n"
    )
    mixture = resolve_reward(f"{file}:reward", working_directory=tmp_path)
    reward = mixture.components[0].reward
    assert isinstance(reward, TrlReward)
    settle_completions([reward], samples("a")[0])
    assert reward.completions == "messages"
    assert reward.recipe is not None
    assert reward.recipe.completions == "messages"
    assert reward.definition.__globals__["calls"] == []
    assert mixture.score(samples("x", "y"))[0].value == 1.0
    assert reward.definition.__globals__["calls"] != []


@pytest.mark.parametrize(
    ("body", "reason", "timeout_s"),
    [
        ("import os; os._exit(7)", "it accepts neither text (the worker process exited with status 7)", 60.0),
        ("while True: pass", "the trial was inconclusive: took longer than 1 s", 1.0),
        ("bytearray(8 << 30); return [0.0]", "it accepts neither text (MemoryError", 60.0),
        ("import os; os.system('sleep 1000 &'); return [0.0]", "it accepts text", 60.0),
        ("import sys; sys.stdout.close(); return [0.0]", "it accepts text", 60.0),
    ],
)
@pytest.mark.slow
def test_trying_survives_whatever_the_function_does_and_leaves_nothing(
    tmp_path: Path, body: str, reason: str, timeout_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    before = take_stock()
    (tmp_path / "mine.py").write_text(f"def reward(completions):\n    {body}\n")
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path)
    with caplog.at_level("INFO", "agent_tunix.rewards"):
        settle_completions([mixture.components[0].reward], samples("a")[0], timeout_s=timeout_s, memory_mb=256)
    assert "gets completions as text" in caplog.text
    assert reason in caplog.text
    guessed = "it accepts text" not in reason
    assert ("set rewards.completions=text or messages" in caplog.text) == guessed
    check_nothing_left(before)


def test_what_the_configuration_says_is_not_tried() -> None:
    calls: list[Any] = []

    def counting(completions: Any) -> list[float]:
        calls.append(completions)
        return [0.0] * len(completions)

    reward = TrlReward(counting, "counting", settings=MESSAGES)
    settle_completions([reward], samples("a")[0])
    reward.score(samples("a"))
    assert calls == [[[{"role": "assistant", "content": "a"}]]]


def test_a_direct_call_scores_one_response() -> None:
    reward = TrlReward(
        lambda completions, answer: [float(c == a) for c, a in zip(completions, answer, strict=True)], "x"
    )
    assert reward("4", answer="4") == 1.0
    assert reward.explain("5", answer="4").value == 0.0
