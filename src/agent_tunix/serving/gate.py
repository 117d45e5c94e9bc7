"""Access to the server: keys of its operator, and keys of rollouts."""

import hashlib
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_tunix.errors import AgentTunixError
from agent_tunix.serving.recorder import RolloutCalls, RolloutRecorder
from agent_tunix.web.problems import Problem

# Paths for programs that watch a server or describe it.
OPEN_PATHS = ("/health", "/openapi.json")


class KeyGate:
    """Middleware that requires a key where there are any, and puts the rollout of a key into the request's state.

    Without keys and without a recorder, every request passes: such a server listens on this machine alone.
    """

    def __init__(
        self,
        app: ASGIApp,
        api_keys: Iterable[str],
        recorder: RolloutRecorder | None,
    ) -> None:
        self._app = app
        self._digests = frozenset(map(_digest, api_keys))
        self._recorder = recorder

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the key, then call the app."""
        rollout = None
        if scope["type"] == "http":
            rollout = None if scope["path"] in OPEN_PATHS else self._admit(scope)
            scope.setdefault("state", {})["rollout"] = rollout
        try:
            await self._app(scope, receive, send)
        except (Problem, AgentTunixError) as error:
            if rollout is not None:
                rollout.note_refusal(error)
            raise

    def _admit(self, scope: Scope) -> RolloutCalls | None:
        scheme, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")
        secret = secret.strip() if scheme.lower() == "bearer" else ""
        if self._recorder is not None and secret and (rollout := self._recorder.rollout(secret)) is not None:
            return rollout
        # A digest says nothing of a key by the time that its comparison takes.
        if (secret and _digest(secret) in self._digests) or not (self._digests or self._recorder is not None):
            return None
        if not secret:
            raise Problem(401, "missing_key", "a key is required: send the header `Authorization: Bearer KEY`")
        raise Problem(401, "invalid_api_key", "the key is not one of this server; check OPENAI_API_KEY")


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
