"""Datasets of Kaggle, and that GSM8K is the same from wherever it comes."""

from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, DataConfig
from agent_tunix.data import Example, load_splits
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.pinning import pin_data
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.hubs.gsm8k import TEST, TRAIN, as_csv, as_jsonl, as_parquet
from tests.hubs.loopback_hub import LoopbackHub
from tests.hubs.loopback_kaggle import LoopbackKaggle

NAME = "owner/sums"
FILES = {"main_train.csv": as_csv(TRAIN), "main_test.csv": as_csv(TEST), "notes.txt": b"x"}


def config_of(path: str | None = NAME, **data: Any) -> Config:
    given = {"source": "kaggle", "path": path, "train_split": "main_train", "test_split": "main_test", **data}
    return Config(data=DataConfig(**given))


def rows_of(config: Config, split: Any = "train") -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(config, split, Dropped())]


def refusal(config: Config, split: Any = "train") -> str:
    with pytest.raises(DataError) as caught:
        rows_of(config, split)
    return str(caught.value)


def test_files_are_read_by_the_names_of_their_splits(kaggle: LoopbackKaggle) -> None:
    kaggle.add_dataset(NAME, FILES)
    assert rows_of(config_of()) == TRAIN
    assert rows_of(config_of(), "test") == TEST
    assert rows_of(config_of(f"kaggle://{NAME}", source="auto")) == TRAIN


@pytest.mark.parametrize(("suffix", "write"), [("jsonl", as_jsonl), ("parquet", as_parquet)])
def test_other_formats_are_read(kaggle: LoopbackKaggle, suffix: str, write: Any) -> None:
    kaggle.add_dataset(NAME, {f"main_train.{suffix}": write(TRAIN)})
    assert rows_of(config_of()) == TRAIN


def test_a_version_is_kept(kaggle: LoopbackKaggle) -> None:
    dataset = kaggle.add_dataset(NAME, FILES)
    pinned = pin_data(config_of())
    assert pinned.data.revision == "1"
    dataset.versions.append({"main_train.csv": as_csv(TEST)})
    assert rows_of(config_of()) == TEST
    assert rows_of(pinned) == TRAIN
    assert pin_data(config_of(), pinned) == pinned


def test_no_such_dataset(kaggle: LoopbackKaggle) -> None:
    message = refusal(config_of())
    assert f"data.path={NAME} is no dataset on Kaggle that you may see" in message
    assert f"https://www.kaggle.com/datasets/{NAME}" in message


def test_no_such_file(kaggle: LoopbackKaggle) -> None:
    kaggle.add_dataset(NAME, {"train.csv": as_csv(TRAIN)})
    message = refusal(config_of())
    assert "main_train" in message
    assert "data.train_split" in message


def test_no_network_but_a_copy(kaggle: LoopbackKaggle) -> None:
    kaggle.add_dataset(NAME, FILES)
    rows_of(config_of())
    kaggle.close()
    assert rows_of(config_of()) == TRAIN


def test_no_network_and_no_copy(kaggle: LoopbackKaggle) -> None:
    kaggle.close()
    message = refusal(config_of())
    assert "cannot be had from Kaggle" in message
    assert "set data.path to files on this disk" in message


# --- GSM8K -----------------------------------------------------------------------------------------------------------


def seen(examples: list[Example]) -> list[tuple[str, object, object]]:
    """What training has of them, in an order that does not depend on the source."""
    return sorted((one.prompt, one.columns["answer"], one.columns["solution"]) for one in examples)


def test_gsm8k_is_the_same_from_every_source(
    dataset_hub: LoopbackHub, kaggle: LoopbackKaggle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tfds = pytest.importorskip("tensorflow_datasets")
    from tests.hubs.test_tfds import prepare_gsm8k

    prepare_gsm8k(tmp_path / "tfds")
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "tfds"))
    splits = "[{split: train, path: a.parquet}, {split: test, path: b.parquet}]"
    card = f"---\nconfigs:\n- {{config_name: main, data_files: {splits}}}\n---\n"
    files = {"README.md": card.encode(), "a.parquet": as_parquet(TRAIN), "b.parquet": as_parquet(TEST)}
    dataset_hub.add_dataset("openai/gsm8k", files)
    kaggle.add_dataset("thedevastator/grade-school-math-8k-q-a", FILES)
    for split, rows in (("train", TRAIN), ("test", TEST)):
        (tmp_path / f"{split}.jsonl").write_bytes(as_jsonl(rows))

    local = load_splits(compose_overrides(["data=gsm8k", f"data.path={tmp_path}"]))
    assert len(local[0]) == len(TRAIN)
    for choice in ("gsm8k_hf", "gsm8k_tfds", "gsm8k_kaggle"):
        config = compose_overrides([f"data={choice}"])
        assert config.generation.max_prompt_length == 512
        train, held_out, _ = load_splits(config)
        assert seen(train) == seen(local[0])
        assert seen(held_out) == seen(local[1])
