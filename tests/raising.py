"""Expect errors by their code, not by their wording."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from agent_tunix.errors import AgentTunixError

E = TypeVar("E", bound=AgentTunixError)


@contextmanager
def raises(error: type[E], code: str, *facts: str) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect `error`, or one derived from it, with this `code` and these facts in its message.

    Yields:
        What `pytest.raises` does: the exception is in its `value` after the block.
    """
    with pytest.raises(error) as caught:
        yield caught
    assert caught.value.code == code, f"{error.__name__} has the code {caught.value.code!r}: {caught.value}"
    for fact in facts:
        assert fact in str(caught.value)
