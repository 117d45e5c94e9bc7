"""What a reward says while it scores belongs to its completion, whichever call is under way beside it."""

import contextvars
import types
from collections.abc import Generator

from agent_tunix.rewards.conventions.capture import attributed


@types.coroutine
def pause() -> Generator[None]:
    yield


def test_a_call_that_was_given_up_may_be_closed_in_another_context() -> None:
    """As the garbage collector does with one that could not be cancelled, in whatever context it runs."""

    async def call() -> None:
        with attributed():
            await pause()

    coroutine = call()
    contextvars.copy_context().run(coroutine.send, None)
    with attributed() as lines:
        coroutine.close()
        print("not heard, for nobody listens")
    assert lines == []
