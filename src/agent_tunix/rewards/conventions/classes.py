"""Rewards as classes with a configuration and a batch call, the convention of llm-finetuning.

    class Concise(BaseReward):
        def __call__(self, prompts, completions, **kwargs):
            return [1.0 / len(completion[0]["content"].split() or [""]) for completion in completions]

`prompts` is a list of lists of chat messages, `completions` a list of lists of one message, and `kwargs` the dataset's
columns as lists. An instance can be used like a TRL function, also in `GRPOTrainer(reward_funcs=[…])`.
"""

import base64
import functools
import inspect
import pickle
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from agent_tunix.errors import RewardError
from agent_tunix.rewards import loading
from agent_tunix.rewards.conventions import running
from agent_tunix.rewards.conventions.values import describe_kind, own_copy, to_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Configuration of a reward. Logs show its `name`. Subclasses add fields."""

    name: str = "reward"


class BaseReward(ABC):
    """Base class of rewards that score a batch. Without `config` it uses a default `RewardConfig`."""

    # Takes precedence over `rewards.completions`.
    takes_messages = True
    # Set this to True if one call must take the whole batch, not only the completions of one prompt.
    needs_batch = False

    def __init__(self, config: RewardConfig | None = None) -> None:
        self.config = config or RewardConfig()
        self.__name__ = self.config.name
        self.__doc__ = type(self).__doc__

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add a check of the returned values to the `__call__` that a subclass defines."""
        super().__init_subclass__(**kwargs)
        call = vars(cls).get("__call__")
        if isinstance(call, FunctionType) and not getattr(call, "__isabstractmethod__", False):
            cls.__call__ = _checked(call)  # type: ignore[method-assign]

    @abstractmethod
    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        """Score a batch. All arguments are copies, so changes to them have no effect elsewhere.

        Args:
            prompts: For each completion, the chat messages before it.
            completions: For each completion, a list of one chat message; its text is `completion[0]["content"]`.
            **kwargs: Columns of the dataset as lists.

        Returns:
            For each completion a finite number, or None if the reward does not apply.
        """

    def as_fn(self) -> Callable[..., list[float]]:
        """Return a function of the same name and signature that can be pickled and sent to another process."""

        def reward(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
            return self(prompts, completions, **kwargs)

        functools.update_wrapper(reward, type(self).__call__)
        reward.__name__ = self.config.name
        reward.__doc__ = self.__doc__
        reward.__signature__ = inspect.signature(self.__call__)  # type: ignore[attr-defined]
        reward.takes_messages = self.takes_messages  # type: ignore[attr-defined]
        reward.needs_batch = self.needs_batch  # type: ignore[attr-defined]
        _make_picklable(reward, self)
        return reward

    def _run_batch(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from within `__call__`, which is not async."""
        return running.run(coroutine)


def _checked(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def checked(self: BaseReward, prompts: list[Any], completions: list[Any], **kwargs: Any) -> Any:
        if inspect.iscoroutinefunction(call):
            raise RewardError(
                f"{type(self).__qualname__}.__call__ is async; write it with `def` and use self._run_batch(…) inside"
            )
        count = len(completions)
        returned = call(self, own_copy(prompts), own_copy(completions), **own_copy(kwargs))
        return _check_returned(f"reward {self.__name__!r}", returned, count)

    checked.unchecked = call  # type: ignore[attr-defined]
    return checked


def _check_returned(who: str, returned: Any, count: int) -> list[float | None]:
    """Return the returned list with its numbers as floats.

    Raises:
        RewardError: It is not a list with one finite number, or None, for each completion.
    """
    expected = "return a list of one float for each completion"
    if not isinstance(returned, list):
        raise RewardError(f"{who} returned {describe_kind(returned)}; {expected}", code="invalid_score")
    if len(returned) != count:
        raise RewardError(
            f"{who} returned {len(returned)} values for {count} completions; {expected}", code="invalid_score"
        )
    values: list[float | None] = []
    for place, value in enumerate(returned):
        number = None if value is None else to_number(value)
        if isinstance(number, str):
            raise RewardError(
                f"{who}: for completion {place}, counted from 0, it {number}; {expected}", code="invalid_score"
            )
        values.append(number)
    return values


# --- functions that pickle -------------------------------------------------------------------------------------------
#
# Python pickles a function as the name of its module and its name there. So the function of a reward gets a name in
# this module that encodes the reward itself. `__getattr__` decodes the name. It returns the same function in this
# process, and makes a new one in another process.

_PREFIX = "reward_"
_functions: "weakref.WeakValueDictionary[str, FunctionType]" = weakref.WeakValueDictionary()


def _make_picklable(function: Any, reward: BaseReward) -> None:
    try:
        name = _PREFIX + base64.urlsafe_b64encode(zlib.compress(_dump(reward))).decode()
    except Exception:  # the reward holds something that cannot be pickled, so its function cannot be either
        return
    function.__module__, function.__qualname__ = __name__, name
    _functions[name] = function


def __getattr__(name: str) -> Any:
    if not name.startswith(_PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if (known_function := _functions.get(name)) is not None:
        return known_function
    function = _load(zlib.decompress(base64.urlsafe_b64decode(name.removeprefix(_PREFIX)))).as_fn()
    function.__qualname__ = name
    _functions[name] = function  # type: ignore[assignment]
    return function


def _dump(reward: BaseReward) -> bytes:
    """Return the pickled reward, with the file that defines its class if an import would not find the class."""
    module = inspect.getmodule(type(reward))
    file = str(module.__file__) if module is not None and loading.is_loaded_file(module) else None
    return pickle.dumps((file, pickle.dumps(reward)))


def _load(data: bytes) -> BaseReward:
    file, dumped = pickle.loads(data)
    if file is not None:
        loading.load_file(Path(file))
    reward: BaseReward = pickle.loads(dumped)
    return reward
