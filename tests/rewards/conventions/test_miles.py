import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.conventions import CallSettings, MilesReward, MilesSample, adapt
from agent_tunix.rewards.execution import make_runner
from tests.raising import raises

from .shapes import miles, samples


async def reads_everything(args: Any, sample: Any, **kwargs: Any) -> Any:
    assert kwargs == {}
    sample.metadata["seen"] = vars(sample).copy()
    return {"reward": 1.0, "seen": repr(vars(sample)), "length": sample.response_length, "unknown": None}


def test_a_sample_has_the_documented_fields() -> None:
    async def reward(args: Any, sample: MilesSample) -> float:
        assert sample.prompt == "2 + 2?"
        assert sample.response == "It is 4"
        assert sample.label == "4"
        assert sample.metadata == {"answer": "4", "tags": ["a"]}
        assert sample.status is MilesSample.Status.COMPLETED  # type: ignore[attr-defined]
        assert sample.status.value == "completed"
        assert sample.tokens == [0, 1, 2]
        assert sample.response_length == 3
        assert (sample.index, sample.group_index) == (0, 0)
        assert sample.reward is None
        return 1.0

    (score,) = MilesReward(reward, "mine").score(samples("It is 4"))
    assert score.value == 1.0, score.detail


def test_a_completion_that_was_cut_is_truncated() -> None:
    mine = MilesReward(lambda args, sample: float(sample.status.value == "truncated"), "mine")
    first, second = mine.score([Sample("a", ended=False), Sample("b")])
    assert (first.value, second.value) == (1.0, 0.0)


def test_the_prompt_comes_as_messages_where_the_configuration_says_so() -> None:
    async def reward(args: Any, sample: Any) -> float:
        return float(sample.prompt == [{"role": "user", "content": "2 + 2?"}])

    assert (
        MilesReward(reward, "mine", settings=CallSettings(completions="messages")).score(samples("a"))[0].value == 1.0
    )
    assert MilesReward(reward, "mine").score(samples("a"))[0].value == 0.0


def test_arguments_from_configuration_are_read_from_args_or_by_name() -> None:
    def reward(args: Any, sample: Any, scale: float = 1.0) -> float:
        return float(scale * args.threshold)

    assert MilesReward(reward, "mine", {"scale": 2.0, "threshold": 3.0}).score(samples("a"))[0].value == 6.0
    (score,) = MilesReward(reward, "mine").score(samples("a"))
    assert "no attribute 'threshold'" in score.detail


def test_a_dict_needs_the_reward_key_and_shows_the_rest() -> None:
    (score,) = MilesReward(reads_everything, "mine", settings=CallSettings(reward_key="reward")).score(samples("a b"))
    assert score.value == 1.0
    assert score.components == {"reward": 1.0, "length": 2.0, "unknown": None}
    assert "seen" in score.extras


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, "rewards.reward_key does not name the entry that is the reward; its entries are reward, seen, length"),
        ("rewards", "no entry 'rewards'"),
    ],
)
def test_a_dict_without_its_key_is_an_error_that_lists_the_entries(key: str | None, reason: str) -> None:
    (score,) = MilesReward(reads_everything, "mine", settings=CallSettings(reward_key=key)).score(samples("a"))
    assert score.outcome is Outcome.ERROR
    assert reason in score.detail


def test_the_group_form_gets_each_group_whole() -> None:
    sizes: list[int] = []

    async def reward(args: Any, samples: list[Any], **kwargs: Any) -> list[float]:
        sizes.append(len(samples))
        assert args.n_samples_per_prompt == len(samples)
        return [float(sample.response == max(s.response for s in samples)) for sample in samples]

    batch = [Sample(text, group_id=group) for text, group in [("a", 0), ("z", 1), ("b", 0), ("y", 1)]]
    assert [score.value for score in MilesReward(reward, "mine").score(batch)] == [0.0, 1.0, 1.0, 0.0]
    assert sizes == [2, 2]


@pytest.mark.parametrize("place", ["inline", "process"])
@pytest.mark.parametrize("form", ["sample", "samples"])
def test_index_is_unique_in_the_step_and_group_index_is_the_prompts(place: str, form: str, tmp_path: Path) -> None:
    """However the step was divided into calls, and whatever a gate has left out."""
    value = "1000.0 * sample.group_index + sample.index"
    body = f"return [{value} for sample in samples]" if form == "samples" else f"return {value}"
    (tmp_path / "mine.py").write_text(f"async def reward(args, {form}, **kwargs):\n    {body}\n")
    batch = [Sample(str(row), group_id=row // 3, index=row) for row in range(9) if row != 4]
    with make_runner(resolve_reward("mine.py:reward", working_directory=tmp_path), place, num_workers=2) as runner:
        values = [score.value for score in runner.reward.score(batch)]
    assert values == [0, 1, 2, 1003, 1005, 2006, 2007, 2008]


def test_what_a_reward_does_to_its_sample_is_not_seen_by_the_next() -> None:
    async def reward(args: Any, sample: Any) -> float:
        sample.metadata["tags"].append("b")
        args.extra.append(1)
        return float(len(sample.metadata["tags"]) + len(args.extra))

    mine = MilesReward(reward, "mine", {"extra": []})
    assert [score.value for score in mine.score(samples("a", "b"))] == [3.0, 3.0]


def test_calls_run_concurrently_up_to_the_limit() -> None:
    running = most = 0
    barrier = asyncio.Barrier(10)

    async def reward(args: Any, sample: Any) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await barrier.wait()
        running -= 1
        return float(sample.response)

    scoring = MilesReward(reward, "mine").score_async(samples(*map(str, range(40))), limit=10)
    scores = asyncio.run(asyncio.wait_for(scoring, 60.0))
    assert [score.value for score in scores] == list(map(float, range(40)))
    assert most == 10


def test_what_a_module_keeps_between_batches_stays_usable() -> None:
    slots = asyncio.Semaphore(1)

    async def reward(args: Any, sample: Any) -> float:
        async with slots:
            await asyncio.sleep(0)
            return 1.0

    mine = MilesReward(reward, "mine")
    for _ in range(3):
        assert [score.value for score in mine.score(samples("a", "b", "c"))] == [1.0] * 3


def test_scoring_works_inside_a_running_loop() -> None:
    async def notebook() -> float | None:
        return MilesReward(miles(float), "mine").score(samples("1"))[0].value

    assert asyncio.run(notebook()) == 1.0


def test_a_function_that_is_not_async_is_called_as_it_is() -> None:
    mine = MilesReward(lambda args, sample: float(sample.response == "a"), "mine")
    assert not mine.is_async
    assert [score.value for score in mine.score(samples("a", "b"))] == [1.0, 0.0]


async def of_either(args: Any, sample_or_samples: Any, **kwargs: Any) -> Any:
    return [1.0 for _ in sample_or_samples] if isinstance(sample_or_samples, list) else len(sample_or_samples.response)


def of_any_name(config: Any, item: Any, scale: float = 1.0) -> float:
    return float(scale * len(item.response) * (config.reward_key is None))


def positional(args: Any, sample: Any, /) -> float:
    return float(len(sample.response))


@pytest.mark.parametrize("function", [of_either, of_any_name, positional])
def test_the_second_parameter_is_the_sample_by_its_position(function: Any) -> None:
    reward = adapt(function, "mine", settings=CallSettings("miles"))
    reward.check_parameters(["answer"])
    assert reward.convention == "miles"
    assert [score.value for score in reward.score(samples("a", "bb"))] == [1.0, 2.0]


def of_a_group(args: Any, group: list[MilesSample]) -> list[float]:
    return [float(len(group)) for _ in group]


def of_group_samples(args: Any, group_samples: Any) -> list[float]:
    return of_a_group(args, group_samples)


@pytest.mark.parametrize("function", [of_a_group, of_group_samples])
def test_the_second_parameter_may_be_a_group(function: Any) -> None:
    reward = adapt(function, "mine", settings=CallSettings("miles"))
    assert [score.value for score in reward.score(samples("a", "bb"))] == [2.0, 2.0]


def test_a_second_parameter_that_holds_samples_needs_no_setting() -> None:
    assert adapt(of_either, "mine").convention == adapt(of_group_samples, "mine").convention == "miles"


def test_a_miles_reward_of_one_parameter_is_refused() -> None:
    with raises(RewardSignatureError, "invalid_reward_signature"):
        adapt(lambda args: 1.0, "mine", settings=CallSettings("miles"))
