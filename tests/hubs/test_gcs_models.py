"""Models from Google Cloud Storage."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_cached_directory, find_model_directory, pin_model
from tests.hubs.loopback_gcs import LoopbackGcs

pytest.importorskip("google.cloud.storage", reason="needs the extra gcs")

TINY = {path.name: path.read_bytes() for path in EMBEDDED_MODEL.iterdir()}
CONFIG = ModelConfig(path="gs://bucket/models/tiny")


@pytest.fixture
def gcs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackGcs]:
    """A bucket with the tiny model, and an empty cache."""
    server = LoopbackGcs()
    server.buckets["bucket"] = {f"models/tiny/{name}": content for name, content in TINY.items()}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("agent_tunix.hubs.google_storage.RETRY_S", 0.2)
    yield server
    server.close()


def refusal(config: ModelConfig = CONFIG) -> str:
    with pytest.raises(ModelError) as caught:
        find_model_directory(config)
    return str(caught.value)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_needed_file_arrives_byte_for_byte(gcs: LoopbackGcs) -> None:
    gcs.buckets["bucket"] |= {"models/tiny/notes.txt": b"x", "models/tiny/onnx/model.bin": b"x", "models/tiny2/a": b"x"}
    assert contents(find_model_directory(CONFIG)) == TINY
    assert find_model_directory(ModelConfig(path="gs://bucket/models/tiny/")).is_dir()


def test_a_second_call_downloads_nothing(gcs: LoopbackGcs) -> None:
    pinned = pin_model(CONFIG)
    first = find_model_directory(pinned)
    gcs.downloads.clear()
    assert find_model_directory(pinned) == first
    assert find_cached_directory(pinned) == first
    assert gcs.downloads == []


def test_pinning_names_the_state_and_keeps_it(gcs: LoopbackGcs) -> None:
    pinned = pin_model(CONFIG)
    find_model_directory(pinned)
    gcs.buckets["bucket"]["models/tiny/generation_config.json"] = b"{}"
    assert pin_model(CONFIG, pinned) == pinned
    assert contents(find_model_directory(pinned)) == TINY
    assert pin_model(CONFIG) != pinned
    assert contents(find_model_directory(CONFIG))["generation_config.json"] == b"{}"


def test_a_state_that_is_gone(gcs: LoopbackGcs) -> None:
    pinned = pin_model(CONFIG)
    gcs.buckets["bucket"]["models/tiny/generation_config.json"] = b"{}"
    assert "has other files now than those named by" in refusal(pinned)


def test_an_interrupted_download_is_taken_up(gcs: LoopbackGcs) -> None:
    gcs.damaged.add("models/tiny/tokenizer.json")
    assert "did not arrive whole" in refusal()
    gcs.damaged.clear()
    gcs.downloads.clear()
    assert contents(find_model_directory(CONFIG)) == TINY
    assert "models/tiny/tokenizer.json" in gcs.downloads
    assert len(gcs.downloads) < len(TINY)


def test_no_such_bucket_and_no_such_directory(gcs: LoopbackGcs) -> None:
    assert "model.path=gs://none/tiny was not found" in refusal(ModelConfig(path="gs://none/tiny"))
    assert "holds no files; correct the bucket" in refusal(ModelConfig(path="gs://bucket/none"))


@pytest.mark.parametrize("status", [401, 403])
def test_no_right_to_read(gcs: LoopbackGcs, status: int) -> None:
    gcs.status = status
    message = refusal()
    assert "was refused (" in message
    assert "gcloud auth application-default login" in message


def test_weights_in_another_form(gcs: LoopbackGcs) -> None:
    files = gcs.buckets["bucket"]
    files["models/tiny/pytorch_model.bin"] = files.pop("models/tiny/model.safetensors")
    assert "has its weights in pytorch_model.bin" in refusal()


def test_no_network_and_no_copy(gcs: LoopbackGcs) -> None:
    gcs.close()
    message = refusal()
    assert "cannot be had from Google Cloud Storage" in message
    assert "no copy of it is in" in message


def test_no_network_but_a_copy(gcs: LoopbackGcs, caplog: pytest.LogCaptureFixture) -> None:
    directory = find_model_directory(CONFIG)
    gcs.close()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert find_model_directory(CONFIG) == directory
    assert "the cached copy in" in caplog.text
