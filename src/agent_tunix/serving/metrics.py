"""Counters of a server, in Prometheus' text format."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_tunix.sampling.requests import TokenReply

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class ServerMetrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._answers = Counter("agent_tunix_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.running = Gauge("agent_tunix_requests_running", "Requests without an answer so far.", registry=registry)
        self._seconds = Histogram(
            "agent_tunix_request_seconds",
            "Time to the end of the answer.",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "agent_tunix_first_byte_seconds", "Time to its beginning.", ["path"], buckets=_SECONDS, registry=registry
        )
        self._replies = Counter("agent_tunix_replies", "Sampled replies.", ["finish_reason"], registry=registry)
        self._tokens = Counter("agent_tunix_tokens", "Tokens of prompts and replies.", ["kind"], registry=registry)

    def count_reply(self, prompt_length: int, reply: TokenReply) -> None:
        """Count a reply and its tokens."""
        self._replies.labels(reply.finish_reason).inc()
        self._tokens.labels("prompt").inc(prompt_length)
        self._tokens.labels("cached").inc(reply.num_cached)
        self._tokens.labels("sampled").inc(len(reply.tokens))

    def count_answer(self, path: str, status: int, first_s: float, seconds: float) -> None:
        """Count an answer by its path and status."""
        self._answers.labels(path, str(status)).inc()
        self._first.labels(path).observe(first_s)
        self._seconds.labels(path).observe(seconds)

    def render(self) -> bytes:
        """Return all counters as text."""
        return generate_latest(self.registry)


class CountAnswers:
    """Middleware that counts the answers to the paths that an app has."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, paths: frozenset[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the app, and count its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, started = 499, time.monotonic()  # 499: the client left
        first = started

        async def note(message: Message) -> None:
            nonlocal status, first
            if message["type"] == "http.response.start":
                status, first = message["status"], time.monotonic()
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        with self._metrics.running.track_inprogress():
            try:
                await self._app(scope, receive, note)
            finally:
                self._metrics.count_answer(path, status, first - started, time.monotonic() - started)
