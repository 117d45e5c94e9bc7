"""Convention `plain`: a function takes a response and any other parameters that its signature names, in any order.

    def reward(response): ...
    def reward(response, answer=""): ...
    def reward(response, prompt, metadata): ...
    async def reward(response, step, **kwargs): ...

| parameter | argument |
| --- | --- |
| `response` | text of the completion |
| `completion` | text of the completion, or a list of one chat message, depending on `rewards.completions` |
| `prompt` | the user's text |
| `format` | template that a response should follow |
| `step`, `max_steps` | training step, from 1, and number of steps of the run; 0 outside training |
| `num_tokens` | length of the completion in tokens, its end included; 0 if unknown |
| `metadata` | all columns of the dataset's row, as a dict |
| any other name | the dataset's column of that name, for instance `answer` |
| `**kwargs` | all of these |

Arguments from configuration take precedence over columns and over this table, but cannot set the response. This table
takes precedence over columns of the same name; `metadata` still holds those columns. Mutable values are copied for each
call, so that no reward can corrupt the next.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

from agent_tunix.errors import RewardSignatureError
from agent_tunix.rewards.answers.thorough import PutOff, Questions
from agent_tunix.rewards.builtin import LIMITS
from agent_tunix.rewards.conventions import capture, running
from agent_tunix.rewards.conventions.base import FAULTS, SURROUNDINGS
from agent_tunix.rewards.conventions.components import score_of_entry
from agent_tunix.rewards.conventions.formed import FormedConvention
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.values import own_copy, to_score
from agent_tunix.rewards.sample import Outcome, Sample, Score, take_time
from agent_tunix.rewards.shims import served_imports
from agent_tunix.rewards.unavailable import CallWatch

RESPONSE_NAMES = ("response", "completion")
# Parameters that an episode provides. Without an episode, they get the row's columns of these names.
OF_EPISODE: dict[str, Callable[[Sample], Any]] = {
    "episode": lambda sample: sample.episode,
    "transcript": lambda sample: [dict(message) for message in sample.completion_messages],
}
EXPECTED = "a per-response reward returns one number"


class PlainArguments:
    """Arguments of a function without `**kwargs`. The source of each is determined once.

    Args:
        names: Parameters of the function.
        fixed: Arguments from the configuration.
        completion_of: Returns the completion of a sample in the form that the function takes.
        configured: Parameters that only the configuration sets.
    """

    def __init__(
        self,
        names: Sequence[str],
        fixed: Mapping[str, Any],
        completion_of: Callable[[Sample], Any],
        configured: Sequence[str] = (),
    ) -> None:
        free = [name for name in names if name not in fixed]
        self._fixed = {name: value for name, value in fixed.items() if name in names}
        self._attributes: list[tuple[str, Callable[[Sample], Any]]] = []
        if "response" in free:
            self._attributes.append(("response", attrgetter("response")))
        if "completion" in free:
            self._attributes.append(("completion", completion_of))
        self._attributes += [(name, attrgetter(name)) for name in free if name in SURROUNDINGS]
        self._has_metadata = "metadata" in free
        self._of_episode = [name for name in free if name in OF_EPISODE]
        others = (*RESPONSE_NAMES, *SURROUNDINGS, *OF_EPISODE, "metadata", *configured)
        self._columns = [name for name in free if name not in others]

    def of(self, sample: Sample) -> dict[str, Any]:
        """Return the arguments for one sample. A parameter that nothing provides keeps its default."""
        arguments: dict[str, Any] = {}
        for name, get in self._attributes:
            arguments[name] = get(sample)
        columns = sample.columns
        for name in self._columns:
            if name in columns:
                arguments[name] = own_copy(columns[name])
        for name in self._of_episode:
            if sample.episode is not None:
                arguments[name] = own_copy(OF_EPISODE[name](sample))
            elif name in columns:
                arguments[name] = own_copy(columns[name])
        if self._has_metadata:
            arguments["metadata"] = own_copy(dict(columns))
        if self._fixed:
            arguments |= own_copy(self._fixed)
        return arguments


class PlainReward(FormedConvention):
    """A function of one response.

    It returns a number, None if it does not apply, a `Score`, or a dict with the entry `rewards.reward_key`. If the
    policy acts in an environment, the function may take `transcript`, the chat messages from the policy's first turn
    on, and `episode`, an `EpisodeSummary`. Calling the reward scores one response as the function itself would.
    Training uses `score`.
    """

    convention = "plain"
    reference = "answer"
    provided = ("prompt", "format", "step", "max_steps", "num_tokens", "metadata", *OF_EPISODE)
    reserved = RESPONSE_NAMES
    form_parameters = ("completion",)

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response. A built-in that gets exactly the arguments it takes is called directly."""
        if not self._is_direct or not columns.keys() <= self._direct_names:
            return super().__call__(response, **columns)
        returned = self.calls[0].function(response=response, **columns)
        score = returned if type(returned) is Score else self._score_of(returned)
        return score.value if score.outcome is Outcome.SCORED else self._value_of(score)

    @cached_property
    def _is_direct(self) -> bool:
        names = self.calls[0].names
        needs_sample = any(name in (*SURROUNDINGS, "metadata") for name in names)
        return self.is_builtin and not self.is_async and not self.target.call_args and not needs_sample

    @cached_property
    def _direct_names(self) -> frozenset[str]:
        return frozenset(self.calls[0].names) - {"response"}

    def _make_calls(self) -> Sequence[Call]:
        call = Call(self.target)
        takes_response = any(name in RESPONSE_NAMES for name in call.names)
        if not takes_response and (not call.takes_any or _only_keywords_are_the_response(call)):
            raise RewardSignatureError(
                f"a plain reward must take `response`, the completion's text, but {self.name!r} takes "
                f"{call.signature}; arguments are passed by name, so rename that parameter to `response`"
            )
        return [call]

    def _units(self, samples: Sequence[Sample]) -> Iterable[Sequence[int]]:
        return ([place] for place in range(len(samples)))

    def _evaluate(self, samples: Sequence[Sample], first: int) -> list[Score]:
        return [self._score_of(self._bind(samples[0])())]

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. Every fault of the user's code becomes an outcome with its reason."""
        if self.is_async or self._recorder is not None or (samples and self.is_open):
            return super().score(samples)
        watch = CallWatch(self._file)
        with served_imports(), capture.listening(), capture.attributed() as lines:
            if self.is_builtin:
                return self._score_in_rounds(samples, lines, watch)
            with watch:
                return [score for sample in samples if (score := self._score_one(sample, lines, watch)) is not None]

    def _score_in_rounds(self, samples: Sequence[Sample], lines: list[str], watch: CallWatch) -> list[Score]:
        """Score each sample with a built-in, whose questions to the thorough tier are answered together.

        A call that needs an answer notes its question and raises `PutOff`. It is made again once all questions of the
        round are answered, and may then ask another.
        """
        questions = Questions()
        scores: dict[int, Score] = {}
        places = list(range(len(samples)))
        while places:
            started = time.perf_counter()
            questions.settle()
            waited_s = (time.perf_counter() - started) / len(places)
            with questions.gathered():
                for place in places:
                    if (score := self._score_one(samples[place], lines, watch, waited_s)) is not None:
                        scores[place] = score
            places = [place for place in places if place not in scores]
        return [scores[place] for place in range(len(samples))]

    def _score_one(self, sample: Sample, lines: list[str], watch: CallWatch, waited_s: float = 0.0) -> Score | None:
        """Return the score, and add `waited_s` to its time; None if a built-in waits for the thorough tier."""
        lines.clear()
        watch.missed.clear()
        started = time.perf_counter()
        try:
            returned = self._bind(sample)()
            # A built-in returns a new score each time, so it needs no copy.
            owned = self.is_builtin and type(returned) is Score
            score = returned if owned else self._score_of(returned)
        except PutOff:
            return None
        except FAULTS as error:  # a user's fault becomes an outcome here
            score = self._failed(error)
        score = self._checked(score, watch)
        take_time(score, time.perf_counter() - started + waited_s)
        return replace(score, extras={**score.extras, **capture.as_extras(lines)}) if lines else score

    async def _evaluate_async(self, samples: Sequence[Sample], first: int, slots: asyncio.Semaphore) -> list[Score]:
        async with slots:
            return [self._score_of(await running.awaited(self._bind(samples[0])()))]

    def _score_of(self, returned: Any) -> Score:
        if isinstance(returned, Mapping):
            return score_of_entry(returned, self.settings.reward_key, EXPECTED)
        return to_score(returned, EXPECTED)

    def _bind(self, sample: Sample) -> Callable[[], Any]:
        """Return the function with its arguments for a sample."""
        if self._arguments is not None:
            return partial(self.calls[0].function, **self._arguments.of(sample))
        columns = sample.columns
        available: dict[str, Any] = {
            **columns,
            "response": sample.response,
            "prompt": sample.prompt,
            "format": sample.format,
            "step": sample.step,
            "max_steps": sample.max_steps,
            "num_tokens": sample.num_tokens,
            "metadata": columns if type(columns) is dict else dict(columns),
        }
        if sample.episode is not None:
            available |= {name: get(sample) for name, get in OF_EPISODE.items()}
        for name in self._unnamed:
            available.pop(name, None)
        if self.target.call_args:
            available.update(self.target.call_args)
        lazy_arguments = {"completion": lambda: self._completion_of(sample)} if self._takes_form else {}
        return partial(self.calls[0], available, lazy_arguments)

    @cached_property
    def _arguments(self) -> PlainArguments | None:
        """The arguments of the function; None if its signature does not name all of them."""
        call = self.calls[0]
        if call.takes_any or call.has_positional_only:
            return None
        configured = LIMITS if self.is_builtin else ()
        return PlainArguments(call.names, self.target.call_args, self._completion_of, configured)

    @cached_property
    def _response_names(self) -> list[str]:
        """The names of the response: those in the signature, or else `response`, through `**kwargs`."""
        return [name for name in RESPONSE_NAMES if name in self.calls[0].names] or ["response"]

    @cached_property
    def _unnamed(self) -> list[str]:
        return [name for name in RESPONSE_NAMES if name not in self._response_names]

    def _manner(self) -> str:
        return "" if self.completions == "auto" or not self._takes_form else f"completion as {self.completions}"


def _only_keywords_are_the_response(call: Call) -> bool:
    """Return True if only `**response` could take the response, which is surely a mistake."""
    keywords = [p.name for p in call.signature.parameters.values() if p.kind is p.VAR_KEYWORD]
    return all(name in RESPONSE_NAMES for name in keywords)
