"""A served policy whose weights a trainer replaces, with the real model."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jax
import numpy as np
import pytest
from flax import nnx

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.export import write_adapter, write_merged
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.serving.app import create_app
from agent_tunix.serving.policy_server import open_service
from agent_tunix.serving.running import serving
from agent_tunix.serving.settings import PolicySettings
from agent_tunix.training.generation import find_source

PROMPT = list(range(5, 30))


def move(policy: Decoder, size: float, kind: Any = nnx.Param) -> None:
    """Add noise to the weights."""
    random = np.random.default_rng(0)
    for _, leaf in nnx.to_flat_state(nnx.state(policy, kind)):
        noise = random.normal(size=leaf.get_value().shape) * size
        leaf.set_value(jax.device_put(np.asarray(leaf.get_value() + noise, np.float32), leaf.get_value().sharding))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[httpx.Client]:
    settings = PolicySettings(port=0, api_keys=("sesame",), adapter_directories=(str(root),), loads_weights=True)
    run = find_source(str(EMBEDDED_MODEL), None).run
    with (
        open_service(run, 0, settings, max_context=64, num_places=2) as service,
        serving(create_app(service), settings) as url,
        httpx.Client(base_url=url, headers={"Authorization": "Bearer sesame"}, timeout=60) as client,
    ):
        yield client


def complete(client: httpx.Client, model: str = "policy", max_tokens: int = 8) -> dict[str, Any]:
    body = {"model": model, "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "logprobs": 0}
    answer: dict[str, Any] = client.post("/completions", json=body).raise_for_status().json()
    return answer


@pytest.mark.slow
def test_replies_come_from_the_new_weights_and_name_their_version(client: httpx.Client, root: Path) -> None:
    policy = load_policy(EMBEDDED_MODEL, ModelConfig(lora_rank=2), make_mesh([1, 1]))
    (root / "adapter").mkdir()
    write_adapter(policy, EMBEDDED_MODEL, root / "adapter", 2.0, "base")
    client.post("/load_lora_adapter", json={"lora_name": "mine", "lora_path": str(root / "adapter")}).raise_for_status()
    before = complete(client)
    policy = load_policy(EMBEDDED_MODEL, ModelConfig(lora_rank=0), make_mesh([1, 1]))
    move(policy, 0.02)
    (root / "new").mkdir()
    write_merged(policy, EMBEDDED_MODEL, root / "new", 1.0)
    answer = client.post("/load_weights", json={"path": str(root / "new"), "version": 7})
    assert answer.raise_for_status().json() == {"version": 7}
    after = complete(client)
    assert after["system_fingerprint"] == "version-7"
    assert after["choices"][0]["logprobs"] != before["choices"][0]["logprobs"]
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0  # nothing of the old weights is used
    assert [model["id"] for model in client.get("/models").json()["data"]] == ["policy"]
    # The weights come back bit by bit.
    client.post("/load_weights", json={"path": str(root / "new"), "version": 8}).raise_for_status()
    assert complete(client)["choices"] == after["choices"]


def test_requests_that_are_answered_end_with_the_weights_they_began_with(client: httpx.Client, root: Path) -> None:
    policy = load_policy(EMBEDDED_MODEL, ModelConfig(lora_rank=0), make_mesh([1, 1]))
    (root / "old").mkdir()
    write_merged(policy, EMBEDDED_MODEL, root / "old", 1.0)
    client.post("/load_weights", json={"path": str(root / "old"), "version": 9}).raise_for_status()
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda: seen.append(complete(client, max_tokens=30)["system_fingerprint"]))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    client.post("/load_weights", json={"path": str(root / "old"), "version": 10}).raise_for_status()
    last = complete(client)["system_fingerprint"]
    for thread in threads:
        thread.join()
    assert set(seen) <= {"version-9", "version-10"}
    assert last == "version-10"


def test_weights_of_another_model_are_refused_and_the_old_ones_stay(client: httpx.Client, root: Path) -> None:
    before = complete(client)["choices"]
    (root / "empty").mkdir()
    assert client.post("/load_weights", json={"path": str(root / "empty"), "version": 11}).status_code == 400
    assert client.post("/load_weights", json={"path": str(root.parent), "version": 11}).status_code == 403
    assert complete(client)["choices"] == before
