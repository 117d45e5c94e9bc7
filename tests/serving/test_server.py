"""The server itself: its keys, its metrics, its document, and its end."""

import re
import socket
import threading
from pathlib import Path

import httpx
import openai
import pytest

from agent_tunix.errors import ServiceError
from agent_tunix.serving.settings import PolicySettings
from tests.raising import raises
from tests.service.conformance import run_schemathesis
from tests.serving.routes.test_chat import ask
from tests.serving.support import running


def test_keys_are_required_where_there_are_any() -> None:
    settings = PolicySettings(port=0, api_keys=("sesame",))
    with running(settings=settings) as server:
        server.openai("sesame").models.list()
        with pytest.raises(openai.AuthenticationError):
            server.openai("wrong").models.list()
        with server.http() as client:
            assert client.get("/metrics").status_code == 401
            assert client.get("/health").json() == {"status": "ok"}


def test_metrics_count_requests_and_tokens() -> None:
    with running() as server, server.http() as client:
        server.openai().chat.completions.create(model="policy", messages=ask("hello"))
        lines = client.get("/metrics").text.splitlines()
    request = server.source.requests[0]
    assert 'agent_tunix_replies_total{finish_reason="stop"} 1.0' in lines
    assert f'agent_tunix_tokens_total{{kind="prompt"}} {float(len(request.prompt))}' in lines


def test_the_documented_metrics_are_those_of_the_server() -> None:
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    with running() as server, server.http() as client:
        text = client.get("/metrics").text
    documented = set(re.findall(r"`(agent_tunix_\w+)", page))
    assert documented == set(re.findall(r"# HELP (\w+?)(?:_created)? ", text))


def test_the_end_leaves_no_thread_and_no_socket() -> None:
    before = set(threading.enumerate())
    with running() as server, socket.create_connection(("127.0.0.1", int(server.url.split(":")[2][:-3]))):
        server.openai().chat.completions.create(model="policy", messages=ask("hello"))
    left = {thread for thread in set(threading.enumerate()) - before if thread.name == "policy-server"}
    assert left == set()
    with pytest.raises(httpx.ConnectError), server.http() as client:
        client.get("/health")


def test_an_address_that_others_reach_requires_a_key() -> None:
    with raises(ServiceError, "service_failed"):
        PolicySettings(host="0.0.0.0").check_exposure()
    PolicySettings(host="0.0.0.0", api_keys=("sesame",)).check_exposure()


def test_adapters_come_from_directories_that_are_allowed_and_with_a_key(tmp_path: Path) -> None:
    inside, outside = tmp_path / "adapters" / "a", tmp_path / "b"
    for directory in (inside, outside):
        directory.mkdir(parents=True)
    (tmp_path / "adapters" / "link").symlink_to(outside)
    allowed = (str(tmp_path / "adapters"),)

    def load(directory: object, *keys: str, name: str = "mine", **others: object) -> int:
        settings = PolicySettings(port=0, api_keys=keys, adapter_directories=allowed)
        with running(settings=settings) as server, server.http("sesame") as client:
            body = {"lora_name": name, "lora_path": str(directory), **others}
            return client.post("/v1/load_lora_adapter", json=body).status_code

    assert load(inside, "sesame") == 200
    assert load(inside) == 403
    assert load(outside, "sesame") == 403
    assert load(tmp_path / "adapters" / "link", "sesame") == 403
    assert load(f"{inside}\0", "sesame") == 403
    assert load(inside, "sesame", name="policy") == 409
    assert load(inside, "sesame", load_inplace=True) == 400


def test_a_loaded_adapter_is_a_model_until_it_is_unloaded(tmp_path: Path) -> None:
    settings = PolicySettings(port=0, api_keys=("sesame",), adapter_directories=(str(tmp_path),))
    with running(settings=settings) as server, server.http("sesame") as client:
        client.post("/v1/load_lora_adapter", json={"lora_name": "mine", "lora_path": str(tmp_path)}).raise_for_status()
        assert [model.id for model in server.openai("sesame").models.list()] == ["policy", "mine"]
        server.openai("sesame").completions.create(model="mine", prompt="one")
        assert server.source.requests[-1].adapter == "mine"
        client.post("/v1/unload_lora_adapter", json={"lora_name": "mine"}).raise_for_status()
        with pytest.raises(openai.NotFoundError):
            server.openai("sesame").completions.create(model="mine", prompt="one")
        # All weights are another matter.
        assert client.post("/v1/load_weights", json={"path": str(tmp_path), "version": 1}).status_code == 403


@pytest.mark.slow
def test_schemathesis_finds_no_answer_that_differs_from_the_document(tmp_path: Path) -> None:
    settings = PolicySettings(port=0, api_keys=("sesame",))
    with running(settings=settings) as server:
        seen = run_schemathesis(server.url.removesuffix("/v1"), "sesame", tmp_path, max_examples=10)
    assert seen.holds, seen.text
    assert seen.cases >= 60
