"""Worker for rewards: a process that loads rewards and makes the calls it is sent, one chunk after the other.

The scores of each call are sent as soon as the call ends, so that the trainer knows which call runs and for how long.
"""

import asyncio
import contextlib
import importlib
import os
import pickle
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from agent_tunix.execution.workers.frames import LARGEST_JSON_BYTES
from agent_tunix.execution.workers.process import WorkerProcess
from agent_tunix.rewards import loading, sources
from agent_tunix.rewards.answers.thorough import set_thorough_runner, verify_here
from agent_tunix.rewards.conventions import CallSettings, Convention, adapt
from agent_tunix.rewards.execution.concurrent import check_length, failed_scores, run_calls
from agent_tunix.rewards.execution.recipes import library_of
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.finding import Finder
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Reward, Sample, Score
from agent_tunix.rewards.score_data import ScoreData, pack
from agent_tunix.rewards.uploaded import build_uploaded

_BEATS_A_LIMIT = 4


@dataclass(frozen=True, slots=True)
class Build:
    """Request to load a reward."""

    key: int
    recipe: RewardRecipe


@dataclass(frozen=True, slots=True)
class Chunk:
    """Request for calls of a reward. `share` is the number of concurrent calls if it is async."""

    key: int
    pickled_calls: bytes  # a list of the samples of each call
    timeout_s: float
    share: int | None


class RewardProgram:
    """Program of a worker that makes the calls of rewards."""

    def __init__(self, process: WorkerProcess) -> None:
        set_thorough_runner(verify_here)  # needs no further process, because this one has limits
        self._process = process
        self._rewards: dict[int, Reward] = {}
        self._num_calls = 0
        self._strays: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def answer(self, request: object) -> None:
        """Load a reward, or make the calls of a chunk."""
        match request:
            case Build():
                self._build(request)
            case Chunk(share=None):
                self._work(request)
            case Chunk(share=int(share)):
                self._work_concurrently(request, share)

    def _build(self, request: Build) -> None:
        try:
            with self._process.loading():
                sources.use(request.recipe.sources)
                self._rewards[request.key] = build_reward(request.recipe)
        except BaseException as error:
            self._process.send("unbuilt", describe_fault(error))
            return
        self._process.send("built")

    def _work(self, chunk: Chunk) -> None:
        reward, calls = self._begin(chunk)
        for number, samples in enumerate(calls):
            try:
                scores = check_length(reward.score(samples), samples)
            except BaseException as error:
                scores = failed_scores(error, samples)
            self._process.restore()
            self._send_scores(number, scores)
            if self._process.has_grown() and number + 1 < len(calls):
                break
        self._end()

    def _work_concurrently(self, chunk: Chunk, share: int) -> None:
        reward, calls = self._begin(chunk)

        async def work() -> None:
            beat = asyncio.ensure_future(self._beat_regularly(chunk.timeout_s / _BEATS_A_LIMIT))
            self._strays |= await run_calls(reward, calls, share, chunk.timeout_s, self._send_scores, self._send_start)
            beat.cancel()
            await asyncio.wait({beat})

        # One loop for all chunks, because objects kept by a reward's module, such as semaphores, belong to their loop.
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its protocol is stricter
        loop = self._loop
        try:
            loop.run_until_complete(work())
        except BaseException as error:  # KeyboardInterrupt, for instance, passes through tasks and breaks the loop
            self._process.send("broke", describe_fault(error))
            os._exit(1)
        self._process.restore()
        # Tasks that cannot be cancelled would run on in the next chunk, so their loop is not used again.
        if self._strays:
            self._loop = None
        self._end()

    def _send_start(self, number: int) -> None:
        self._process.send("began", number)

    def _send_scores(self, number: int, scores: list[Score]) -> None:
        self._num_calls += 1
        packed = [_pack(score) for score in scores]
        if self._process.is_isolated and len(self._process.pack(packed)) > LARGEST_JSON_BYTES // 2:
            detail = f"the scores and their logs take more than {LARGEST_JSON_BYTES >> 21} MB"
            packed = [pack(Score.failed(Outcome.ERROR, detail)) for _ in scores]
        self._process.send("ended", number, packed)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> "asyncio.Task[Any]":
        """Return a task that sends a beat when it starts, so the trainer sees the progress of calls that never wait."""

        async def heard() -> Any:
            self._process.repair()
            self._beat()
            return await coroutine

        return asyncio.Task(heard(), loop=loop, **options)

    async def _beat_regularly(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            self._beat()

    def _beat(self) -> None:
        if not self._process.is_isolated:  # other people's code could send beats to gain time
            self._process.send("beat")

    def _begin(self, chunk: Chunk) -> tuple[Any, list[list[Sample]]]:
        calls = pickle.loads(chunk.pickled_calls)
        self._process.send("ready")
        return self._rewards[chunk.key], calls

    def _end(self) -> None:
        tired = self._process.why_tired(self._num_calls)
        self._process.send("done", tired or ("tasks that cannot be cancelled kept running" if self._strays else ""))


def _pack(score: Score) -> ScoreData:
    try:
        if score.detail.startswith("MemoryError"):
            score = Score.failed(score.outcome, f"{score.detail}; rewards.memory_mb is the limit", score.seconds)
        return pack(score)
    except BaseException as error:  # a user's object may raise anything when it is read
        return pack(Score.failed(Outcome.ERROR, f"the score cannot be read: {describe_fault(error)}"))


def build_reward(recipe: RewardRecipe) -> Reward:
    """Build the reward of a recipe in this process; raise RewardError if the reward cannot be found or loaded here."""
    settings = CallSettings(recipe.convention, recipe.completions, recipe.reward_key)
    if recipe.uploaded is not None:
        reward: Reward = build_uploaded(recipe.uploaded, recipe.name, settings).bind(recipe.name, recipe.args)
    else:
        finder = Finder(recipe.reward_directories, recipe.working_directory, settings, recipe.modules)
        for module in recipe.modules:
            finder.import_module(module)
        if library := library_of(recipe):
            with contextlib.suppress(ImportError):  # the reward says what is missing
                importlib.import_module(library)  # now, because a call has less time
        if recipe.by_value:
            definition = loading.unpack_by_value(recipe.by_value, recipe.working_directory)
            found: Convention = adapt(definition, recipe.name, settings=settings)
        else:
            found = finder.function(recipe.spec)
        reward = found.bind(recipe.name, recipe.args)
    return reward
