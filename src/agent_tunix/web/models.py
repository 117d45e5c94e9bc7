"""Models that the OpenAPI documents of our servers share."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MOST_UNKNOWN = 20


class Model(BaseModel):
    """Model with exactly these fields."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_number(cls, data: Any) -> Any:
        """Refuse a body with many unknown keys as a whole, because an error for each takes seconds."""
        if isinstance(data, dict) and len(data) > len(cls.model_fields) + _MOST_UNKNOWN:
            raise ValueError(f"must have at most the fields {', '.join(cls.model_fields)}, not {len(data):,} keys")
        return data


class ErrorDetail(Model):
    """Details of an error."""

    type: Annotated[str, Field(description="The kind of error: it follows from the status.")]
    code: Annotated[str, Field(description="Stable name of the error, for programs.")]
    message: Annotated[str, Field(description="Message for people: what was required, what was given, what to do.")]
    param: Annotated[str | None, Field(description="Part of the request at fault; null: no single part.")]


class ErrorResponse(Model):
    """Shape of every error."""

    error: ErrorDetail
