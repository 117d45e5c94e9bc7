"""Base class of the conventions that pass completions in a form: as texts, or as lists of one chat message.

The form is `rewards.completions`. With `auto`, trials of the function decide it before the first score.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from agent_tunix.rewards.conventions.base import Convention, sample_of
from agent_tunix.rewards.conventions.completion_form import (
    TRIALS,
    USED_AS_MESSAGE,
    FormChoice,
    FormTrial,
    UseRecorder,
    choose_form,
)
from agent_tunix.rewards.conventions.values import own_copy
from agent_tunix.rewards.sample import Sample, Score

logger = logging.getLogger("agent_tunix.rewards")


class FormedConvention(Convention):
    """A convention whose functions take completions as texts or as messages."""

    form_parameters: ClassVar[tuple[str, ...]] = ()  # parameters whose value depends on the form
    form_by_keywords: ClassVar[bool] = False  # True if a function with `**kwargs` gets those parameters too

    @property
    def native_form(self) -> str:
        """The form that the function's library passes, used if the function takes both; "" if it is unknown."""
        return ""

    @property
    def completions(self) -> str:
        """`text`, `messages`, or `auto` until the form is determined."""
        return self.settings.completions

    @property
    def is_open(self) -> bool:
        """True if the form matters and is not determined yet."""
        return self.completions == "auto" and self._takes_form

    @property
    def form(self) -> str | None:
        """`completions` if the form matters to the function; else None."""
        return self.completions if self._takes_form else None

    @cached_property
    def _takes_form(self) -> bool:
        if self.form_by_keywords and any(call.takes_any for call in self.calls):
            return True
        return any(name in self.form_parameters for call in self.calls for name in call.names)

    @property
    def _as_messages(self) -> bool:
        return self.completions in ("messages", TRIALS["messages"])

    @cached_property
    def _recorder(self) -> UseRecorder | None:
        """Recorder of the use of completions; None outside a trial."""
        return UseRecorder() if self.completions in TRIALS.values() else None

    def settled(self, completions: str) -> Self:
        """Return the same reward for completions as `text` or as `messages`."""
        recipe = replace(self.recipe, completions=completions) if self.recipe else None
        return self.configured(replace(self.settings, completions=completions), recipe)

    def probe(self, sample: Sample) -> FormChoice:
        """Find out whether the function takes strings or messages, by calling it in this process.

        Raises:
            RewardError: It takes both and scores them differently.
        """

        def attempt(form: str, sample: Sample) -> FormTrial:
            return FormTrial.of(self.settled(TRIALS[form]).score([sample])[0])

        return choose_form(self.name, attempt, sample, self.native_form)

    def settle(self, choice: FormChoice) -> None:
        """Use the chosen form from now on and log it."""
        self.settings = replace(self.settings, completions=choice.completions)
        if self.recipe is not None:
            self.recipe = replace(self.recipe, completions=choice.completions)
        text = f"reward {self.name!r} gets completions as {choice.completions}: {choice.reason}"
        if choice.is_guess:
            logger.warning("%s; set rewards.completions=text or messages", text)
        else:
            logger.info("%s (rewards.completions)", text)

    def _manner(self) -> str:
        is_set = self._takes_form and self.completions != "auto"
        return f"{self.convention}, completions as {self.completions}" if is_set else self.convention

    def __call__(self, response: str, **columns: Any) -> float | None:
        """Score one response; see `Convention`."""
        if self.is_open:
            self.settle(self.probe(sample_of(response, columns)))
        return super().__call__(response, **columns)

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        """Score each sample, in order. Every fault of the user's code becomes an outcome with its reason."""
        if samples and self.is_open:
            self.settle(self.probe(samples[0]))
        return super().score(samples)

    async def score_async(self, samples: Sequence[Sample], limit: int) -> list[Score]:
        """Score each sample, in order, with at most `limit` calls at the same time."""
        if samples and self.is_open:
            self.settle(await asyncio.to_thread(self.probe, samples[0]))
        return await super().score_async(samples, limit)

    def _completion_of(self, sample: Sample) -> Any:
        """Return the completion in its form; in a trial, one that records its use."""
        completion = completion_of(sample, self._as_messages)
        if self._as_messages:
            completion = self._shaped(completion)
        if self._recorder is None:
            return completion
        return self._recorder.messages(completion) if self._as_messages else self._recorder.text(completion)

    def _prompt_of(self, sample: Sample) -> Any:
        """Return the prompt in its form."""
        prompt = own_copy(prompt_of(sample, self._as_messages))
        return self._shaped(prompt) if self._as_messages else prompt

    def _shaped(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return messages with tool calls in the shape of the function's library."""
        return messages

    def _finish(self, scores: list[Score], started: float, lines: list[str]) -> list[Score]:
        scores = super()._finish(scores, started, lines)
        if self._recorder is None or not self._recorder.used:
            return scores
        self._recorder.used = False
        return [replace(score, metrics={**score.metrics, USED_AS_MESSAGE: 1.0}) for score in scores]


def prompt_of(sample: Sample, as_messages: bool) -> Any:
    """Return the prompt as text, or as the chat messages before the completion."""
    if not as_messages:
        return sample.prompt
    return [dict(message) for message in sample.prompt_messages] or [{"role": "user", "content": sample.prompt}]


def completion_of(sample: Sample, as_messages: bool) -> Any:
    """Return the completion as text, or as a list of chat messages: one, or the turns of an episode."""
    if not as_messages:
        return sample.response
    if sample.episode is None:
        return [{"role": "assistant", "content": sample.response}]
    return [own_copy(dict(message)) for message in sample.completion_messages]
