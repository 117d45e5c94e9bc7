"""Models that the OpenAPI documents of our servers share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Model with exactly these fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ErrorDetail(Model):
    """Details of an error."""

    type: Annotated[str, Field(description="The kind of error: it follows from the status.")]
    code: Annotated[str, Field(description="Stable name of the error, for programs.")]
    message: Annotated[str, Field(description="Message for people: what was required, what was given, what to do.")]
    param: Annotated[str | None, Field(description="Part of the request at fault; null: no single part.")]


class ErrorResponse(Model):
    """Shape of every error."""

    error: ErrorDetail
