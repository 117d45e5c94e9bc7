"""The form in which a function takes completions: as texts, or as lists of one chat message.

A plain call decides little: a function may swallow the error that the wrong form causes, and always score 0 or −1. So
a trial passes completions that record how they are used:

- a text that is used as a message, as in `completion[0]["content"]` or `completion.get("content")`;
- messages whose content is read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_tunix.errors import RewardError
from agent_tunix.rewards.sample import Outcome, Sample, Score

# Forms of completions that record their use, for trials.
TRIALS: Mapping[str, str] = {"text": "recording_text", "messages": "recording_messages"}
# Metric of a trial's score: 1 if the completion was used as a message.
USED_AS_MESSAGE = "used_as_message"


@dataclass(frozen=True, slots=True)
class FormTrial:
    """Result of calling a function with one sample, as text or as messages."""

    refusal: str = ""  # reason why the function failed; "" if it did not
    value: float | None = None  # its value; None if it failed, or for a completion to which the reward does not apply
    used_as_message: bool = False  # True if the completion was used as a message
    is_final: bool = False  # True if another attempt would decide nothing

    @classmethod
    def of(cls, score: Score) -> "FormTrial":
        """Return the trial that ended in this score."""
        used_as_message = bool(score.metrics.get(USED_AS_MESSAGE))
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
            return cls(score.detail, None, used_as_message, is_final=score.outcome is Outcome.TIMEOUT)
        return cls(value=score.value, used_as_message=used_as_message)


@dataclass(frozen=True, slots=True)
class FormChoice:
    """The chosen form of completions, `text` or `messages`, and the reason, as a text for the user.

    `is_guess` is True if the choice may well be wrong.
    """

    completions: str
    reason: str
    is_guess: bool = False


def choose_form(name: str, attempt: Callable[[str, Sample], FormTrial], sample: Sample, native: str = "") -> FormChoice:
    """Choose the form of completions for a function by what it does with them.

    Args:
        name: Name of the reward.
        attempt: Calls the function with a sample's completion as `text` or `messages`.
        sample: A sample of the data. If the sample does not decide, a right and a wrong completion are made up.
        native: Form that the function's library passes, used if the function takes both. If it is "", the choice is
            text if both are scored alike.

    Raises:
        RewardError: The function takes both forms and scores them differently, and `native` is "".
    """
    text = attempt("text", sample)
    if text.is_final:
        return FormChoice(native or "text", f"the trial was inconclusive: {text.refusal}", is_guess=True)
    messages = attempt("messages", sample)
    if text.refusal and messages.refusal and text.used_as_message:
        return FormChoice("messages", f"it uses completions as messages, and fails on this one ({messages.refusal})")
    if text.refusal and messages.refusal:
        reason = f"it accepts neither text ({text.refusal}) nor messages ({messages.refusal})"
        usual = "text" if sample.episode is None else "messages"
        return FormChoice(native or usual, reason, is_guess=True)
    if text.refusal:
        return FormChoice("messages", f"it accepts messages but not text ({text.refusal})")
    if text.used_as_message and not messages.refusal:
        return FormChoice("messages", "it reads the content of a message")
    if text.used_as_message:
        return FormChoice(
            "text", f"it uses text as a message, but fails on messages ({messages.refusal})", is_guess=True
        )
    if messages.refusal:
        return FormChoice("text", f"it accepts text but not messages ({messages.refusal})")
    if not messages.used_as_message and not native:
        return FormChoice("text", "it accepts text")
    return _compare_forms(name, attempt, sample, native)


def _compare_forms(name: str, attempt: Callable[[str, Sample], FormTrial], sample: Sample, native: str) -> FormChoice:
    """Choose between two accepted forms by comparing the scores of a right and a wrong completion."""
    samples = [sample, *made_up(sample)]
    texts, others = ([attempt(form, one).value for one in samples] for form in TRIALS)
    if texts == others:
        reason = "it accepts both and scores them alike"
        return FormChoice(native or "text", reason, is_guess=not native and len({*texts}) == 1)
    if len({*texts}) == 1 < len({*others}):
        return FormChoice("messages", f"it scores every text {texts[0]}, but tells messages apart")
    if len({*others}) == 1 < len({*texts}):
        return FormChoice("text", f"it scores all messages {others[0]}, but tells texts apart")
    if native:
        return FormChoice(native, "it accepts both, and its library passes this form")
    raise RewardError(
        f"reward {name!r} must take completions as text or as messages, but it takes both and scores {texts[0]} for a"
        f" text and {others[0]} for the same text as a message; set rewards.completions=text or"
        " rewards.completions=messages",
        code="ambiguous_completions",
    )


def made_up(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with a right completion, if it has a reference, and with a wrong one."""
    reference = sample.columns.get("answer")
    right = [] if reference is None else [f"<reasoning>It follows.</reasoning>\n<answer>{reference}</answer>"]
    for response in (*right, "I do not know"):
        messages = (*sample.messages[:-1], {"role": "assistant", "content": response})
        yield with_made_up_tokens(replace(sample, response=response, messages=messages))


def with_made_up_tokens(sample: Sample) -> Sample:
    """Return a sample with token ids, one for every four characters."""
    num_tokens = len(sample.response) // 4 + 1
    return replace(sample, tokens=tuple(range(num_tokens)), num_tokens=num_tokens)


class UseRecorder:
    """Recorder of the use of completions that it makes. `used` is True if one was used as a message."""

    def __init__(self) -> None:
        self.used = False

    def text(self, response: str) -> str:
        """Return a text that records if it is used as a message."""
        recorder = self

        class _Text(str):
            __slots__ = ()

            def __getitem__(self, key: Any) -> str:
                recorder.used |= isinstance(key, str)
                item = super().__getitem__(key)
                return _Text(item) if isinstance(key, int) else item

            def __iter__(self) -> Iterator[str]:
                return map(_Text, super().__iter__())

            def __reduce__(self) -> Any:  # a process to which the text is sent does not record
                return str, (str(self),)

            def __deepcopy__(self, memo: Any) -> "_Text":
                return self

            def __getattr__(self, name: str) -> Any:  # called for attributes that a text lacks, such as `get`
                recorder.used |= not name.startswith("__")
                raise AttributeError(f"'str' object has no attribute {name!r}")

        return _Text(response)

    def messages(self, messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return chat messages that record if their content is read."""
        recorder = self

        class _Recorded(dict[str, Any]):
            def __reduce__(self) -> Any:  # a process to which the message is sent may read it
                recorder.used = True
                return dict, ([*super().items()],)

            def __iter__(self) -> Iterator[str]:  # makes `dict(message)` read items by `__getitem__`
                return super().__iter__()

            def __getitem__(self, key: str) -> Any:
                recorder.used |= key == "content"
                return super().__getitem__(key)

            def get(self, key: str, default: Any = None) -> Any:
                recorder.used |= key == "content"
                return super().get(key, default)

            def values(self) -> Any:
                recorder.used = True
                return super().values()

            def items(self) -> Any:
                recorder.used = True
                return super().items()

            def pop(self, key: str, *default: Any) -> Any:
                recorder.used |= key == "content"
                return super().pop(key, *default)

        # A convention's own kind of message stays one.
        return [type("_Message", (_Recorded, type(message)), {})(message) for message in messages]
