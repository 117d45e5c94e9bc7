"""A recorder of the calls that agents make: each rollout has a key of its own, which attributes its calls.

An agent's fault stays with its rollout: a rollout has limits, and a call after its end or beyond a limit is refused in
a way that clients do not repeat.
"""

import dataclasses
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future

from agent_tunix.sampling.requests import TokenReply, TokenRequest, TokenSource
from agent_tunix.serving.calls import RecordedCall
from agent_tunix.web.problems import Problem

_KEY = "rollout-"  # beginning of the keys of rollouts, so that a late call is told that its rollout has ended
_NOT_REPEATED = {"x-should-retry": "false"}
# Codes of refusals for a limit that the user of a run sets.
_LIMITS = ("rollout_limit_exceeded", "context_length_exceeded", "context_exceeded")


class RolloutCalls:
    """The calls of a rollout. All methods may be called from any thread.

    Args:
        rollout: Name of the rollout.
        key: Key that its calls carry.
        adjust: Function that changes each request for tokens, for example its sampling parameters and its seed.
        max_calls: Maximum calls.
        max_tokens: Maximum sampled tokens. The last call is shortened to what is left; calls at the same time can
            exceed the limit.
    """

    def __init__(
        self,
        rollout: str,
        key: str,
        adjust: Callable[[TokenRequest], TokenRequest] | None = None,
        max_calls: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.rollout = rollout
        self.key = key
        self._adjust = adjust
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._calls: list[RecordedCall] = []
        self._num_begun = 0
        self._num_sampled = 0
        self._futures: set[Future[TokenReply]] = set()
        self._is_closed = False
        self._refused = ""
        self._met_limit = False

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls, in the order in which they ended."""
        with self._lock:
            return tuple(self._calls)

    @property
    def is_closed(self) -> bool:
        """True if the rollout has ended."""
        return self._is_closed

    @property
    def refused(self) -> str:
        """The reason why the first refused call was refused; "" if none was."""
        return self._refused

    @property
    def met_limit(self) -> bool:
        """True if a call was refused for a limit of calls, tokens or the context."""
        return self._met_limit

    def admit(self) -> None:
        """Count a call.

        Raises:
            Problem: The rollout has ended, or its limit of calls or tokens is reached.
        """
        with self._lock:
            if self._is_closed:
                raise rollout_ended()
            self._num_begun += 1
            if self._max_calls is not None and self._num_begun > self._max_calls:
                raise self._exceeded(f"at most {self._max_calls} calls")
            if self._max_tokens is not None and self._num_sampled >= self._max_tokens:
                raise self._exceeded(f"at most {self._max_tokens} sampled tokens")

    def adjusted(self, request: TokenRequest) -> TokenRequest:
        """Return a request as the rollout adjusts it, within its limit of tokens."""
        if self._adjust is not None:
            request = self._adjust(request)
        if self._max_tokens is not None:
            left = max(self._max_tokens - self._num_sampled, 1)
            request = dataclasses.replace(request, max_tokens=min(request.max_tokens, left))
        return request

    def submit(
        self, source: TokenSource, request: TokenRequest, on_part: Callable[[TokenReply], None] | None
    ) -> Future[TokenReply]:
        """Begin to continue a prompt with a request that was adjusted; see `TokenSource.submit`."""
        future = source.submit(request, on_part)  # outside the lock: the source may have one of its own
        with self._lock:
            self._futures.add(future)
            is_late = self._is_closed
        future.add_done_callback(self._forget)
        if is_late:
            future.cancel()
        return future

    def append(self, call: RecordedCall) -> None:
        """Add a call that has ended. One that ends after the rollout is dropped."""
        with self._lock:
            if not self._is_closed:
                self._calls.append(call)
                self._num_sampled += len(call.tokens)

    def note_refusal(self, error: Exception) -> None:
        """Remember why a call was refused, if it is the first."""
        with self._lock:
            self._refused = self._refused or str(error)
            self._met_limit |= getattr(error, "code", "") in _LIMITS

    def close(self) -> tuple[RecordedCall, ...]:
        """End the rollout: cancel the calls in progress, and return the others."""
        with self._lock:
            self._is_closed = True
            futures, calls = tuple(self._futures), tuple(self._calls)
        for future in futures:
            future.cancel()
        return calls

    def _forget(self, future: Future[TokenReply]) -> None:
        with self._lock:
            self._futures.discard(future)

    def _exceeded(self, limit: str) -> Problem:
        message = f"a rollout may have {limit}, and this one has had them; end it"
        problem = Problem(429, "rollout_limit_exceeded", message, headers=_NOT_REPEATED)
        del problem.headers["Retry-After"]  # many clients that read it would repeat the call
        return problem


class RolloutRecorder:
    """The rollouts of agents, by key. All methods may be called from any thread.

    Args:
        max_calls: Maximum calls of a rollout.
        max_tokens: Maximum sampled tokens of a rollout.
    """

    def __init__(self, max_calls: int | None = None, max_tokens: int | None = None) -> None:
        self._max_calls = max_calls
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self._open: dict[str, RolloutCalls] = {}

    def open(self, rollout: str, adjust: Callable[[TokenRequest], TokenRequest] | None = None) -> RolloutCalls:
        """Begin a rollout; its `key` attributes calls to it."""
        key = f"{_KEY}{secrets.token_urlsafe(24)}"
        calls = RolloutCalls(rollout, key, adjust, self._max_calls, self._max_tokens)
        with self._lock:
            self._open[key] = calls
        return calls

    def rollout(self, key: str) -> RolloutCalls | None:
        """Return the rollout of a key; None for a key that is none of a rollout.

        Raises:
            Problem: The rollout has ended.
        """
        with self._lock:
            calls = self._open.get(key)
        if calls is None and key.startswith(_KEY):
            raise rollout_ended()
        return calls

    def close(self, key: str) -> tuple[RecordedCall, ...]:
        """End a rollout: cancel its calls in progress, and return the others. An unknown key has none."""
        with self._lock:
            calls = self._open.pop(key, None)
        return () if calls is None else calls.close()

    def close_all(self) -> None:
        """End all rollouts."""
        with self._lock:
            keys = list(self._open)
        for key in keys:
            self.close(key)


def rollout_ended() -> Problem:
    """Return the problem for a call after the end of its rollout."""
    return Problem(
        409,
        "rollout_ended",
        "this key is of a rollout that has ended; a call must be made before the agent returns",
        headers=_NOT_REPEATED,
    )
