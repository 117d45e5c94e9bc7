"""Datasets of the Hugging Face hub."""

import datetime
import logging
from pathlib import Path
from typing import Any

import datasets
import pytest

from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data import load_splits
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.pinning import pin_data
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.hubs.gsm8k import TEST, TRAIN, as_jsonl, as_parquet
from tests.hubs.loopback_hub import TOKEN, LoopbackHub

REPO = "owner/sums"
CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train-*.parquet}
  - {split: test, path: main/test-*.parquet}
- config_name: socratic
  data_files:
  - {split: train, path: socratic/train-*.parquet}
---
"""
FILES = {
    "README.md": CARD.encode(),
    "main/train-00000-of-00001.parquet": as_parquet(TRAIN),
    "main/test-00000-of-00001.parquet": as_parquet(TEST),
    "socratic/train-00000-of-00001.parquet": as_parquet(TRAIN[:1]),
}


def config_of(path: str | None = REPO, source: str = "huggingface", **data: Any) -> Config:
    return Config(data=DataConfig(**{"source": source, "path": path, "subset": "main", **data}))


def rows_of(config: Config, split: Any = "train") -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(config, split, Dropped())]


def refusal(config: Config, split: Any = "train") -> str:
    with pytest.raises(DataError) as caught:
        rows_of(config, split)
    return str(caught.value)


@pytest.mark.parametrize("streaming", [False, True])
def test_splits_of_a_subset_are_read(dataset_hub: LoopbackHub, streaming: bool) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    assert rows_of(config_of(streaming=streaming)) == TRAIN
    assert rows_of(config_of(streaming=streaming), "test") == TEST
    assert rows_of(config_of(subset="socratic", streaming=streaming)) == TRAIN[:1]


def test_the_beginning_of_the_path_says_the_source(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    assert rows_of(config_of(f"hf://{REPO}", source="auto")) == TRAIN


def test_training_data_source_and_directories_override(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    config = config_of("nowhere", source="jsonl")
    config.training = TrainingConfig(data_source="huggingface", train_data_dir=REPO)
    assert rows_of(config) == TRAIN


def test_rows_carry_the_commit_they_come_from(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    dropped = Dropped()
    next(read_rows(config_of(), "train", dropped))
    assert dropped.origin == f"train of hf://{REPO}@{repository.head}"


@pytest.mark.parametrize("streaming", [False, True])
def test_values_reach_rewards_untouched_and_as_plain_python(dataset_hub: LoopbackHub, streaming: bool) -> None:
    row = {
        "question": "q é",
        "answer": "1",
        "level": 3,
        "score": 0.5,
        "ok": True,
        "none": None,
        "when": datetime.datetime(2024, 1, 2, 3, 4, 5),
        "tests": ["a", "b"],
        "numbers": [[1, 2], []],
        "nested": {"unit": "kg", "parts": [{"n": 1, "t": "x"}, {"n": 2, "t": None}]},
        "raw": b"\xff\x00",
    }
    dataset_hub.add_dataset(REPO, {"train.parquet": as_parquet([row])})
    (found,) = rows_of(config_of(subset=None, streaming=streaming))
    assert found == row
    assert plain_types(found)


def plain_types(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(plain_types, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(plain_types, value))
    return type(value) in (str, int, float, bool, bytes, type(None), datetime.datetime)


def test_other_formats_and_names_of_splits(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, {"data/train.jsonl": as_jsonl(TRAIN), "data/validation.jsonl": as_jsonl(TEST)})
    config = config_of(subset=None, test_split="validation")
    assert rows_of(config) == TRAIN
    assert rows_of(config, "test") == TEST


def test_columns_and_the_mark_of_gsm8k_are_those_of_any_source(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    train, held_out, report = load_splits(config_of())
    assert [example.prompt for example in train] == [row["question"] for row in TRAIN]
    assert [example.columns["answer"] for example in held_out] == ["10"]
    assert report.train.dropped.total == 0


def test_a_directory_on_this_disk(tmp_path: Path, dataset_hub: LoopbackHub) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
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
    assert "has no split 'test'; it has train" in refusal(config, "test")


def test_a_second_reading_downloads_nothing(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    rows_of(config_of())
    before = len(dataset_hub.downloads())
    assert rows_of(config_of()) == TRAIN
    assert not [name for name in dataset_hub.downloads()[before:] if name.endswith(".parquet")]


def test_a_revision_is_kept(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    first = repository.head
    repository.commit({"main/train-00000-of-00001.parquet": as_parquet(TEST)})
    assert rows_of(config_of()) == TEST
    assert rows_of(config_of(revision=first)) == TRAIN
    assert rows_of(config_of(f"hf://{REPO}@{first}")) == TRAIN


def test_pinning_names_the_commit_and_keeps_it(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    first = repository.head
    pinned = pin_data(config_of())
    assert pinned.data.revision == first
    repository.commit({"main/train-00000-of-00001.parquet": as_parquet(TEST)})
    assert pin_data(pinned) == pinned
    assert pin_data(config_of(), pinned).data.revision == first
    assert pin_data(config_of()).data.revision == repository.head
    assert pin_data(config_of(revision="main"), pinned).data.revision == first


def test_pinning_a_mixture(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    mixture: dict[str, dict[str, Any]] = {"a": {"path": f"hf://{REPO}", "weight": 2.0}, "b": {"path": None}}
    config = config_of(None, source="auto", mixture=mixture)
    pinned = pin_data(config)
    assert pinned.data.mixture == {"a": {**mixture["a"], "revision": repository.head}, "b": {"path": None}}
    repository.commit({"more.txt": b"x"})
    assert pin_data(config, pinned) == pinned


@pytest.mark.parametrize("data", [{"source": "synthetic"}, {"source": "jsonl", "path": "rows.jsonl"}])
def test_pinning_leaves_sources_without_revisions_alone(data: dict[str, Any]) -> None:
    config = Config(data=DataConfig(**data))
    assert pin_data(config) == config


# --- failures --------------------------------------------------------------------------------------------------------


def test_no_name() -> None:
    assert "needs the name of a dataset, and none is given; set data.path=owner/name" in refusal(config_of(None))


def test_no_such_dataset(dataset_hub: LoopbackHub) -> None:
    message = refusal(config_of("owner/none"))
    assert "data.path=owner/none is no public dataset of the hub, and no token is set" in message


def test_a_private_dataset_is_had_with_a_token(dataset_hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset_hub.add_dataset(REPO, FILES, private=True)
    assert "no public dataset" in refusal(config_of())
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert rows_of(config_of()) == TRAIN


def test_a_gated_dataset(dataset_hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset_hub.add_dataset(REPO, FILES, gated=True)
    message = refusal(config_of())
    assert "is gated, and no token is set" in message
    assert f"{dataset_hub.url}/datasets/{REPO}" in message
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert "has not been given access" in refusal(config_of())


@pytest.mark.parametrize("streaming", [False, True])
def test_no_such_subset(dataset_hub: LoopbackHub, streaming: bool) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    for subset in (None, "mian"):
        message = refusal(config_of(subset=subset, streaming=streaming))
        assert "has the subsets 'main', 'socratic'; name one of them with data.subset" in message


@pytest.mark.parametrize("streaming", [False, True])
def test_no_such_split(dataset_hub: LoopbackHub, streaming: bool) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    message = refusal(config_of(subset="socratic", streaming=streaming), "test")
    assert "has no split 'test'; it has 'train'" in message
    assert "data.test_split, or set training.train_fraction=0.9" in message


def test_a_dataset_that_is_a_program(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, {"sums.py": b"import datasets\n"})
    assert "is read by a program of its own, which is not run" in refusal(config_of(subset=None))


def test_a_damaged_file(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, {"train.parquet": as_parquet(TRAIN)[:100]})
    assert "cannot be loaded" in refusal(config_of(subset=None))


def test_no_network_and_no_copy(dataset_hub: LoopbackHub) -> None:
    dataset_hub.close()
    message = refusal(config_of())
    assert f"cannot be had from {dataset_hub.url}" in message
    assert "set data.path to files on this disk" in message


def test_no_network_but_a_copy(dataset_hub: LoopbackHub, caplog: pytest.LogCaptureFixture) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    rows_of(config_of())
    dataset_hub.close()
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert rows_of(config_of()) == TRAIN
    assert "the cached copy of commit" in caplog.text


def test_no_network_and_a_copy_of_another_state(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    first = repository.head
    repository.commit({"main/train-00000-of-00001.parquet": as_parquet(TEST)})
    rows_of(config_of())
    dataset_hub.close()
    message = refusal(config_of(revision=first))
    assert "owner___sums does not have it; or try again when this machine reaches the network" in message


def test_no_network_but_copies_of_several_states(dataset_hub: LoopbackHub) -> None:
    repository = dataset_hub.add_dataset(REPO, FILES)
    first = repository.head
    rows_of(config_of())
    repository.commit({"main/train-00000-of-00001.parquet": as_parquet(TEST)})
    rows_of(config_of())
    dataset_hub.close()
    assert rows_of(config_of(revision=first)) == TRAIN
    assert rows_of(config_of()) == TEST


def test_no_network_but_copies_of_several_subsets(dataset_hub: LoopbackHub) -> None:
    dataset_hub.add_dataset(REPO, FILES)
    rows_of(config_of())
    rows_of(config_of(subset="socratic"))
    dataset_hub.close()
    assert rows_of(config_of(subset="socratic")) == TRAIN[:1]
    assert "has several subsets, main, socratic; name one with data.subset" in refusal(config_of(subset=None))
    assert "has no split 'test'; it has in its cache sums-train.arrow" in refusal(config_of(subset="socratic"), "test")
