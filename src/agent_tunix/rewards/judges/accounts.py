"""Accounts of judges: tokens, cost and time, for one verdict and in total."""

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply, or the sum over several."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens that were in the endpoint's prompt cache
    is_estimated: bool = False  # True if the endpoint reported none; they are then estimated from characters

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.is_estimated or other.is_estimated,
        )


@dataclass(slots=True)
class Receipt:
    """Account of one verdict. A cached verdict costs nothing."""

    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0  # price of all its requests; 0 if prices are unknown
    requests: int = 0
    latency_s: float = 0.0  # duration of the request that succeeded
    is_cached: bool = False  # True if the verdict came from the cache, or from an equal question in progress


@dataclass(slots=True)
class JudgeTally:
    """Sum of receipts."""

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
        """Return the sums by name. `latency_mean_s` excludes cached verdicts."""
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
    """Tallies of a judge in this process: in total, and for the current step."""

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
        """Return the tally of all verdicts."""
        with self._lock:
            return self._all.metrics()

    def take_step(self) -> dict[str, float]:
        """Return the tally since the last call."""
        with self._lock:
            step, self._step = self._step, JudgeTally()
        return step.metrics()
