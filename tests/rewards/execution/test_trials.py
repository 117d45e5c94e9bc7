"""A reward that cannot score is told of before a model is loaded."""

import logging
import threading
from collections.abc import Callable

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Sample, resolve_reward
from agent_tunix.rewards.execution.probe import announce_if_slow, try_rewards
from tests.raising import raises

SAMPLE = Sample("<answer>4</answer>", prompt="2 + 2?", columns={"answer": "4"}, step=1, max_steps=1, tokens=(0,))
Write = Callable[[str], str]


def try_out(spec: str, **settings: str) -> None:
    mixture = resolve_reward(spec, **settings)  # type: ignore[arg-type]
    try_rewards([component.reward for component in mixture.components], SAMPLE, timeout_s=2.0)


@pytest.mark.parametrize(
    "code",
    [
        "async def reward(args, sample): return {'score': 1.0}",
        "def reward(solution_str, ground_truth): return {'acc': 1.0}",
    ],
)
def test_a_dict_without_the_reward_stops_the_run(code: str, write: Write) -> None:
    with raises(RewardError, "invalid_reward_signature") as caught:
        try_out(write(code))
    assert "set rewards.reward_key" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def reward(response): return respnse", "NameError"),
        ("async def reward(args, sample): return args.nowhere", "nowhere"),
    ],
)
def test_a_reward_that_always_fails_is_warned_of(
    code: str, reason: str, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    try_out(write(code))
    record = [record for record in caplog.records if record.levelno == logging.WARNING][-1]
    assert "fails on all 3 made-up completions" in record.getMessage()
    assert reason in record.getMessage()


@pytest.mark.parametrize(
    "code",
    ["def reward(response): return None", "def reward(response): return 1.0 / ('4' not in response)"],
)
def test_a_reward_that_scores_anything_is_not(code: str, write: Write, caplog: pytest.LogCaptureFixture) -> None:
    try_out(write(code), reward_key="score")
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_built_ins_are_not_called() -> None:
    mixture = resolve_reward("math")
    try_rewards([mixture.components[0].reward], Sample("", columns={}))


def test_made_up_completions_have_token_ids(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    code = "def reward(completions, **kwargs): return [float(len(ids)) for ids in kwargs['completion_ids']]"
    mixture = resolve_reward(write(code))
    try_rewards([mixture.components[0].reward], Sample("4", prompt="2 + 2?", columns={"answer": "4"}))
    assert caplog.records == []


def test_a_slow_trial_is_announced_while_it_lasts() -> None:
    announced = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "trying 100 % of it":
                announced.set()

    listener = Listener()
    logger = logging.getLogger("agent_tunix.rewards")
    logger.addHandler(listener)
    try:
        with announce_if_slow("trying 100 % of it"):
            assert announced.wait(60)
    finally:
        logger.removeHandler(listener)


def test_a_trial_that_has_ended_is_not_announced() -> None:
    before = set(threading.enumerate())
    with announce_if_slow("trying it"):
        (timer,) = set(threading.enumerate()) - before
    assert isinstance(timer, threading.Timer)
    assert timer.finished.is_set()
