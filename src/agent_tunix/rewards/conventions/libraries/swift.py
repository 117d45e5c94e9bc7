"""Convention `ms_swift`: a class that derives from `ORM` or `AsyncORM`, called like a TRL function.

    class MyReward(ORM):
        def __call__(self, completions, solution, **kwargs): ...

    orms["mine"] = MyReward

Completions are texts. Besides TRL's parameters there are `messages`, the whole conversations with the calls of tools in
the text, and `response_token_ids`. All arguments from configuration are attributes of `self.args`.

`file.py:mine` means the entry `mine` of `orms`, if the file has no function or class of that name.
"""

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.tool_call_shapes import with_written_calls
from agent_tunix.rewards.conventions.trl import OWN_NAMES, TrlReward, token_ids_of
from agent_tunix.rewards.conventions.values import own_copy
from agent_tunix.rewards.sample import Sample

_FURTHER = ("messages", "response_token_ids")


class ORM:
    """Base class of rewards of ms-swift; `args` are the arguments from configuration."""

    def __init__(self, args: Any = None, **kwargs: Any) -> None:
        self.args = args

    def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        """Return one number for each completion."""
        raise NotImplementedError(f"{type(self).__qualname__} must define __call__(self, completions, **kwargs)")


class AsyncORM:
    """Base class of async rewards of ms-swift; `args` are the arguments from configuration."""

    def __init__(self, args: Any = None, **kwargs: Any) -> None:
        self.args = args

    async def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        """Return one number for each completion."""
        raise NotImplementedError(f"{type(self).__qualname__} must define __call__(self, completions, **kwargs)")


# Rewards by the names that plugins register.
orms: dict[str, Any] = {}


def get_logger(name: str = "swift") -> logging.Logger:
    """Return a logger, as `swift.utils.get_logger` does."""
    return logging.getLogger(f"agent_tunix.rewards.{name}")


def is_orm(definition: Any) -> bool:
    """Return True for a class, or an object of a class, that derives from ms-swift's `ORM` or `AsyncORM`."""
    kind = definition if isinstance(definition, type) else type(definition)
    bases = [base for base in kind.__mro__[1:] if base.__name__ in ("ORM", "AsyncORM")]
    return any(base.__module__.partition(".")[0] in ("swift", "agent_tunix") for base in bases)


class SwiftReward(TrlReward):
    """An `ORM` of ms-swift."""

    convention = "ms_swift"
    library = "ms-swift"
    reference = "answer"
    provided = (*OWN_NAMES, *_FURTHER)
    reserved = (*OWN_NAMES, *_FURTHER)

    @property
    def completions(self) -> str:
        """`text`, the form that ms-swift passes, unless `rewards.completions` is set."""
        return "text" if self.settings.completions == "auto" else self.settings.completions

    def _make_calls(self) -> Sequence[Call]:
        self.target.offer("args", SimpleNamespace(**own_copy(self.args)))
        calls = super()._make_calls()
        arguments = {name: value for name, value in self.target.call_args.items() if name in calls[0].names}
        self.target.call_args = arguments  # ms-swift passes no arguments of the configuration by keyword
        return calls

    def _check_args(self) -> None:
        """Accept every argument, because `self.args` offers all of them."""

    def _further_values(self, samples: Sequence[Sample]) -> dict[str, Callable[[], Any]]:
        values: dict[str, Callable[[], Any]] = {
            "messages": lambda: [with_written_calls(own_copy([*map(dict, sample.messages)])) for sample in samples],
            "response_token_ids": lambda: [token_ids_of(sample) for sample in samples],
        }
        return values
