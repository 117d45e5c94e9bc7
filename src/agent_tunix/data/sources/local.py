"""Sources that read files: those on disk, and those of datasets that are downloaded from Kaggle."""

import dataclasses
from collections.abc import Iterator

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Source, Split
from agent_tunix.data.sources.csv import read_csv
from agent_tunix.data.sources.jsonl import read_jsonl
from agent_tunix.data.sources.parquet import read_parquet
from agent_tunix.data.sources.paths import source_of_path
from agent_tunix.data.sources.remote import find_place
from agent_tunix.hubs import kaggle

FILE_SOURCES: dict[str, Source] = {"jsonl": read_jsonl, "csv": read_csv, "parquet": read_parquet}


def read_files(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Read the rows of a split from files whose suffixes determine their format.

    Raises:
        DataError: A file is missing or cannot be read.
    """
    return FILE_SOURCES[source_of_path(config, split)](config, split, dropped)


def read_kaggle(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Read the rows of the files named after the split; `data.test_split=main_test` selects main_test.csv.

    Raises:
        DataError: The dataset cannot be downloaded, or has no such file.
    """
    place = find_place(config, split, "kaggle")
    handle = f"{place.name}/versions/{place.revision}" if place.revision else place.name
    directory = kaggle.download(place.request, handle, "dataset")
    training = dataclasses.replace(config.training, data_source=None, train_data_dir=None, test_data_dir=None)
    data = dataclasses.replace(config.data, source="auto", path=str(directory))
    return read_files(dataclasses.replace(config, data=data, training=training), split, dropped)
