"""Routes of agent_tunix's own served policy (`agent-tunix serve-policy`), which follow vLLM's."""

from pathlib import Path
from typing import Any, ClassVar

import httpx

from agent_tunix.engines.http import call, reading
from agent_tunix.engines.vllm import VllmWire


class OwnWire(VllmWire):
    """The routes of agent_tunix; see `Wire`.

    Its log-probabilities are those of the training loss whatever the filters, and it tells the version of its weights.
    """

    kind: ClassVar[str] = "agent_tunix"
    _version_path = None
    _has_filters = True

    def _check_model(self, model: dict[str, Any]) -> None:
        if model["owned_by"] != self.kind:
            raise ValueError(f"it is an engine of {model['owned_by']}, not of agent_tunix")

    def _version_of(self, answer: dict[str, Any]) -> int:
        return int(str(answer["system_fingerprint"]).removeprefix("version-"))

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        answer = await call(client, "/v1/load_weights", {"path": str(directory), "version": version})
        with reading(client):
            if answer["version"] != version:
                raise ValueError(f"version {answer['version']!r:.80} is there after version {version} was loaded")
