"""What a source that is no file on this disk is asked for."""

import re
from dataclasses import dataclass

from agent_tunix.config.schema import Config
from agent_tunix.data.sources.base import Split
from agent_tunix.errors import DataError
from agent_tunix.hubs.request import HubRequest

# How `data.path` may begin, and the source that this means where `data.source` is `auto`.
SCHEMES = {"hf": "huggingface", "kaggle": "kaggle", "tfds": "tfds"}
_SCHEME = re.compile(r"([a-z]+)://(.*)")


@dataclass(frozen=True)
class RemoteLocation:
    """A split of a dataset on a hub.

    Attributes:
        key: The key that names the dataset.
        path: Its value.
        name: The value without `hf://` and without `@revision`.
        revision: `data.revision`, or what stands after `@`.
        subset: `data.subset`.
        split: What the dataset calls the split.
    """

    key: str
    path: str
    name: str
    revision: str | None
    subset: str | None
    split: str

    @property
    def request(self) -> HubRequest:
        """For the messages of errors."""
        return HubRequest(f"{self.key}={self.path}", "set data.path to files on this disk", DataError)


def source_of_scheme(path: str) -> str | None:
    """The source that a path of `hf://…` means; None where it begins otherwise."""
    match = _SCHEME.fullmatch(path)
    return SCHEMES.get(match[1]) if match else None


def find_place(config: Config, split: Split, source: str, *, may_be_overridden: bool = True) -> RemoteLocation:
    """Which dataset, and which split of it.

    Args:
        config: The run.
        split: Training or held-out rows.
        source: That of `data.source`.
        may_be_overridden: Whether `training.train_data_dir` and `training.test_data_dir` come before `data.path`.

    Raises:
        DataError: None is given.
    """
    override = config.training.train_data_dir if split == "train" else config.training.test_data_dir
    if not may_be_overridden:
        override = None
    key = "data.path" if override is None else f"training.{split}_data_dir"
    given = config.data.path if override is None else override
    if given is None:
        raise DataError(
            f"data.source={source} needs the name of a dataset, and none is given; set {_EXAMPLES[source]}",
            code="no_dataset_name",
        )
    match = _SCHEME.fullmatch(given)
    if match is not None and SCHEMES.get(match[1]) != source:
        raise DataError(
            f"{key}={given} is no dataset of data.source={source}; set {_EXAMPLES[source]}", code="wrong_scheme"
        )
    name, _, revision = (match[2] if match else given).partition("@")
    return RemoteLocation(
        key=key,
        path=given,
        name=name,
        revision=config.data.revision or revision or None,
        subset=config.data.subset,
        split=config.data.train_split if split == "train" else config.data.test_split,
    )


def no_such_split(place: RemoteLocation, split: Split, splits: object) -> DataError:
    """The error for a split that the dataset does not have."""
    remedy = f"name one of them with data.{split}_split"
    if split == "test":
        remedy += ", or set training.train_fraction=0.9 to hold some training rows out"
    return DataError(
        f"{place.key}={place.path} has no split {place.split!r}; it has {splits}; {remedy}", code="missing_split"
    )


_EXAMPLES = {
    "huggingface": "data.path=owner/name, a dataset of the Hugging Face hub, or a directory",
    "kaggle": "data.path=owner/dataset, a dataset of Kaggle",
    "tfds": "data.path=gsm8k, or another dataset of TensorFlow Datasets",
}
