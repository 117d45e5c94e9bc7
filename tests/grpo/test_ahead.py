"""Sampling ahead: which weights sample which step, what is waited for, and what a checkpoint keeps."""

import dataclasses
import logging
import queue
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.distributed import Processes
from agent_tunix.engines.stored_completions import from_bytes, to_bytes
from agent_tunix.environments import EpisodeResult
from agent_tunix.environments.episode import AgentRecord, CallRecord, PolicyCall, StopReason, UnreadCall
from agent_tunix.environments.outcomes import CallOutcome, CallResult
from agent_tunix.errors import ConfigError, EngineError
from agent_tunix.grpo.ahead import SamplingAhead, settle_correction
from agent_tunix.rewards import Score
from agent_tunix.sampling.sampler import Completions
from tests.grpo.test_training_rows import complete, record
from tests.raising import raises

NUM_STEPS = 6


def completions_of(step: int, version: int) -> Completions:
    """One completion, whose text says what sampled it."""
    tokens, one = np.full((1, 2), step), np.ones(1, np.int32)
    return Completions(tokens, one, tokens, one, one > 0, [f"step {step}, weights {version}"], np.zeros((1, 2)))


class Batches:
    """Prompts that are the number of their step."""

    num_steps = NUM_STEPS

    def batch(self, step: int) -> PromptBatch:
        return PromptBatch([str(step)], [[]], [[step]], [{}])

    def fingerprint(self, step: int) -> str:
        return f"rows{step}"


class Engine:
    """A sampler with versions: `version` is that of the policy. A step in `held` waits until it may end."""

    def __init__(self) -> None:
        self.version = 0
        self.held: dict[int, threading.Event] = {}
        self.begun: set[int] = set()
        self.changed = threading.Condition()
        self.failing: set[int] = set()
        self.is_cancelled = False

    def hold(self, *steps: int) -> None:
        self.held |= {step: threading.Event() for step in steps}

    def await_begun(self, *steps: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.begun == {*steps}, 60)

    def bound(self) -> "Engine":
        version = Engine.__new__(Engine)
        version.__dict__ = {**self.__dict__, "version": self.version, "owner": self}
        return version

    def cancel(self) -> None:
        self.is_cancelled = True
        for event in self.held.values():
            event.set()

    def sample_batch(self, batch: PromptBatch, *arguments: Any, **settings: Any) -> Completions:
        step, owner = int(batch.prompts[0]), getattr(self, "owner", self)
        with owner.changed:
            owner.begun.add(step)
            owner.changed.notify_all()
        if step in owner.held:
            assert owner.held[step].wait(60)
        if owner.is_cancelled:
            raise CancelledError
        if step in owner.failing:
            raise EngineError("the engine is gone")
        return completions_of(step, self.version)


def config_of(lag: int, *, lora_rank: int = 0) -> Config:
    config = Config()
    config.engine.max_staleness = lag
    config.model.lora_rank = lora_rank
    config.generation.max_prompt_length = 8
    return config


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def made(engine: Engine) -> Iterator[list[SamplingAhead]]:
    opened: list[SamplingAhead] = []
    yield opened
    for ahead in opened:
        ahead.close()


def open_ahead(made: list[SamplingAhead], engine: Engine, lag: int, *, lora_rank: int = 0) -> SamplingAhead:
    made.append(SamplingAhead(config_of(lag, lora_rank=lora_rank), engine, Batches(), Processes()))
    return made[-1]


def train(ahead: SamplingAhead, engine: Engine, first: int = 1, last: int = NUM_STEPS) -> list[str]:
    """Take steps, each of which updates the policy once."""
    texts = []
    for step in range(first, last + 1):
        texts += ahead.take(step).texts
        engine.version = step
    return texts


@pytest.mark.parametrize("lora_rank", [0, 4])
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_step_s_is_sampled_with_the_weights_after_step_s_minus_1_minus_k(
    engine: Engine, made: list[SamplingAhead], lag: int, lora_rank: int
) -> None:
    ahead = open_ahead(made, engine, lag, lora_rank=lora_rank)
    expected = [f"step {step}, weights {max(0, step - 1 - lag)}" for step in range(1, NUM_STEPS + 1)]
    assert train(ahead, engine) == expected


def test_threads_begin_with_the_first_step_and_end_with_the_run(engine: Engine, made: list[SamplingAhead]) -> None:
    before = set(threading.enumerate())
    ahead = open_ahead(made, engine, 2, lora_rank=4)
    assert set(threading.enumerate()) <= before
    train(ahead, engine)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    ahead.close()
    for thread in threads:
        thread.join(60)


def test_the_versions_of_completions_are_known(engine: Engine, made: list[SamplingAhead]) -> None:
    ahead = open_ahead(made, engine, 2)
    train(ahead, engine, last=4)
    assert ahead.take(5).versions == [2]


def test_a_step_trains_while_the_next_one_is_sampled(engine: Engine, made: list[SamplingAhead]) -> None:
    ahead = open_ahead(made, engine, 1)
    engine.hold(2, 3)
    assert ahead.take(1).texts == ["step 1, weights 0"]
    assert ahead.num_waiting == 0
    engine.version = 1
    engine.held[2].set()
    assert ahead.take(2).texts == ["step 2, weights 0"]
    engine.held[3].set()


def test_adapters_are_sampled_beside_one_another_and_whole_weights_one_after_the_other(
    engine: Engine, made: list[SamplingAhead]
) -> None:
    engine.hold(2)
    ahead = open_ahead(made, engine, 2, lora_rank=4)
    ahead.take(1)
    engine.version = 1
    taken = threading.Thread(target=ahead.take, args=(2,))
    taken.start()  # it waits for step 2, but steps 3 and 4 do not
    engine.await_begun(1, 2, 3, 4)
    engine.held[2].set()
    taken.join()

    other = Engine()
    other.hold(2)
    whole = open_ahead(made, other, 2)
    whole.take(1)
    assert 3 not in other.begun
    other.held[2].set()
    whole.settle()
    assert other.begun == {1, 2, 3}


def test_an_error_is_raised_by_the_step_that_it_concerns(engine: Engine, made: list[SamplingAhead]) -> None:
    ahead = open_ahead(made, engine, 1)
    engine.failing = {2}
    ahead.take(1)
    ahead.settle()
    with pytest.raises(EngineError):
        ahead.take(2)


def test_a_resumed_run_takes_the_completions_of_the_checkpoint(
    engine: Engine, made: list[SamplingAhead], tmp_path: Path
) -> None:
    ahead = open_ahead(made, engine, 2)
    train(ahead, engine, last=3)
    files = ahead.files(3)()
    assert steps_of(files) == ["ahead/step_000004", "ahead/step_000005"]
    rest = train(ahead, engine, first=4)
    write(tmp_path, files)
    again = Engine()
    again.version = 3
    resumed = open_ahead(made, again, 2)
    resumed.load(tmp_path, 3)
    assert train(resumed, again, first=4) == rest


def test_a_checkpoint_of_the_step_before_a_failed_one_has_that_step(engine: Engine, made: list[SamplingAhead]) -> None:
    ahead = open_ahead(made, engine, 1)
    train(ahead, engine, last=2)
    ahead.take(3)
    assert steps_of(ahead.files(2)()) == ["ahead/step_000003", "ahead/step_000004"]


def test_completions_of_other_prompts_are_sampled_again(
    engine: Engine, made: list[SamplingAhead], tmp_path: Path
) -> None:
    earlier = Engine()
    before = open_ahead(made, earlier, 1)
    train(before, earlier, last=3)
    write(tmp_path, before.files(3)())

    class Shuffled(Batches):
        def batch(self, step: int) -> PromptBatch:
            return PromptBatch([str(step)], [[]], [[step + 1]], [{}])

    class Edited(Batches):
        def fingerprint(self, step: int) -> str:
            return "other rows"

    engine.version = 3
    other_settings = config_of(1)
    other_settings.grpo.num_generations += 1
    for batches, config, weights in (
        (Batches(), config_of(1), 2),
        (Shuffled(), config_of(1), 3),
        (Edited(), config_of(1), 3),
        (Batches(), other_settings, 3),
    ):
        made.append(SamplingAhead(config, engine, batches, Processes()))
        made[-1].load(tmp_path, 3)
        assert made[-1].take(4).texts == [f"step 4, weights {weights}"]


def test_what_is_cancelled_is_not_in_the_checkpoint_and_can_be_sampled_again(
    engine: Engine, made: list[SamplingAhead], caplog: pytest.LogCaptureFixture
) -> None:
    ahead = open_ahead(made, engine, 3)
    engine.hold(3)
    ahead.take(1)
    engine.await_begun(1, 2, 3)
    with caplog.at_level(logging.WARNING, "agent_tunix.run"):
        ahead.cancel()
        assert steps_of(ahead.files(1)()) == ["ahead/step_000002"]
    assert "[3, 4]" in caplog.text
    engine.is_cancelled, engine.version = False, 2
    assert ahead.take(3).texts == ["step 3, weights 2"]


class Pair:
    """Process 0 or 1 of a run; the second one repeats what the first one shared."""

    count = 2

    def __init__(self, index: int, shared: queue.SimpleQueue[Any]) -> None:
        self.index, self.shared = index, shared

    @property
    def is_first(self) -> bool:
        return self.index == 0

    def from_first(self, make: Any) -> Any:
        if not self.is_first:
            return self.shared.get(timeout=60)
        value = make()
        self.shared.put(value)
        return value


def test_the_first_of_several_processes_samples_for_all(made: list[SamplingAhead]) -> None:
    shared: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engines = [Engine(), Engine()]
    made += [SamplingAhead(config_of(1), engine, Batches(), Pair(n, shared)) for n, engine in enumerate(engines)]
    texts = [train(ahead, engine) for ahead, engine in zip(made, engines, strict=True)]
    assert texts[0] == texts[1]
    assert engines[0].begun == {*range(1, NUM_STEPS + 1)}
    assert engines[1].begun == set()


def test_environments_of_several_processes_are_not_sampled_ahead(engine: Engine) -> None:
    config = config_of(1)
    config.environment.tools = ["calculator"]
    with raises(ConfigError, "invalid_engine"):
        SamplingAhead(config, engine, Batches(), Pair(0, queue.SimpleQueue()))


def steps_of(files: Iterable[str]) -> list[str]:
    """The paths of files, without the hash of what was sampled."""
    return sorted(path.rpartition("-")[0] for path in files)


def write(directory: Path, files: dict[str, bytes] | Any) -> None:
    for path, content in files.items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(content)


def test_stored_completions_are_what_they_were() -> None:
    call = PolicyCall(4, 2, 0, None, 0, None, "", "", "stop", 0.5, "six")
    episode = EpisodeResult(
        messages=[{"role": "user", "content": "2 × 3?"}, {"role": "assistant", "content": "\ud800"}],
        stop_reason=StopReason.MAX_TURNS,
        score=Score(0.5, {"a": None}, extras={"seen": (1, 2)}),
        calls=(CallRecord(0, "add", {"x": 1}, CallResult("3", CallOutcome.TOO_LONG, 0.1)),),
        num_turns=2,
        num_prompt_messages=1,
        state={"board": np.arange(3), "unknown": float("nan"), "cells": {(1, 2)}},
        unread_calls=(UnreadCall(1, "mistral"),),
        agent=AgentRecord("ok", (call,), 0),
    )
    completions = complete(record(2, num_agents=2, num_words=20))
    num_rows = len(completions.texts)
    completions = dataclasses.replace(completions, episodes=[episode] * num_rows, versions=np.arange(num_rows))
    read = from_bytes(to_bytes(completions))
    for name in ("prompt_tokens", "tokens", "lengths", "ended", "logps", "sampled", "versions"):
        one, other = getattr(completions, name), getattr(read, name)
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
    assert completions.forks is not None
    assert read.forks is not None
    np.testing.assert_array_equal(completions.forks.tokens, read.forks.tokens)
    assert read.texts == completions.texts
    assert read.episodes is not None
    found, state = read.episodes[0], dict(read.episodes[0].state)
    np.testing.assert_array_equal(state.pop("board"), np.arange(3))
    assert np.isnan(state.pop("unknown"))
    assert state == {"cells": {(1, 2)}}
    assert dataclasses.replace(found, state={}) == dataclasses.replace(episode, state={})
    assert isinstance(found.stop_reason, StopReason)


def test_bytes_that_are_no_completions_are_refused() -> None:
    for content in (b"", b"PK\x03\x04 broken", to_bytes(completions_of(1, 0))[:-40]):
        with pytest.raises(ValueError, match="not stored completions"):
            from_bytes(content)


def test_the_correction_follows_the_lag() -> None:
    def correction(lag: int, num_iterations: int = 1, given: str = "auto") -> str:
        config = config_of(lag)
        config.grpo.num_iterations, config.grpo.sampler_correction = num_iterations, given
        return settle_correction(config).grpo.sampler_correction

    assert correction(0) == "none"
    assert correction(2) == "token"
    assert correction(2, num_iterations=2) == "none"
    assert correction(2, given="none") == "none"
