"""Datasets of TensorFlow Datasets, prepared in a directory by code."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agent_tunix
from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data import load_splits
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.hubs.gsm8k import TEST, TRAIN, as_in_tfds

tfds = pytest.importorskip("tensorflow_datasets")

ROWS, HELD_OUT = as_in_tfds(TRAIN), as_in_tfds(TEST)


def prepare(directory: Path, features: dict[str, Any], splits: dict[str, Sequence[Any]], name: str = "Gsm8k") -> None:
    """Make a dataset as its authors would."""

    with tfds.core.registered.skip_registration():

        class Builder(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc,name-defined]
            VERSION = tfds.core.Version("1.0.0")
            name = ""

            def _info(self) -> Any:
                return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

            def _split_generators(self, dl_manager: object) -> dict[str, Iterator[Any]]:
                return {split: iter(enumerate(rows)) for split, rows in splits.items()}

            def _generate_examples(self) -> None:
                raise NotImplementedError

        Builder.name = name
        builder = Builder(data_dir=str(directory), file_format="array_record")
    builder.download_and_prepare()


@pytest.fixture(scope="module")
def gsm8k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which GSM8K is prepared, of a few rows."""
    directory = tmp_path_factory.mktemp("tensorflow_datasets")
    prepare_gsm8k(directory)
    return directory


def prepare_gsm8k(directory: Path) -> None:
    """A few rows, as the library would prepare all of them."""
    features = dict.fromkeys(("question", "answer", "annotation", "short_answer"), tfds.features.Text())
    prepare(directory, features, {"train": ROWS, "test": HELD_OUT}, "gsm8k")


def config_of(directory: Path | None, path: str | None = "gsm8k", **data: Any) -> Config:
    place = None if directory is None else str(directory)
    training = TrainingConfig(train_data_dir=place, test_data_dir=place)
    return Config(data=DataConfig(**{"source": "tfds", "path": path, **data}), training=training)


def rows_of(config: Config, split: Any = "train") -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(config, split, Dropped())]


def by_question(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: str(row["question"]))


def test_splits_are_read(gsm8k: Path) -> None:
    # The library orders rows by a hash of their keys.
    assert by_question(rows_of(config_of(gsm8k))) == by_question(ROWS)
    assert rows_of(config_of(gsm8k), "test") == HELD_OUT


def test_the_directory_of_the_library_is_used(gsm8k: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(gsm8k))
    assert by_question(rows_of(config_of(None))) == by_question(ROWS)


def test_a_prepared_directory_is_given_itself(gsm8k: Path) -> None:
    config = config_of(None, str(gsm8k / "gsm8k" / "1.0.0"))
    assert rows_of(config, "test") == HELD_OUT


def test_the_beginning_of_the_path_says_the_source(gsm8k: Path) -> None:
    assert rows_of(config_of(gsm8k, "tfds://gsm8k", source="tfds"), "test") == HELD_OUT
    assert rows_of(config_of(None, f"tfds://{gsm8k}/gsm8k/1.0.0", source="auto"), "test") == HELD_OUT


def test_a_version_may_be_named(gsm8k: Path) -> None:
    assert rows_of(config_of(gsm8k, revision="1.0.0"), "test") == HELD_OUT


def test_gsm8k_trains_as_from_any_source(gsm8k: Path) -> None:
    _, held_out, report = load_splits(config_of(gsm8k))
    assert [example.columns["answer"] for example in held_out] == ["10"]
    assert report.train.dropped.total == 0


def test_values_are_plain_python(tmp_path: Path) -> None:
    text = tfds.features.Text()
    features = {
        "question": text,
        "level": np.int64,
        "score": np.float64,
        "ok": np.bool_,
        "numbers": tfds.features.Sequence(np.int64),
        "steps": tfds.features.Sequence({"text": text, "n": np.int32}),
        "matrix": tfds.features.Tensor(shape=(2, 2), dtype=np.float64),
        "nested": {"unit": text, "parts": {"n": np.int64}},
    }
    row = {
        "question": "q é",
        "level": 3,
        "score": 0.5,
        "ok": True,
        "numbers": [1, 2],
        "steps": {"text": ["a", "b"], "n": [1, 2]},
        "matrix": [[1.0, 2.0], [3.0, 4.0]],
        "nested": {"unit": "kg", "parts": {"n": 1}},
    }
    prepare(tmp_path, features, {"train": [row]}, "mine")
    (found,) = rows_of(config_of(tmp_path, "mine"))
    assert found == row
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in row.items()}
    assert {type(item) for item in [*found["numbers"], *found["steps"]["n"]]} == {int}


def test_a_row_that_is_not_utf8_is_dropped(tmp_path: Path) -> None:
    rows = [{"question": b"\xff"}, {"question": b"good"}]
    prepare(tmp_path, {"question": tfds.features.Text()}, {"train": rows}, "mine")
    dropped = Dropped()
    assert len(list(read_rows(config_of(tmp_path, "mine"), "train", dropped))) == 1
    assert dropped.counts == {"not UTF-8": 1}


def test_tensorflow_is_never_loaded(gsm8k: Path, tmp_path: Path) -> None:
    """Even where it is installed: a stand-in on the path would fail the process."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('TensorFlow was loaded')")
    program = (
        "import sys\n"
        "from agent_tunix.config.schema import Config, DataConfig, TrainingConfig\n"
        "from agent_tunix.data.dropped import Dropped\n"
        "from agent_tunix.data.sources import read_rows\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        f"training = TrainingConfig(train_data_dir={str(gsm8k)!r})\n"
        "config = Config(data=DataConfig(source='tfds', path='gsm8k'), training=training)\n"
        "print(len(list(read_rows(config, 'train', Dropped()))))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(agent_tunix.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(TRAIN)}\n", "")


def refusal(config: Config, split: Any = "train") -> str:
    with pytest.raises(DataError) as caught:
        rows_of(config, split)
    return str(caught.value)


def test_no_such_dataset(tmp_path: Path) -> None:
    message = refusal(config_of(tmp_path, "gsm8"))
    assert "data.path=gsm8 is no dataset of TensorFlow Datasets; did you mean gsm8k?" in message
    assert len(message) < 200


def test_no_such_split(gsm8k: Path) -> None:
    message = refusal(config_of(gsm8k, test_split="validation"), "test")
    assert "has no split 'validation'; it has train, test" in message
    assert "data.test_split" in message


def test_no_name(gsm8k: Path) -> None:
    assert "set data.path=gsm8k, or another dataset of TensorFlow Datasets" in refusal(config_of(gsm8k, None))


def test_a_dataset_that_cannot_be_prepared(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refusal(config_of(tmp_path / "file"))
    assert "data.path=gsm8k could not be prepared (NotADirectoryError:" in message
    assert "copy ~/tensorflow_datasets" in message
