"""Base class of judges: it asks questions concurrently and turns every fault into an outcome."""

import abc
import asyncio
import contextvars
import importlib.util
import inspect
import json
import threading
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from agent_tunix.errors import BadReferenceError, RewardError, RewardSignatureError
from agent_tunix.rewards.conventions import CallSettings
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.arguments import JudgeArguments
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.limits import Timing
from agent_tunix.rewards.judges.pools import Pool, join_pool
from agent_tunix.rewards.judges.settings import EndpointSettings, read_settings
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker

T = TypeVar("T")


class Judge(abc.ABC):
    """A reward given by a language model.

    Args:
        args: Arguments from the configuration; None for a judge that gets them later, from `bind`.
        timing: Clock and sleep function, for tests.

    Attributes:
        needs_group: True if a group must be scored in one call.
        limits_itself: Always True: whatever `rewards.execution` says, the judge runs in the trainer's process with its
            own limits. Its budget and its requests per minute cannot be divided among workers, and `rewards.timeout_s`
            must not end a back-off.
        endpoint: Settings of the endpoint; None if the judge has no arguments yet.
        settings: Call settings of rewards, which a judge ignores.
        recipe: Instructions by which another process builds the same judge; None if it cannot.

    Raises:
        RewardError: An argument is missing, unknown or malformed, or the extra `judge` is not installed.
    """

    is_async = True
    needs_group = False
    limits_itself = True
    is_builtin = True
    kind = "quality"
    range = (0.0, 1.0)
    # Signature in `agent-tunix rewards show`: that of a call, not of the constructor.
    __signature__ = inspect.Signature(
        [
            inspect.Parameter("response", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str),
            inspect.Parameter("columns", inspect.Parameter.VAR_KEYWORD, annotation=Any),
        ],
        return_annotation=float,
    )
    # Objects whose documentation `show` prints after the class's own.
    documented_with: tuple[Any, ...] = (EndpointSettings,)
    extra = "judge"
    needed_modules: tuple[str, ...] = ("httpx", "tenacity")

    def __init__(self, name: str, args: Mapping[str, Any] | None = None, timing: Timing | None = None) -> None:
        self.name = name
        self.args = dict(args or {})
        self.endpoint: EndpointSettings | None = None
        self.settings = CallSettings()
        self.recipe: RewardRecipe | None = None
        self.columns: tuple[str, ...] = ()
        self._timing = timing or Timing()
        self._asker: Asker | None = None
        self._pool: Pool | None = None
        if args is not None:
            self._configure()

    @abc.abstractmethod
    def _read_own(self, arguments: JudgeArguments) -> None:
        """Read the arguments that only this class of judge has."""

    @abc.abstractmethod
    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample], gate: asyncio.Semaphore) -> list[Score]:
        """Score the samples. Each question holds the gate while it runs."""

    @property
    def definition(self) -> type[Self]:
        """The class of the judge, which holds its code."""
        return type(self)

    function = definition

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response: `judge("It is 4.", prompt="What is 2 + 2?")`.

        `columns` are the prompt and columns of the row.

        Returns:
            The value, or None if the judge does not apply.

        Raises:
            BadReferenceError: A column that the judge is shown is empty.
            RewardError: There is no verdict.
        """
        score = self.explain(response, **columns)
        if score.outcome is Outcome.BAD_REFERENCE:
            raise BadReferenceError(score.detail)
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            raise RewardError(f"judge {self.name!r}: {score.detail}")
        return score.value

    def explain(self, response: str, **columns: Any) -> Score:
        """Score one response and give the reason in `Score.detail`. The arguments are those of a call."""
        known = {name: columns.pop(name) for name in ("prompt", "step") if name in columns}
        return self.score([Sample(response, columns=columns, **known)])[0]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. This works in any thread, also inside a running event loop."""
        return _run(self.score_async(samples))

    def begin(self, samples: Sequence[Sample]) -> "Future[list[Score]]":
        """Start scoring in another thread, so that a mixture can ask several judges at once and compute meanwhile."""
        future: Future[list[Score]] = Future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(asyncio.run, self.score_async(samples)))
            except BaseException as error:  # raised again by `future.result()`
                future.set_exception(error)

        threading.Thread(target=work, name=f"judge {self.name}", daemon=True).start()
        return future

    async def score_async(self, samples: Sequence[Sample], limit: int | None = None) -> list[Score]:
        """Score each sample, in order, with at most `limit` questions at the same time.

        For a judge that needs groups, `samples` must have whole groups.
        """
        asker = self._the_asker()
        gate = asyncio.Semaphore(limit or 1_000_000)
        try:
            async with asker.session():
                return await self._judge_all(asker, samples, gate)
        except RewardError as error:  # the key is no longer in the environment
            return [Score.failed(Outcome.ERROR, str(error))] * len(samples)

    def bind(self, name: str, args: Mapping[str, Any]) -> Self:
        """Return the same judge under another name, with further arguments."""
        bound = type(self)(name, {**self.args, **args} or None, self._timing)
        bound.settings = self.settings
        bound.recipe = replace(self.recipe, name=name, args=bound.args) if self.recipe else None
        return bound

    def configured(self, settings: CallSettings, recipe: RewardRecipe | None) -> Self:
        """Return the same judge with call settings and a recipe."""
        same = type(self)(self.name, None if self.endpoint is None else self.args, self._timing)
        same.settings, same.recipe = settings, recipe
        return same

    def check_parameters(self, columns: Collection[str]) -> None:
        """Raise RewardSignatureError if the dataset lacks a column, and RewardError if the key is not set."""
        for column in self.columns:
            if column not in columns:
                raise RewardSignatureError(
                    f"judge {self.name!r} requires the column `{column}`, which the dataset lacks; "
                    f"it has: {', '.join(sorted(columns)) or 'none'}",
                    code="missing_column",
                )
        self._the_endpoint().read_key()
        self._the_endpoint().check_proxies()

    def describe(self) -> str:
        """Return class, model and endpoint: `RubricJudge: gpt-4o-mini at https://api.openai.com/v1`."""
        if self.endpoint is None:
            return f"{type(self).__name__} (requires args)"
        return f"{type(self).__name__}: {self.endpoint.model} at {self.endpoint.base_url}"

    def metrics(self) -> dict[str, float]:
        """Return the totals in this process: requests, tokens, cost, latency, cache hits, failures."""
        return self._the_asker().totals.metrics()

    def step_metrics(self) -> dict[str, float]:
        """Return the same metrics since the last call, for a run to log at each step."""
        return self._the_asker().totals.take_step()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the judge as its arguments; its API key, open connections and counts of cost are left out."""
        return type(self), (self.name, None if self.endpoint is None else self.args)

    def _configure(self) -> None:
        missing = [module for module in self.needed_modules if importlib.util.find_spec(module) is None]
        if missing:
            raise RewardError(
                f"judge {self.name!r} requires {' and '.join(missing)}, which is not installed; run `pip install "
                f"agent_tunix[{self.extra}]`",
                code="missing_dependency",
            )
        arguments = JudgeArguments(self.name, self.args)
        self.endpoint = read_settings(arguments)
        self.columns = arguments.take_names("columns")
        self._read_own(arguments)
        arguments.finish()
        self._pool = join_pool(self, self.endpoint, self._timing)

    def _the_endpoint(self) -> EndpointSettings:
        if self.endpoint is None:
            raise RewardError(
                f"judge {self.name!r} requires args, at least `model` and `rubric`", code="missing_argument"
            )
        return self.endpoint

    def _the_asker(self) -> "Asker":
        settings = self._the_endpoint()
        if self._asker is None:
            from agent_tunix.rewards.judges.asking import Asker  # imports the HTTP client

            self._asker = Asker(settings, self._pool or join_pool(self, settings, self._timing), self._timing)
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


async def guarded(verdict: Coroutine[Any, Any, Score]) -> Score:
    """Return the score, or the outcome of a fault as a score, with the seconds that it took."""
    started = time.perf_counter()
    try:
        score = await verdict
    except BadReferenceError as error:
        score = Score.failed(Outcome.BAD_REFERENCE, str(error))
    except JudgeFault as fault:
        score = Score.failed(fault.outcome, str(fault))
    except Exception as error:  # the fault of one completion must not affect the batch
        score = Score.failed(Outcome.ERROR, describe_fault(error))
    return replace(score, seconds=time.perf_counter() - started)


def receipt_extras(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as extras of a score."""
    return {
        "prompt_tokens": receipt.usage.prompt_tokens,
        "completion_tokens": receipt.usage.completion_tokens,
        "cost": receipt.cost,
        "requests": receipt.requests,
        "latency_s": round(receipt.latency_s, 3),
        "cached": receipt.is_cached,
    }


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


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in another thread if an event loop is running in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
