"""Arguments of judges and reward models, which pydantic checks. Importing this module imports pydantic."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agent_tunix.errors import RewardError

A = TypeVar("A", bound="RewardArguments")

Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
# One name or several.
Names = Annotated[list[Text], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


class RewardArguments(BaseModel):
    """Base class of arguments. Types are exact: true is no number, and `"3"` no integer."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def read_arguments(kind: type[A], name: str, args: Mapping[str, Any]) -> A:
    """Return the checked arguments of the reward `name`. None stands for the default.

    Raises:
        RewardError: An argument is missing (`missing_argument`), unknown (`unknown_argument`) or malformed
            (`invalid_argument`).
    """
    try:
        return kind.model_validate({key: value for key, value in args.items() if value is not None})
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
    place, message = ".".join(map(str, error["loc"])), error["msg"]
    if error["type"] == "missing":
        raise RewardError(f"reward {name!r} requires `{place}`; set it in its args", code="invalid_reward_args")
    if error["type"] == "extra_forbidden":
        choices = f"; it has: {', '.join(kind.model_fields)}" if len(error["loc"]) == 1 else ""
        raise RewardError(f"reward {name!r} has no argument {place!r}{choices}", code="invalid_reward_args")
    if error["type"] == "value_error":  # from a validator of ours, whose message does not repeat a secret
        message = message.removeprefix("Value error, ")
    elif error["type"] == "string_pattern_mismatch":  # of `Text`
        message = f"it must not be empty, as {error['input']!r} is"
    else:
        message = f"{message[0].lower()}{message[1:]}, not {error['input']!r}"
    argument = f"argument `{place}`" if place else "combination of arguments"
    raise RewardError(f"reward {name!r} has an invalid {argument}: {message}", code="invalid_reward_args")
