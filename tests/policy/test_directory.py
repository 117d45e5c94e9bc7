"""Model directories on this disk: what is refused before anything is loaded, and what is not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_cached_directory, find_model_directory
from agent_tunix.policy.location import parse_location

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


DAMAGES: dict[str, tuple[Damage, str]] = {
    "half a shard": (lambda d: cut(d / WEIGHTS, 100_000), r"is damaged or half downloaded \(100,000 bytes, where its"),
    "all but a byte": (lambda d: cut(d / WEIGHTS, (d / WEIGHTS).stat().st_size - 1), "where its header says"),
    "half a header": (lambda d: cut(d / WEIGHTS, 50), "whose header is damaged"),
    "an empty shard": (lambda d: cut(d / WEIGHTS, 0), "whose header is damaged"),
    "a page of the web": (lambda d: (d / WEIGHTS).write_text("<html>" * 100), "whose header is damaged"),
    "a pointer of Git LFS": (lambda d: (d / WEIGHTS).write_text("version https://git-lfs"), "whose header is damaged"),
    "bytes at the end": (lambda d: append(d / WEIGHTS, b"x"), "where its header says"),
    "a shard is missing": (
        lambda d: (d / INDEX).write_text(json.dumps({"weight_map": {"a": "model-00002-of-00002.safetensors"}})),
        "lacks model-00002-of-00002.safetensors, which its model.safetensors.index.json names",
    ),
    "half an index": (lambda d: (d / INDEX).write_text('{"weight_map": {'), r"index.json is damaged or half"),
    "an index of another form": (lambda d: (d / INDEX).write_text("[]"), r"index.json is damaged or half"),
    "no weights": (lambda d: (d / WEIGHTS).unlink(), r"has no \*.safetensors file; is the download complete"),
    "weights of PyTorch": (
        lambda d: (d / WEIGHTS).rename(d / "pytorch_model.bin"),
        r"has its weights in pytorch_model.bin and not in \*.safetensors, which alone is read; convert them",
    ),
    "no configuration": (lambda d: (d / "config.json").unlink(), "has no config.json; give a Hugging Face model"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_directory_is_refused_by_name(case: str, directory: Path) -> None:
    damage, message = DAMAGES[case]
    damage(directory)
    with pytest.raises(ModelError, match=message):
        find_model_directory(ModelConfig(path=str(directory)))
    assert find_cached_directory(ModelConfig(path=str(directory))) is None


def test_an_adapter_is_no_model(directory: Path) -> None:
    (directory / WEIGHTS).rename(directory / "adapter_model.safetensors")
    (directory / "config.json").rename(directory / "adapter_config.json")
    with pytest.raises(ModelError, match="holds an adapter, not a model; merge it into its base"):
        find_model_directory(ModelConfig(path=str(directory)))


def test_a_whole_directory_is_found(directory: Path) -> None:
    assert find_model_directory(ModelConfig(path=str(directory))) == directory
    assert find_cached_directory(ModelConfig(path=str(directory))) == directory


@pytest.mark.parametrize(
    ("path", "name", "revision"),
    [
        ("hf://Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None),
        ("hf://owner/name@v1.0", "owner/name", "v1.0"),
        ("hf://owner/name@refs/pr/3", "owner/name", "refs/pr/3"),
        ("HF://owner/name", "owner/name", None),
        ("kaggle://google/gemma-3/transformers/1b", "google/gemma-3/transformers/1b", None),
        ("kaggle://google/gemma-3/transformers/1b/2", "google/gemma-3/transformers/1b", "2"),
        ("gs://bucket/some/dir", "bucket/some/dir", None),
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
        "http://x/y",
    ],
)
def test_an_address_of_nothing_is_refused(path: str) -> None:
    with pytest.raises(ModelError, match=r"model\.path="):
        parse_location(path)
