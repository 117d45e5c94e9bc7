"""A source of tokens that says what a script says, to try programs that call a policy without a model."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from agent_tunix.errors import RequestRefusedError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.sampling.requests import TokenReply, TokenRequest


class ScriptedSource:
    """A source of tokens whose replies a function writes.

    Args:
        tokenizer: Tokenizer of the replies. An end-of-sequence token follows each.
        write: Function from a request to the text of its reply.
        max_context: Longest prompt with its reply.
    """

    def __init__(
        self, tokenizer: Tokenizer, write: Callable[[TokenRequest], str], max_context: int = 1_000_000
    ) -> None:
        self._tokenizer = tokenizer
        self._write = write
        self._max_context = max_context
        self._changed = threading.Condition()

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Reply at once; see `TokenSource`."""
        tokens = (*self._tokenizer.encode_prompts([[self._write(request)]])[0], self._tokenizer.eos_ids[0])
        is_cut = len(tokens) > request.max_tokens
        tokens = tokens[: request.max_tokens]
        if len(request.prompt) + len(tokens) > self._max_context:
            raise RequestRefusedError(
                f"prompt and reply may have {self._max_context} tokens together", code="context_length_exceeded"
            )
        reply = TokenReply(tokens, (-1.0,) * len(tokens), "length" if is_cut else "stop")
        if on_part is not None:
            on_part(reply)
        future: Future[TokenReply] = Future()
        future.set_result(reply)
        return future

    def serve_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for a condition, which `wake` looks at."""
        with self._changed:
            self._changed.wait_for(is_done)

    def wake(self) -> None:
        """Let `serve_until` look at its condition."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Do nothing: every request was answered at once."""
