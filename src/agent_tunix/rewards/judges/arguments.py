"""Validation of a judge's arguments, with errors that name them."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent_tunix.errors import RewardError


class JudgeArguments:
    """Remaining arguments of a judge. Each `take_…` checks one, removes it and returns it."""

    def __init__(self, judge: str, args: Mapping[str, Any]) -> None:
        self.judge = judge
        self._left = dict(args)
        self._known: list[str] = []

    def take(self, name: str) -> Any:
        """Return an argument unchecked; None if it is not given."""
        self._known.append(name)
        return self._left.pop(name, None)

    def take_text(self, name: str, default: str | None = None, choices: Collection[str] = ()) -> str | None:
        """Return a text, one of `choices` if there are any."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.refusal(name, value, "a text")
        if choices and value not in choices:
            raise self.refusal(name, value, f"one of {', '.join(choices)}")
        return value

    def take_number(self, name: str, default: float, least: float, most: float = math.inf) -> float:
        """Return a number from `least` to `most`."""
        value = self.take_optional_number(name, least, most)
        return default if value is None else value

    def take_optional_number(self, name: str, least: float, most: float = math.inf) -> float | None:
        """Return a number from `least` to `most`, or None."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.refusal(name, value, f"a number {_range(least, most)}")
        if math.isinf(value):
            raise self.refusal(name, value, "a finite number")
        return float(value)

    def take_count(self, name: str, default: int, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        value = self.take_optional_count(name, least)
        return default if value is None else value

    def take_optional_count(self, name: str, least: int = 1) -> int | None:
        """Return an integer of at least `least`, or None."""
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.refusal(name, value, f"a whole number of at least {least}")
        return value

    def take_flag(self, name: str, default: bool) -> bool:
        """Return a Boolean."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(name, value, "true or false")
        return value

    def take_names(self, name: str) -> tuple[str, ...]:
        """Return one name or a list of names as a tuple."""
        value = self.take(name)
        if value is None:
            return ()
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, Sequence) or not all(isinstance(item, str) and item for item in names):
            raise self.refusal(name, value, "a list of names")
        return tuple(dict.fromkeys(names))

    def take_mapping(self, name: str) -> dict[str, Any]:
        """Return a mapping; empty if it is not given."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.refusal(name, value, "a mapping")
        return {str(key): item for key, item in value.items()}

    def require(self, name: str, value: str | None, example: str) -> str:
        """Return the value, or raise an error that says how to give it."""
        if value is None:
            raise RewardError(
                f"judge {self.judge!r} requires `{name}`; set it in its args, for example {example}",
                code="missing_argument",
            )
        return value

    def finish(self) -> None:
        """Raise RewardError if an argument is left that no call took."""
        for name in self._left:
            raise RewardError(
                f"judge {self.judge!r} has no argument {name!r}; it has: {', '.join(sorted(self._known))}",
                code="unknown_argument",
            )

    def refusal(self, name: str, value: object, required: str) -> RewardError:
        """Return the error for an invalid argument."""
        return RewardError(f"judge {self.judge!r}: `{name}` must be {required}, not {value!r}", code="invalid_argument")


def _range(least: float, most: float) -> str:
    return f"of at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
