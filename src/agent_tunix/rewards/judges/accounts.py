"""Accounts of judges: tokens, cost and time, for one score and in total."""

from dataclasses import dataclass, fields
from typing import Any


@dataclass(slots=True)
class Receipt:
    """Account of the questions behind a score. A cached reply costs nothing."""

    questions: int = 0
    cache_hits: int = 0  # questions answered from the cache, or by an equal question in progress
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens that were in the endpoint's prompt cache
    cost: float = 0.0  # price of all requests; 0 if prices are unknown
    latency_s: float = 0.0  # duration of the requests that succeeded

    def add(self, other: "Receipt") -> None:
        """Add another account."""
        for item in fields(Receipt):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_extras(self) -> dict[str, Any]:
        """Return the account as extras of a score."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost": self.cost,
            "requests": self.requests,
            "latency_s": round(self.latency_s, 3),
            "cached": 0 < self.questions == self.cache_hits,
        }


@dataclass(slots=True)
class JudgeTally(Receipt):
    """Sum of the accounts of a judge, in total or for a step."""

    failures: int = 0
    latency_max_s: float = 0.0

    def count(self, receipt: Receipt, *, failed: bool) -> None:
        """Add the account of one question, which may have failed."""
        self.add(receipt)
        self.failures += failed
        self.latency_max_s = max(self.latency_max_s, receipt.latency_s)

    def metrics(self) -> dict[str, float]:
        """Return the sums by name. `latency_mean_s` excludes cached verdicts."""
        verdicts = self.questions - self.failures
        return {
            "verdicts": verdicts,
            "failures": self.failures,
            "cache_hits": self.cache_hits,
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "cost": self.cost,
            "latency_mean_s": self.latency_s / max(1, verdicts - self.cache_hits),
            "latency_max_s": self.latency_max_s,
        }
