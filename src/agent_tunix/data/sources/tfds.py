"""Datasets of TensorFlow Datasets, read without TensorFlow.

Datasets are prepared in the ArrayRecord format, whose rows NumPy alone can read in any order. Values are plain Python.
A dataset that is already prepared is used unchanged, from `TFDS_DATA_DIR` (by default `~/tensorflow_datasets`) or from
the directory in `training.train_data_dir` and `training.test_data_dir`.
"""

import difflib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.remote import find_place, no_such_split


def read_tfds(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of a split, in the order in which they were prepared.

    Raises:
        DataError: The dataset or split does not exist, or the dataset cannot be prepared.
    """
    dropped.unit = "row"
    for number, example in enumerate(_open(config, split, dropped), start=1):
        try:
            yield Row(number, {name: _to_python(value) for name, value in example.items()})
        except UnicodeDecodeError as error:
            dropped.add("not UTF-8", number, str(error))


def _open(config: Config, split: Split, dropped: Dropped) -> Iterator[Mapping[str, Any]]:
    # If something loads TensorFlow, it logs errors only.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow_datasets as tfds

    place = find_place(config, split, "tfds", may_be_overridden=False)
    data_dir = config.training.train_data_dir if split == "train" else config.training.test_data_dir
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    try:
        if (Path(place.name).expanduser() / "dataset_info.json").is_file():
            builder = tfds.builder_from_directory(Path(place.name).expanduser())
        else:
            _register(place.name)
            subset = f"/{place.subset}" if place.subset else ""
            version = f":{place.revision}" if place.revision else ""
            name = f"{place.name}{subset}{version}"
            builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
            builder.download_and_prepare()
        if place.split.partition("[")[0] not in builder.info.splits:
            raise no_such_split(place, split, ", ".join(builder.info.splits))
        rows = builder.as_data_source(split=place.split)
    except tfds.core.DatasetNotFoundError as error:
        near = difflib.get_close_matches(place.name, [*tfds.list_builders(with_community_datasets=False), "gsm8k"], n=1)
        advice = (
            f"; did you mean {near[0]}?" if near else ("; https://www.tensorflow.org/datasets/catalog lists the names")
        )
        raise place.request.refuse(f"is not a dataset of TensorFlow Datasets{advice}", code="not_found") from error
    except NotImplementedError as error:
        raise place.request.refuse(
            f"is prepared in {data_dir or 'its directory'} in a format that only TensorFlow can read; prepare it "
            "again in another directory with `tfds.builder(NAME, data_dir=DIR, "
            'file_format="array_record").download_and_prepare()`, and set it as training.train_data_dir and '
            "training.test_data_dir",
            code="unsupported_data",
        ) from error
    except (OSError, ImportError, tfds.download.DownloadError) as error:
        raise place.request.refuse(
            f"could not be prepared ({type(error).__name__}: {' '.join(str(error).split())}); check that this "
            "machine has network access and try again, or prepare it on another machine and copy "
            "~/tensorflow_datasets",
            code="preparation_failed",
        ) from error
    dropped.origin = f"{place.split} of {builder.data_path}"
    return iter(rows)


def _register(name: str) -> None:
    """Import a dataset that the library ships but does not list, such as GSM8K."""
    module = f"tensorflow_datasets.text.{name}"
    if name.isidentifier() and importlib.util.find_spec(module) is not None:
        importlib.import_module(module)


def _to_python(value: Any) -> Any:
    """Convert bytes to text and NumPy values to plain Python, recursively."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, Mapping):
        return {name: _to_python(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_python(item) for item in value]
    return value
