"""Model directories on this disk: what is refused before anything is loaded, and what is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.raising import raises

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.files.directory import (
    EMBEDDED_MODEL,
    EMBEDDED_MODELS,
    find_cached_directory,
    find_model_directory,
)
from agent_tunix.policy.files.location import parse_location

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Damage = Callable[[Path], object]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_MODEL, tmp_path / "model"))


def append(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def break_link(path: Path) -> None:
    """As a cache does whose files were cleared away under a snapshot of links."""
    path.unlink()
    path.symlink_to(path.parent / "blobs" / "gone")


DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "half a shard": (lambda d: cut(d / WEIGHTS, 100_000), "damaged_weights", WEIGHTS),
    "half a header": (lambda d: cut(d / WEIGHTS, 50), "damaged_weights", WEIGHTS),
    "a page of the web": (lambda d: (d / WEIGHTS).write_text("<html>" * 100), "damaged_weights", WEIGHTS),
    "bytes at the end": (lambda d: append(d / WEIGHTS, b"x"), "damaged_weights", WEIGHTS),
    "a link to nothing": (lambda d: break_link(d / WEIGHTS), "damaged_weights", "a link to a file that does not exist"),
    "a shard is missing": (
        lambda d: (d / INDEX).write_text(json.dumps({"weight_map": {"a": "model-00002-of-00002.safetensors"}})),
        "damaged_weights",
        "model-00002-of-00002.safetensors",
    ),
    "half an index": (lambda d: (d / INDEX).write_text('{"weight_map": {'), "damaged_weights", INDEX),
    "an index of a list": (lambda d: (d / INDEX).write_text("[]"), "damaged_weights", INDEX),
    "an index of nothing": (lambda d: (d / INDEX).write_text("{}"), "damaged_weights", INDEX),
    "an index of a number": (lambda d: (d / INDEX).write_text('{"weight_map": 3}'), "damaged_weights", INDEX),
    "no weights": (lambda d: (d / WEIGHTS).unlink(), "damaged_weights", "*.safetensors"),
    "weights of PyTorch": (
        lambda d: (d / WEIGHTS).rename(d / "pytorch_model.bin"),
        "damaged_weights",
        "must have its weights in *.safetensors, but has pytorch_model.bin",
    ),
    "no configuration": (lambda d: (d / "config.json").unlink(), "invalid_model_config", "no config.json"),
    "no directory": (shutil.rmtree, "invalid_model", "model"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_directory_is_refused_by_name(case: str, directory: Path) -> None:
    damage, code, said = DAMAGES[case]
    damage(directory)
    with raises(ModelError, code) as caught:
        find_model_directory(ModelConfig(path=str(directory)))
    assert said in str(caught.value)
    assert find_cached_directory(ModelConfig(path=str(directory))) is None


def test_an_adapter_is_no_model(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory / "adapter_model.safetensors")
    (directory / "config.json").rename(directory / "adapter_config.json")
    with raises(ModelError, "adapter_mismatch"):
        find_model_directory(ModelConfig(path=str(directory)))


def test_a_whole_directory_is_found(directory: Path) -> None:
    assert find_model_directory(ModelConfig(path=str(directory))) == directory
    assert find_cached_directory(ModelConfig(path=str(directory))) == directory


def test_without_a_path_the_embedded_model_is_meant() -> None:
    assert find_model_directory(ModelConfig()) == EMBEDDED_MODEL


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_an_embedded_model_is_found_by_its_name(name: str) -> None:
    config = ModelConfig(path=f"embedded:{name}")
    assert find_model_directory(config) == find_cached_directory(config) == EMBEDDED_MODELS[name]


def test_an_unknown_embedded_model_is_refused() -> None:
    with raises(ModelError, "invalid_model") as caught:
        find_model_directory(ModelConfig(path="embedded:tiny"))
    assert "embedded:tiny_tools" in str(caught.value)


@pytest.mark.parametrize(
    ("path", "name", "revision"),
    [
        ("hf://Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None),
        ("hf://owner/name@refs/pr/3", "owner/name", "refs/pr/3"),
        ("HF://owner/name", "owner/name", None),
        ("kaggle://google/gemma-3/transformers/1b", "google/gemma-3/transformers/1b", None),
        ("kaggle://google/gemma-3/transformers/1b/2", "google/gemma-3/transformers/1b", "2"),
        ("gs://bucket/some/dir/", "bucket/some/dir", None),
        ("gs://bucket/dir@0123456789abcdef", "bucket/dir", "0123456789abcdef"),
        ("gs://bucket/d@te", "bucket/d@te", None),
    ],
)
def test_an_address_is_read_and_written_alike(path: str, name: str, revision: str | None) -> None:
    location = parse_location(path)
    assert location is not None
    assert (location.name, location.revision) == (name, revision)
    assert parse_location(str(location)) == location


@pytest.mark.parametrize("path", [None, "", "model", "/models/x", "~/models/x", "C:/models", "owner/name", "./a:b/c"])
def test_a_directory_is_no_address(path: str | None) -> None:
    assert parse_location(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "hf://",
        "hf://name",
        "hf://a/b/c",
        "hf://a/b@",
        "hf://a b/c",
        "kaggle://a/b/c",
        "gs://b",
        "gs:///d",
        "http://169.254.169.254/latest",
        "hf://owner/..",
        "hf://owner/name@../../../etc",
        "gs://bucket/../../x",
        "gs://bucket/./x@0123456789abcdef",
    ],
)
def test_an_address_of_nothing_is_refused(path: str) -> None:
    with raises(ModelError, "invalid_address"):
        parse_location(path)
