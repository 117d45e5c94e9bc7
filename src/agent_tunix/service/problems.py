"""Problems that the errors of the store and of stored runs become."""

from agent_tunix.errors import (
    AccessDeniedError,
    AgentTunixError,
    NameTakenError,
    NotStoredError,
    StoreError,
    StoreRequestError,
)
from agent_tunix.tracking.rollouts.pages import RolloutQueryError
from agent_tunix.web.problems import Problem, internal_error


def store_unavailable() -> Problem:
    """Return the problem for a database that cannot be used."""
    return Problem(503, "store_unavailable", "the store is unavailable at the moment; try again later")


def problem_of(error: AgentTunixError) -> Problem:
    """Return the problem for an error of the package; errors that may contain internals become general ones."""
    if isinstance(error, RolloutQueryError):
        return Problem(400, error.code, str(error), error.param)
    if not isinstance(error, StoreRequestError):
        if isinstance(error, StoreError):
            return store_unavailable()
        return internal_error()
    status = 400
    if isinstance(error, AccessDeniedError):
        status = 403 if error.code == "insufficient_scope" else 401
    elif isinstance(error, NotStoredError):
        status = 404
    elif isinstance(error, NameTakenError):
        status = 409
    elif error.code == "file_too_large":
        status = 413
    return Problem(status, error.code, str(error), error.param)
