import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agent_tunix
from agent_tunix.config.schema import Config, DataConfig, TrainingConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.hubs.gsm8k import TEST, TRAIN, as_in_tfds
from tests.hubs.prepared import prepare
from tests.raising import raises

pytestmark = pytest.mark.slow
tfds = pytest.importorskip("tensorflow_datasets")

HELD_OUT = as_in_tfds(TEST)


def config_of(directory: Path | None, path: str | None = "gsm8k", **data: Any) -> Config:
    place = None if directory is None else str(directory)
    training = TrainingConfig(train_data_dir=place, test_data_dir=place)
    return Config(data=DataConfig(**{"source": "tfds", "path": path, **data}), training=training)


def rows_of(config: Config, split: Any = "train") -> list[dict[str, Any]]:
    return [row.columns for row in read_rows(config, split, Dropped())]


def test_a_dataset_is_found_by_name_version_and_directory(prepared_gsm8k: Path) -> None:
    assert rows_of(config_of(prepared_gsm8k), "test") == HELD_OUT
    assert rows_of(config_of(prepared_gsm8k, revision="1.0.0"), "test") == HELD_OUT
    place = str(prepared_gsm8k / "gsm8k" / "1.0.0")
    assert rows_of(config_of(None, place), "test") == HELD_OUT
    assert rows_of(config_of(None, f"tfds://{place}", source="auto"), "test") == HELD_OUT


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
    prepare(tmp_path, "mine", features, {"train": [row]})
    (found,) = rows_of(config_of(tmp_path, "mine"))
    assert found == row
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in row.items()}
    assert {type(item) for item in [*found["numbers"], *found["steps"]["n"]]} == {int}


def test_a_row_that_is_not_utf8_is_dropped(tmp_path: Path) -> None:
    rows = [{"question": b"\xff"}, {"question": b"good"}]
    prepare(tmp_path, "mine", {"question": tfds.features.Text()}, {"train": rows})
    dropped = Dropped()
    assert len(list(read_rows(config_of(tmp_path, "mine"), "train", dropped))) == 1
    assert dropped.counts == {"not UTF-8": 1}


def test_tensorflow_is_never_loaded(prepared_gsm8k: Path, tmp_path: Path) -> None:
    """Even where it is installed: a stand-in on the path would fail the process."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('TensorFlow was loaded')")
    program = (
        "import sys\n"
        "from agent_tunix.config.schema import Config, DataConfig, TrainingConfig\n"
        "from agent_tunix.data.dropped import Dropped\n"
        "from agent_tunix.data.sources import read_rows\n"
        "assert 'tensorflow_datasets' not in sys.modules\n"
        f"training = TrainingConfig(train_data_dir={str(prepared_gsm8k)!r})\n"
        "config = Config(data=DataConfig(source='tfds', path='gsm8k'), training=training)\n"
        "print(len(list(read_rows(config, 'train', Dropped()))))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(agent_tunix.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{len(TRAIN)}\n", "")


def test_the_nearest_name_is_told(tmp_path: Path) -> None:
    with raises(DataError, "not_found") as caught:
        rows_of(config_of(tmp_path, "gsm8"))
    assert "did you mean gsm8k?" in str(caught.value)


def test_a_dataset_that_cannot_be_prepared(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with raises(DataError, "preparation_failed") as caught:
        rows_of(config_of(tmp_path / "file"))
    assert "NotADirectoryError:" in str(caught.value)
    assert "copy ~/tensorflow_datasets" in str(caught.value)
