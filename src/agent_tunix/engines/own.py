"""Routes of agent_tunix's own served policy (`agent-tunix serve-policy`), which follow vLLM's."""

from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines import replies
from agent_tunix.engines.http import call
from agent_tunix.engines.vllm import VllmWire
from agent_tunix.sampling.requests import TokenRequest


class OwnWire(VllmWire):
    """The routes of agent_tunix; see `Wire`.

    Its log-probabilities are those of the training loss whatever the filters, and it tells the version of its weights.
    """

    kind: ClassVar[str] = "agent_tunix"

    async def _read_version(self, client: httpx.AsyncClient) -> str:
        return ""

    def _refuse(self, request: TokenRequest) -> None:
        replies.refuse_further_logps(request, self.kind)

    def _filters(self, request: TokenRequest) -> dict[str, Any]:
        filters = {"top_k": request.top_k or 0, "top_p": request.top_p, "min_p": request.min_p}
        return super()._filters(request) | filters

    def _version_of(self, answer: dict[str, Any]) -> int:
        return int(str(answer["system_fingerprint"]).removeprefix("version-"))

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        answer = await call(client, "POST", "/v1/load_weights", {"path": str(directory), "version": version})
        with replies.reading(client):
            if answer["version"] != version:
                raise ValueError(f"version {answer['version']!r:.80} after version {version} was loaded")
