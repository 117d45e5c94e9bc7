"""What judging took: tokens, money and time, of one verdict and of all."""

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply, or of several added up.

    Attributes:
        prompt_tokens: Tokens that were sent.
        completion_tokens: Tokens that came back.
        cached_tokens: Those of the prompt that the endpoint had in its prompt cache.
        is_estimated: Whether the endpoint did not say, so that they are counted from characters.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.is_estimated or other.is_estimated,
        )


@dataclass(slots=True)
class Receipt:
    """What one verdict took; a verdict from the cache took nothing.

    Attributes:
        usage: Tokens of all its requests.
        cost: Their price; 0 where no prices are known.
        requests: How many were sent, failed ones included.
        latency_s: How long the request took that was answered.
        is_cached: Whether it came from the cache, or from an equal question that was already under way.
    """

    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    requests: int = 0
    latency_s: float = 0.0
    is_cached: bool = False


@dataclass(slots=True)
class JudgeTally:
    """Receipts added up."""

    verdicts: int = 0
    failures: int = 0
    cache_hits: int = 0
    requests: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    latency_s: float = 0.0
    latency_max_s: float = 0.0

    def add(self, receipt: Receipt, *, failed: bool) -> None:
        """Count one verdict, or the failure to get it."""
        self.verdicts += not failed
        self.failures += failed
        self.cache_hits += receipt.is_cached
        self.requests += receipt.requests
        self.usage += receipt.usage
        self.cost += receipt.cost
        self.latency_s += receipt.latency_s
        self.latency_max_s = max(self.latency_max_s, receipt.latency_s)

    def metrics(self) -> dict[str, float]:
        """By name; `latency_mean_s` is over verdicts that were asked for."""
        asked = self.verdicts - self.cache_hits
        return {
            "verdicts": self.verdicts,
            "failures": self.failures,
            "cache_hits": self.cache_hits,
            "requests": self.requests,
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.completion_tokens,
            "cached_tokens": self.usage.cached_tokens,
            "cost": self.cost,
            "latency_mean_s": self.latency_s / asked if asked > 0 else 0.0,
            "latency_max_s": self.latency_max_s,
        }


class Totals:
    """What a judge took in this process: so far, and since a step was last closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = JudgeTally()
        self._step = JudgeTally()

    def add(self, receipt: Receipt, *, failed: bool) -> None:
        """Count one verdict, or the failure to get it."""
        with self._lock:
            self._all.add(receipt, failed=failed)
            self._step.add(receipt, failed=failed)

    def metrics(self) -> dict[str, float]:
        """What it took so far."""
        with self._lock:
            return self._all.metrics()

    def take_step(self) -> dict[str, float]:
        """What it took since this was last called."""
        with self._lock:
            step, self._step = self._step, JudgeTally()
        return step.metrics()
