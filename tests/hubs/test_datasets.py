"""Promises about datasets that one hub alone makes."""

import datetime
import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.pinning import pin_data
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.hubs.gsm8k import TEST, TRAIN, as_jsonl, as_parquet
from tests.hubs.loopback_hub import TOKEN, LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle, Resource
from tests.raising import raises

REPO = "owner/sums"
CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main-train-*.parquet}
  - {split: test, path: main-test-*.parquet}
- config_name: socratic
  data_files:
  - {split: train, path: socratic-train-*.parquet}
---
"""
FILES = {
    "README.md": CARD.encode(),
    "main-train-00000-of-00001.parquet": as_parquet(TRAIN),
    "main-test-00000-of-00001.parquet": as_parquet(TEST),
    "socratic-train-00000-of-00001.parquet": as_parquet(TRAIN[:1]),
}
MOVED_ON = {"main-train-00000-of-00001.parquet": as_parquet(TEST)}


def config_of(path: str | None = REPO, source: str = "huggingface", **data: Any) -> Config:
    return Config(data=DataConfig(**{"source": source, "path": path, "subset": "main", **data}))


def rows_of(config: Config, split: Any = "train") -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(config, split, Dropped())]


def refusal(code: str, config: Config, split: Any = "train") -> str:
    with raises(DataError, code) as caught:
        rows_of(config, split)
    return str(caught.value)


@pytest.mark.parametrize("streaming", [False, True])
def test_subsets_and_splits(dataset_hub: LoopbackHub, streaming: bool) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    assert rows_of(config_of(streaming=streaming)) == TRAIN
    assert rows_of(config_of(streaming=streaming), "test") == TEST
    assert rows_of(config_of(subset="socratic", streaming=streaming)) == TRAIN[:1]
    for subset in (None, "mian"):
        message = refusal("unknown_subset", config_of(subset=subset, streaming=streaming))
        assert "'main', 'socratic'; name one of them with data.subset" in message
    message = refusal("missing_data", config_of(subset="socratic", streaming=streaming), "test")
    assert "it has 'train'" in message
    assert "data.test_split, or set training.train_fraction=0.9" in message


def test_training_data_source_and_directories_override(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    config = config_of("nowhere", source="jsonl")
    config.training = TrainingConfig(data_source="huggingface", train_data_dir=REPO)
    dropped = Dropped()
    assert [row.columns for row in read_rows(config, "train", dropped)] == TRAIN
    assert dropped.origin == f"train of hf://{REPO}@{repository.head}"
    assert pin_data(config) == config


@pytest.mark.parametrize("streaming", [False, True])
def test_values_are_untouched_and_plain_python(dataset_hub: LoopbackHub, streaming: bool) -> None:
    row = {
        "question": "q é",
        "level": 3,
        "score": 0.5,
        "ok": True,
        "none": None,
        "when": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "numbers": [[1, 2], []],
        "nested": {"unit": "kg", "parts": [{"n": 1, "t": "x"}, {"n": 2, "t": None}]},
        "raw": b"\xff\x00",
    }
    dataset_hub.add_dataset(REPO, {"train.parquet": as_parquet([row])})
    (found,) = rows_of(config_of(subset=None, streaming=streaming))
    assert found == row
    assert is_plain(found)


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_plain, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(is_plain, value))
    return type(value) in (str, int, float, bool, bytes, type(None), datetime.datetime)


def test_other_formats_and_names_of_splits(dataset_hub: LoopbackHub, kaggle: LoopbackKaggle) -> None:
    dataset_hub.add_dataset(REPO, {"train.jsonl": as_jsonl(TRAIN), "validation.jsonl": as_jsonl(TEST)})
    kaggle.resources[REPO] = Resource([{"train.parquet": as_parquet(TRAIN), "validation.parquet": as_parquet(TEST)}])
    for source in ("huggingface", "kaggle"):
        config = config_of(source=source, subset=None, test_split="validation")
        assert rows_of(config) == TRAIN
        assert rows_of(config, "test") == TEST


def test_a_directory_on_this_disk(tmp_path: Path, dataset_hub: LoopbackHub) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert rows_of(config_of(str(tmp_path))) == TRAIN
    assert dataset_hub.asked == []


@pytest.mark.parametrize("several", [False, True])
def test_a_directory_that_the_library_saved(tmp_path: Path, several: bool) -> None:
    rows = datasets.Dataset.from_list(TRAIN)
    saved = datasets.DatasetDict(train=rows) if several else rows
    saved.save_to_disk(str(tmp_path / "saved"))
    config = config_of(str(tmp_path / "saved"))
    assert rows_of(config) == TRAIN
    assert "it has train" in refusal("missing_data", config, "test")


def test_pinning_a_mixture_leaves_sources_without_revisions_alone(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    mixture: dict[str, dict[str, Any]] = {"a": {"path": f"hf://{REPO}", "weight": 2.0}, "b": {"path": None}}
    config = config_of(None, source="auto", mixture=mixture)
    pinned = pin_data(config)
    assert pinned.data.mixture == {"a": {**mixture["a"], "revision": repository.head}, "b": {"path": None}}
    repository.commit({"more.txt": b"x"})
    assert pin_data(config, pinned) == pinned
    for local in (DataConfig(source="synthetic"), DataConfig(source="jsonl", path="rows.jsonl")):
        assert pin_data(Config(data=local)) == Config(data=local)


@pytest.mark.parametrize("restriction", ["gated", "private"])
def test_a_token_opens_what_is_closed(
    dataset_hub: LoopbackHub, restriction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES, **{restriction: True})
    assert "no token " in refusal("access_denied" if restriction == "gated" else "not_found", config_of())
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    if restriction == "gated":
        message = refusal("access_denied", config_of())
        assert f"{dataset_hub.url}/datasets/{REPO}" in message
        assert "has no access" in message
        repository.accepted.add(TOKEN)
    assert rows_of(config_of()) == TRAIN


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"sums.py": b"import datasets\n"}, "unsupported_data"),
        ({"train.parquet": as_parquet(TRAIN)[:100]}, "damaged_data"),
    ],
)
def test_files_that_cannot_be_rows(dataset_hub: LoopbackHub, files: dict[str, bytes], code: str) -> None:
    dataset_hub.add_dataset(REPO, files)
    refusal(code, config_of(subset=None))


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("train.jsonl", content)
    return file.getvalue()


@pytest.mark.parametrize("is_local", [False, True])
@pytest.mark.parametrize(("name", "pack"), [("train.jsonl.gz", gzip.compress), ("train.jsonl.zip", zipped)])
def test_a_compressed_file(
    name: str, pack: Callable[[bytes], bytes], is_local: bool, dataset_hub: LoopbackHub, tmp_path: Path
) -> None:
    dataset_hub.add_dataset(REPO, {name: pack(as_jsonl(TRAIN))})
    (tmp_path / name).write_bytes(pack(as_jsonl(TRAIN)))
    assert rows_of(config_of(str(tmp_path) if is_local else REPO, subset=None)) == TRAIN


def test_what_was_read_before_is_had_without_network(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    first = repository.head
    rows_of(config_of())
    rows_of(config_of(subset="socratic"))
    second = repository.commit(MOVED_ON)
    rows_of(config_of())
    dataset_hub.close()
    assert rows_of(config_of(revision=first)) == TRAIN
    assert rows_of(config_of(revision=second)) == rows_of(config_of()) == TEST
    assert rows_of(config_of(subset="socratic", revision=first)) == TRAIN[:1]
    assert "several subsets, main, socratic" in refusal("not_cached", config_of(subset=None, revision=first))
    message = refusal("missing_data", config_of(subset="socratic", revision=first), "test")
    assert "it has in its cache sums-train" in message
    assert "owner___sums does not have it" in refusal("not_cached", config_of(revision="0" * 40))
