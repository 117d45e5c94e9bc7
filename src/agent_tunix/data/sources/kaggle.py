"""Kaggle datasets, downloaded and then read as files."""

import dataclasses
from collections.abc import Iterator

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.data.sources.local import read_files
from agent_tunix.data.sources.remote import find_place
from agent_tunix.hubs import kaggle


def read_kaggle(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Read the rows of the files named after the split; `data.test_split=main_test` selects main_test.csv."""
    place = find_place(config, split, "kaggle")
    handle = f"{place.name}/versions/{place.revision}" if place.revision else place.name
    directory = kaggle.download(place.request, handle, "dataset")
    training = dataclasses.replace(config.training, data_source=None, train_data_dir=None, test_data_dir=None)
    data = dataclasses.replace(config.data, source="auto", path=str(directory))
    return read_files(dataclasses.replace(config, data=data, training=training), split, dropped)
