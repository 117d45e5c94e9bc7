"""Counters of a server, in Prometheus' text format."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent_tunix.sampling.requests import TokenReply

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class ServerMetrics:
    """Counters of one server.

    Attributes:
        running: Replies that are waited for.
        first_seconds: Times to the first tokens of a stream.
        seconds: Times to the end of a reply.
        errors: Refused and failed requests, by the error's code.
    """

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.running = Gauge("agent_tunix_replies_running", "Replies that are waited for.", registry=registry)
        self.first_seconds = Histogram(
            "agent_tunix_first_token_seconds",
            "Time to a stream's first tokens.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.seconds = Histogram(
            "agent_tunix_reply_seconds", "Time to the end of a reply.", buckets=_SECONDS, registry=registry
        )
        self.errors = Counter("agent_tunix_errors", "Refused and failed requests.", ["code"], registry=registry)
        self._replies = Counter("agent_tunix_replies", "Sampled replies.", ["finish_reason"], registry=registry)
        self._tokens = Counter("agent_tunix_tokens", "Tokens of prompts and replies.", ["kind"], registry=registry)

    def count_reply(self, prompt_length: int, reply: TokenReply, seconds: float) -> None:
        """Count a reply, its tokens and its time."""
        self._replies.labels(reply.finish_reason).inc()
        self._tokens.labels("prompt").inc(prompt_length)
        self._tokens.labels("cached").inc(reply.num_cached)
        self._tokens.labels("sampled").inc(len(reply.tokens))
        self.seconds.observe(seconds)

    def render(self) -> bytes:
        """Return all counters as text."""
        return generate_latest(self._registry)
