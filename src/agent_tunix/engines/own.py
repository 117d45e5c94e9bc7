"""Routes of agent_tunix's own served policy (`agent-tunix serve-policy`), which follow vLLM's."""

from pathlib import Path
from typing import ClassVar

import httpx

from agent_tunix.engines.http import call, reading
from agent_tunix.engines.vllm import VllmWire


class OwnWire(VllmWire):
    """The routes of agent_tunix; see `Wire`.

    Its log-probabilities are those of the training loss whatever the filters, and it tells the version of its weights.
    """

    kind: ClassVar[str] = "agent_tunix"
    _version_path = None
    _owner = "agent_tunix"
    _has_filters = True

    async def load_weights(self, client: httpx.AsyncClient, directory: Path, version: int) -> None:
        """Let the engine read all weights, and drop what it has cached. Requests that it answers end before."""
        answer = await call(client, "/v1/load_weights", {"path": str(directory), "version": version})
        with reading(client):
            if answer["version"] != version:
                raise ValueError(f"version {answer['version']!r:.80} is there after version {version} was loaded")
