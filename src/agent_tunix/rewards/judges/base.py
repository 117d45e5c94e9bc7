"""Base class of judges: it asks questions concurrently and turns every fault into an outcome."""

import asyncio
import functools
import importlib.util
import json
import logging
import os
import threading
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError
from agent_tunix.proxies import is_loopback
from agent_tunix.rewards.configured.base import ConfiguredReward
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.limits import Timing, join_pool
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker
    from agent_tunix.rewards.judges.local import ModelQueue
    from agent_tunix.rewards.judges.settings import EndpointSettings

S = TypeVar("S", bound="EndpointSettings")

logger = logging.getLogger("agent_tunix.rewards")

# Packages of the HTTP client.
_CLIENT = {"openai", "tenacity"}


class Judge(ConfiguredReward[S]):
    """A reward given by a language model, at an endpoint or on the devices of this machine.

    It asks in an event loop that all judges of the process share, in a thread of its own. Its budget and its requests
    per minute cannot be divided among workers, and `rewards.timeout_s` must not end a back-off, so it runs in the
    trainer's process.

    Attributes:
        needs_group: True if a group must be scored in one call.
        timing: Clock and sleep function; tests replace them.
    """

    range = (0.0, 1.0)
    needed = "`model` and `rubric`"
    settings_class: ClassVar[type[Any]]
    extra = "judge"
    needed_modules: tuple[str, ...] = ("openai", "tenacity")
    timing = Timing()

    def __init__(self, name: str, args: Mapping[str, Any] | None = None) -> None:
        self._asker: Asker | None = None
        super().__init__(name, args)

    def _read(self, args: Mapping[str, Any]) -> S:
        from agent_tunix.rewards.configured.arguments import read_arguments

        settings: S = read_arguments(self.settings_class, self.name, args)
        needed = set(self.needed_modules) - (_CLIENT if settings.is_local else set())
        if missing := sorted(module for module in needed if importlib.util.find_spec(module) is None):
            raise RewardError(
                f"judge {self.name!r} requires {' and '.join(missing)}, which is not installed; run `pip install "
                f"agent_tunix[{self.extra}]`",
                code="missing_package",
            )
        url = settings.base_url
        if settings.api_key_env and url.startswith("http:") and not is_loopback(url):
            logger.warning("judge %r sends its key unencrypted to %s", self.name, urlsplit(url).netloc)
        self._pool = join_pool(self, settings, self.timing)
        return settings

    @property
    def columns(self) -> Sequence[str]:
        """Columns of the dataset that the judge sees."""
        return getattr(self._required_arguments(), "columns", ())

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start to score, so that a mixture can ask several judges at once and compute meanwhile."""
        return asyncio.run_coroutine_threadsafe(self.score_async(samples), _judges_loop())

    async def score_async(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order, in the loop of all judges.

        For a judge that needs groups, `samples` must have whole groups.
        """
        asker = self._the_asker()
        try:
            async with asker.session():
                return await self._judge_all(asker, samples)
        except RewardError as error:  # the key is no longer in the environment
            return [Score.failed(Outcome.ERROR, str(error))] * len(samples)

    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample]) -> list[Score]:
        """Score the samples, each by itself."""
        return await asyncio.gather(*(guarded(self._judge_one(asker, sample)) for sample in samples))

    async def _judge_one(self, asker: "Asker", sample: Sample) -> Score:
        """Score a sample; raise JudgeFault or BadReferenceError if that fails."""
        raise NotImplementedError

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if the dataset lacks a column, and RewardError if the key is not set."""
        own = getattr(self._required_arguments(), "rubric_column", "")
        for column in (*self.columns, own) if own else self.columns:
            if column not in columns:
                raise RewardSignatureError(
                    f"judge {self.name!r} requires the column `{column}`, which the dataset lacks; "
                    f"it has: {', '.join(sorted(columns)) or 'none'}",
                    code="invalid_mixture",
                )
        self._the_asker().check()

    def _describe(self, arguments: S) -> str:
        if arguments.is_local:
            stored = f" in {arguments.quantization}" if arguments.quantization else ""
            return f"{arguments.model}{stored}, sampled by this process"
        return f"{arguments.model} at {arguments.base_url}"

    def checkpoint_hash(self) -> str | None:
        """Return a digest of a model on this disk, for the fingerprint; None for one at an endpoint or on a hub."""
        queue = self.local_model
        return None if queue is None else queue.model.digest(fetch=False)

    @functools.cached_property
    def local_model(self) -> "ModelQueue | None":
        """The model that this process samples; None if it is at an endpoint or the judge has no arguments."""
        if self.arguments is None or not self.arguments.is_local:
            return None
        from agent_tunix.rewards.judges.local import join_model

        return join_model(self.arguments)

    def metrics(self) -> dict[str, float]:
        """Return the totals in this process: requests, tokens, cost, latency, cache hits, failures."""
        return self._the_asker().total.metrics()

    def step_metrics(self) -> dict[str, float]:
        """Return the same metrics since the last call, for a run to log at each step."""
        return self._the_asker().take_step().metrics()

    def _the_asker(self) -> "Asker":
        settings = self._required_arguments()
        if self._asker is None:
            from agent_tunix.rewards.judges.asking import Asker

            if self.local_model is None:
                from agent_tunix.rewards.judges.endpoint import Endpoint  # imports the HTTP client

                self._asker = Asker(settings, Endpoint(settings, self._pool, self.timing))
            else:
                from agent_tunix.rewards.judges.local import LocalEndpoint

                self._asker = Asker(settings, LocalEndpoint(settings, self.local_model))
        return self._asker

    def _shared_sections(self, sample: Sample) -> dict[str, str]:
        """Return the texts that the judge sees besides the completion, by title.

        Raises:
            BadReferenceError: A column is missing or empty.
        """
        sections = {"PROBLEM": problem_of(sample)} if problem_of(sample) else {}
        for column in self.columns:
            sections[f"REFERENCE {' '.join(column.split())}"] = column_text(sample, column)
        return sections


_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def _judges_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop in which all judges of this process ask. It runs in a thread until the process ends."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="judges", daemon=True).start()
        return _loop


def _forget_loop() -> None:
    global _loop
    _loop = None


os.register_at_fork(after_in_child=_forget_loop)  # a fork has no thread that runs it


async def guarded(verdict: Coroutine[Any, Any, Score]) -> Score:
    """Return the score, or the outcome of a fault as a score, with the seconds that it took."""
    started = time.perf_counter()
    try:
        score = await verdict
    except BadReferenceError as error:
        score = Score.failed(Outcome.BAD_REFERENCE, str(error))
    except JudgeFault as fault:
        score = Score.failed(fault.outcome, str(fault))
    except (Exception, SystemExit) as error:  # the fault of one completion must not affect the batch or end the loop
        score = Score.failed(Outcome.ERROR, describe_fault(error))
    return replace(score, seconds=time.perf_counter() - started)


def problem_of(sample: Sample) -> str:
    """Return the sample's prompt, or else the conversation before the response."""
    if sample.prompt:
        return sample.prompt
    return "\n\n".join(f"{message.get('role')}: {message.get('content')}" for message in sample.prompt_messages)


def column_text(sample: Sample, column: str) -> str:
    """Return a column's text for the judge; raise BadReferenceError if the column is missing or empty."""
    value = sample.columns.get(column)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if value is None or not text.strip():
        raise BadReferenceError(f"the column {column!r}, which the judge requires, is missing or empty")
    return text
