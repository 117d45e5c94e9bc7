"""Convention `trl`: a function takes a whole batch as lists and returns a list of one value for each completion.

    def reward(completions, **kwargs): ...
    def reward(prompts, completions, answer, **kwargs): ...
    async def reward(completions, trainer_state, log_extra=None, log_metric=None, **kwargs): ...

| parameter | argument |
| --- | --- |
| `completions` | texts, or lists of chat messages, depending on `rewards.completions` |
| `prompts` | texts, or the chat messages before each completion |
| `completion_ids` | the token ids of each completion; for an episode, those of tool results too |
| `environments` | the environment of each episode after its end: its public attributes, and `get_reward()` |
| `trainer_state` | an object with `global_step`, the steps completed so far (0 in the first), and `max_steps` |
| `log_extra(column, values)` | a function that stores a list of one value per completion with the completions |
| `log_metric(name, value)` | a function that logs a number of the whole batch |
| any other name | the dataset's column of that name, as a list; None for a row without it |
| `**kwargs` | all of these |

During a run, a call takes the completions of one prompt, so that a fault costs one group. A function that
compares completions across prompts sets the attribute `reward.needs_batch = True` and gets the whole batch in one call.

The `arguments` of tool calls are mappings, as in TRL.

None as a value means that the reward does not apply to the completion. A return value that cannot be matched to the
completions (a number, a generator, an array, a list of another length) is an error of each completion.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn

from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.tool_call_shapes import with_mapping_arguments
from agent_tunix.rewards.conventions.values import own_copy, to_number, to_score, to_scores
from agent_tunix.rewards.sample import Sample, Score
from agent_tunix.rewards.unavailable import Placeholder

EXPECTED = "a batch reward returns a list of one number, or None, for each completion"
EXPECTED_ITEM = "each value of the list is a number or None"
BATCH_NAMES = ("prompts", "completions", "completion_ids", "environments")
OWN_NAMES: tuple[str, ...] = (*BATCH_NAMES, "trainer_state", "log_extra", "log_metric")


@dataclass
class TrainerState:
    """State of the training as in TRL: steps completed before this batch (0 in the first), and steps of the run."""

    global_step: int
    max_steps: int


class TrlReward(FormedConvention):
    """A function of a batch."""

    convention = "trl"
    library = "TRL"
    reference = "answer"
    provided: ClassVar[tuple[str, ...]] = OWN_NAMES
    reserved: ClassVar[tuple[str, ...]] = OWN_NAMES
    form_parameters = ("prompts", "completions")
    form_by_keywords = True
    needs_group = True
    owns_output = False  # the output of a call belongs to no single completion

    def _make_calls(self) -> Sequence[Call]:
        self.needs_batch = getattr(self.definition, "needs_batch", False) is True
        return [Call(self.target)]

    @property
    def completions(self) -> str:
        """`text`, `messages`, or `auto` until the form is determined.

        A function that requires `environments` gets messages, because TRL passes nothing else with environments. A
        trial could not tell: a made-up episode has no environment.
        """
        if getattr(self.definition, "takes_messages", False) is True:
            return "messages"
        form = super().completions
        return "messages" if form == "auto" and "environments" in self.calls[0].required else form

    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        return [range(len(samples))] if samples else []

    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        log = _Log(len(samples))
        return log.attach(self._read(self._call(samples, log), len(samples)))

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        log = _Log(len(samples))
        async with slots:
            returned = self._call(samples, log)
            if self.calls[0].is_async:
                returned = await running.awaited(returned)
        return log.attach(self._read(returned, len(samples)))

    def _read(self, returned: Any, count: int) -> list[Score]:
        return to_scores(returned, count, lambda value: to_score(value, EXPECTED_ITEM), EXPECTED)

    def _call(self, samples: Sequence[Sample], log: "_Log") -> Any:
        columns = dict.fromkeys(name for sample in samples for name in sample.columns)
        lazily: dict[str, Callable[[], Any]] = {
            name: lambda name=name: [own_copy(sample.columns.get(name)) for sample in samples]  # type: ignore[misc]
            for name in columns
            if name not in self.target.call_args
        }
        lazily |= {
            "prompts": lambda: [self._prompt_of(sample) for sample in samples],
            "completions": lambda: [self._completion_of(sample) for sample in samples],
            "completion_ids": lambda: [token_ids_of(sample) for sample in samples],
            "trainer_state": lambda: TrainerState(max(samples[0].step - 1, 0), samples[0].max_steps),
            "log_extra": lambda: log.extra,
            "log_metric": lambda: log.metric,
        }
        if any(sample.episode is not None for sample in samples):
            lazily["environments"] = lambda: [_environment_of(sample) for sample in samples]
        elif "environments" in self.calls[0].required:
            raise LookupError(
                "`environments` is not available, because this completion has no episode; rewards get it in a run with"
                " an environment (environment.name=…)"
            )
        return self.calls[0](self.target.call_args, {**lazily, **self._further_values(samples)})

    def _shaped(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return with_mapping_arguments(messages)

    def _further_values(self, samples: Sequence[Sample]) -> dict[str, Callable[[], Any]]:
        """Return further values, for subclasses to define. Each is computed only if the function takes it."""
        return {}


class _Log:
    """Values that a function logs during one call."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._extras: dict[str, list[Any]] = {}
        self._metrics: dict[str, list[float]] = {}

    def extra(self, column: str, values: Sequence[Any]) -> None:
        """Store one value for each completion."""
        values = list(values)
        if len(values) != self._count:
            raise ValueError(
                f"log_extra({column!r}, …) requires one value per completion, but got {len(values)} for {self._count}"
            )
        self._extras[str(column)] = own_copy(values)

    def metric(self, name: str, value: float) -> None:
        """Log a number of the batch. Numbers logged under one name are averaged."""
        number = to_number(value)
        if isinstance(number, str):
            raise ValueError(f"log_metric({name!r}, …) requires a finite number, not {value!r}")
        self._metrics.setdefault(str(name), []).append(number)

    def attach(self, scores: list[Score]) -> list[Score]:
        """Return the scores with the logged values."""
        if not self._extras and not self._metrics:
            return scores
        metrics = {name: sum(values) / len(values) for name, values in self._metrics.items()}
        return [
            replace(
                score,
                extras={**score.extras, **{column: values[i] for column, values in self._extras.items()}},
                metrics={**score.metrics, **metrics},
            )
            for i, score in enumerate(scores)
        ]


def _environment_of(sample: Sample) -> Any:
    """Return an object like the environment of an episode at its end; None without an episode."""
    if sample.episode is None:
        return None
    score = sample.episode.score
    value = None if score is None else score.value
    return _EndedEnvironment(**{"get_reward": lambda: value, **own_copy(dict(sample.episode.state))})


class _EndedEnvironment(SimpleNamespace):
    """An environment after its episode: `get_reward`, and its public attributes with plain data."""

    def __getattr__(self, name: str) -> NoReturn:
        reason = "it is no plain data, or was never set"
        if name.startswith("_"):
            reason = (
                f"it is private; keep it as `self.{name.lstrip('_')}`, or compute the reward in `get_reward` of the"
                " environment"
            )
        raise AttributeError(
            f"the environment's `{name}` is not available here, because {reason}. Rewards get"
            f" {', '.join(sorted(vars(self)))}",
            name=name,
            obj=self,
        )


def token_ids_of(sample: Sample) -> Any:
    """Return the token ids of the completion, or a placeholder if they are unknown: [] would be an empty completion."""
    if sample.episode is not None and sample.episode.tokens:
        return list(sample.episode.tokens)
    if not sample.tokens and (sample.num_tokens or sample.response):
        reason = "`completion_ids` is not available, because the token ids of this completion are unknown here"
        return Placeholder(reason, "unknown_token_ids")
    return list(sample.tokens)
