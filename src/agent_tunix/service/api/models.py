"""Requests and responses of the API, as its OpenAPI document describes them.

Responses are written from plain values; tests check that they match these models.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from agent_tunix.store.records import Format
from agent_tunix.web.models import Model

ID = "^rf_[a-z2-7]{24}$"
KEY_ID = "^key_[a-z0-9]+$"
# Rows of a try and completions of a row, before the service's own limits: validating a body holds up other requests.
_MOST_ITEMS = 1000
NAME = "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"

Outcome = Literal["scored", "not_applicable", "bad_reference", "error", "timeout"]


class RewardFunction(Model):
    """One uploaded version of a reward function, without its source."""

    id: Annotated[str, Field(pattern=ID, description="Unique id; never reused.")]
    object: Literal["reward_function"]
    name: Annotated[str, Field(pattern=NAME)]
    format: Annotated[Format, Field(description="Calling convention.")]
    created_at: Annotated[
        str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="Time of the upload, ISO 8601, in UTC.")
    ]
    version: Annotated[int, Field(ge=1, description="Version of the name.")]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the file's bytes.")]
    size: Annotated[int, Field(ge=1, description="Size of the file, in bytes.")]
    owner: Annotated[str, Field(pattern=KEY_ID, description="The key that owns the name.")]
    function: Annotated[str, Field(description="Name of the function in the file.")]


class RewardFunctionList(Model):
    """Page of reward functions, newest first."""

    object: Literal["list"]
    data: list[RewardFunction]
    has_more: Annotated[
        bool, Field(description="True if there are older ones: request them with `after` set to the last id.")
    ]


class DeletedRewardFunction(Model):
    """Version that was deleted; its id is not used again."""

    id: Annotated[str, Field(pattern=ID)]
    object: Literal["reward_function"]
    deleted: Literal[True]


class TryRow(Model):
    """Row of a dataset, with completions of its prompt."""

    prompt: str = ""
    completions: Annotated[list[str], Field(min_length=1, max_length=_MOST_ITEMS, fail_fast=True)]
    answer: Annotated[Any, Field(description="The reference; the column `answer`.")] = None
    columns: Annotated[dict[str, Any], Field(description="The row's other columns.")] = {}  # noqa: RUF012  (pydantic copies it)


class TryRequest(Model):
    """Rows on which a function is tried."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"rows": [{"prompt": "What is 2 + 2?", "completions": ["4", "It is four."], "answer": "4"}]}
        }
    )

    rows: Annotated[list[TryRow], Field(min_length=1, max_length=_MOST_ITEMS, fail_fast=True)]
    step: Annotated[int, Field(ge=0, le=1_000_000_000, description="Training step to pass to the function.")] = 0


class TryScore(Model):
    """Score that the function gave one completion."""

    row: Annotated[int, Field(ge=0, description="Index of the row, from 0.")]
    completion: Annotated[int, Field(ge=0, description="Index of the completion in the row, from 0.")]
    value: Annotated[float | None, Field(description="The score; null unless the outcome is `scored`.")]
    outcome: Outcome
    detail: Annotated[str, Field(description="Explanation, for people.")]
    seconds: Annotated[float, Field(ge=0, description="Wall time of the call.")]
    components: Annotated[dict[str, float | None], Field(description="Components, if the function returns several.")]
    metrics: Annotated[dict[str, float], Field(description="Metrics that it logged.")]
    extras: Annotated[dict[str, Any], Field(description="Extras to show with the completion.")]


class TryResult(Model):
    """Scores, in the order of the rows and their completions."""

    object: Literal["try"]
    reward_function: Annotated[str, Field(pattern=ID)]
    data: list[TryScore]
    seconds: Annotated[float, Field(ge=0, description="Total wall time.")]
