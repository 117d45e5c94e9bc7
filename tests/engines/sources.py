"""A source of tokens in this process, sampled in a thread, and sources that fail."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from agent_tunix.errors import EngineError
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from agent_tunix.sampling.sampler import Sampler


@contextlib.contextmanager
def continuous(sampler: Sampler, *, max_context: int, num_places: int = 16) -> Iterator[ContinuousSampler]:
    """Sample requests of any thread from a policy."""
    source, stop = ContinuousSampler(sampler, num_places=num_places, max_context=max_context), threading.Event()
    thread = threading.Thread(target=source.serve_forever, args=(stop,))
    thread.start()
    try:
        yield source
    finally:
        stop.set()
        source.wake()
        thread.join()
        source.close()


class FailingSource:
    """Fails the request of a number, and never answers the others.

    Attributes:
        futures: What was promised for each request.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self.futures: list[Future[TokenReply]] = []

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Promise a reply."""
        future: Future[TokenReply] = Future()
        self.futures.append(future)
        if len(self.futures) == self._number:
            future.set_exception(EngineError("no replica answers"))
        return future
