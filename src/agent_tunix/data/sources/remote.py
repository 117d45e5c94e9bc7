"""The dataset and split that a source outside the local disk reads."""

import re
from dataclasses import dataclass

from agent_tunix.config.schema import Config
from agent_tunix.data.sources.base import Split
from agent_tunix.errors import DataError
from agent_tunix.hubs.request import HubRequest

# Schemes of `data.path`, and the source each one selects if `data.source` is `auto`.
SCHEMES = {"hf": "huggingface", "kaggle": "kaggle", "tfds": "tfds"}
_SCHEME = re.compile(r"([a-z]+)://(.*)")


@dataclass(frozen=True)
class RemoteLocation:
    """A split of a dataset on a hub."""

    key: str  # configuration key that names the dataset
    path: str  # value of that key
    name: str  # the value without `hf://` and without `@revision`
    revision: str | None  # `data.revision`, or the part after `@`
    subset: str | None  # `data.subset`
    split: str  # the dataset's own name for the split

    @property
    def request(self) -> HubRequest:
        """The request to a hub, for error messages."""
        return HubRequest(f"{self.key}={self.path}", "set data.path to files on this disk", DataError)


def source_of_scheme(path: str) -> str | None:
    """Return the source that a path such as `hf://…` selects; None if it has no scheme or an unknown one."""
    match = _SCHEME.fullmatch(path)
    return SCHEMES.get(match[1]) if match else None


def find_place(config: Config, split: Split, source: str, *, may_be_overridden: bool = True) -> RemoteLocation:
    """Return the dataset and the split to read.

    Args:
        config: The run's configuration.
        split: Split to read.
        source: Name of the source.
        may_be_overridden: True if `training.train_data_dir` and `training.test_data_dir` take precedence over
            `data.path`.

    Raises:
        DataError: No dataset is given, or it belongs to another source.
    """
    override = config.training.train_data_dir if split == "train" else config.training.test_data_dir
    if not may_be_overridden:
        override = None
    key = "data.path" if override is None else f"training.{split}_data_dir"
    setting = config.data.path if override is None else override
    if setting is None:
        raise DataError(
            f"data.source={source} requires the name of a dataset, but none is set; set {_EXAMPLES[source]}",
            code="missing_data",
        )
    match = _SCHEME.fullmatch(setting)
    if match is not None and SCHEMES.get(match[1]) != source:
        raise DataError(
            f"{key}={setting} is not a dataset of data.source={source}; set {_EXAMPLES[source]}", code="missing_data"
        )
    name, _, revision = (match[2] if match else setting).partition("@")
    return RemoteLocation(
        key=key,
        path=setting,
        name=name,
        revision=config.data.revision or revision or None,
        subset=config.data.subset,
        split=config.data.train_split if split == "train" else config.data.test_split,
    )


def no_such_split(place: RemoteLocation, split: Split, splits: object) -> DataError:
    """Return the error for a split that the dataset does not have."""
    remedy = f"name one of them with data.{split}_split"
    if split == "test":
        remedy += ", or set training.train_fraction=0.9 to hold out some training rows"
    return DataError(
        f"{place.key}={place.path} has no split {place.split!r}; it has {splits}; {remedy}", code="missing_data"
    )


_EXAMPLES = {
    "huggingface": "data.path=owner/name, a dataset of the Hugging Face hub, or a directory",
    "kaggle": "data.path=owner/dataset, a dataset of Kaggle",
    "tfds": "data.path=gsm8k, or another dataset of TensorFlow Datasets",
}
