"""Requests for tokens that arrive at any time, as a served policy gets them, and their replies."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A prompt to continue.

    Attributes:
        prompt: Token ids, at least one.
        max_tokens: Maximum tokens to sample.
        temperature: 0 for the likeliest tokens, else above 0.
        top_k: Keep only the k likeliest tokens; None keeps all.
        top_p: Keep the smallest set of tokens with this probability; 1 keeps all.
        min_p: Keep only tokens at least this many times as likely as the likeliest; 0 keeps all.
        seed: Seed of the random numbers. Equal seeds and prompts give equal tokens, whatever else is sampled at the
            time, up to rounding. None draws a seed.
        stop_ids: Further tokens that end the reply, besides the end-of-sequence tokens.
        stop_strings: Strings that end the reply. Their tokens stay.
        num_alternatives: Likeliest tokens to report at each place, from 0 to 20.
        with_prompt_logps: True to report the log-probabilities of the prompt's tokens too.
        adapter: Name of the adapter to sample with; None for the policy itself.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    num_alternatives: int = 0
    with_prompt_logps: bool = False
    adapter: str | None = None


# Pairs (token id, log-probability), likeliest first.
Alternatives = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TokenReply:
    """The continuation of a prompt, or a part of it.

    Attributes:
        tokens: Sampled ids, the one that ended the reply included.
        logps: Log-probability of each at the sampling temperature (1 if greedy) over all words, before top-k, top-p
            and min-p, as the training loss computes it.
        finish_reason: `stop` (an end-of-sequence token, a stop token or a stop string), `length` or `cancelled`; None
            in a part that is not the last.
        version: Number of weight updates of the policy that sampled, from 0.
        num_cached: Tokens of the prompt that were not read again, because their keys and values were kept.
        alternatives: The likeliest tokens at each place, as many as asked for.
        prompt_logps: Log-probability of each token of the prompt, None at the first; empty unless asked for.
        prompt_alternatives: The likeliest tokens at each place of the prompt; empty unless both were asked for.
    """

    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    finish_reason: str | None
    version: int = 0
    num_cached: int = 0
    alternatives: tuple[Alternatives, ...] = ()
    prompt_logps: tuple[float | None, ...] = ()
    prompt_alternatives: tuple[Alternatives, ...] = ()


class TokenSource(Protocol):
    """Something that continues prompts, such as a policy on this machine's devices."""

    def submit(self, request: TokenRequest, on_part: Callable[[TokenReply], None] | None = None) -> Future[TokenReply]:
        """Begin to continue a prompt. May be called from any thread.

        Args:
            request: The prompt.
            on_part: Function that gets each part of the reply as soon as it is sampled, in the sampler's thread.

        Returns:
            The whole reply. Cancelling the future ends the sampling at the next opportunity.

        Raises:
            OverloadedError: Too many requests wait.
            RequestRefusedError: The prompt and `max_tokens` exceed the context, the prompt has unknown ids, or the
                adapter is not loaded.
        """
        ...
