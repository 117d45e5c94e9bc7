"""Which files hold the rows of a split."""

import os
from pathlib import Path

from agent_tunix.config.schema import Config
from agent_tunix.data.sources.base import Split
from agent_tunix.errors import DataError


def find_jsonl(config: Config, split: Split) -> Path:
    """The file with the rows of a split.

    `training.train_data_dir` and `training.test_data_dir`, a directory or a file each, come before `data.path`. A
    `data.path` that is one file holds training rows only: held-out rows must come from elsewhere.

    Raises:
        DataError: No path is given, or there is no such file.
    """
    override = config.training.train_data_dir if split == "train" else config.training.test_data_dir
    key = f"training.{split}_data_dir" if override is not None else "data.path"
    given = config.data.path if override is None else override
    if given is None:
        raise DataError(
            f"data.source=jsonl needs the {split} rows, but neither data.path nor training.{split}_data_dir is set; "
            f"set data.path to a directory with train.jsonl and test.jsonl, or to one file"
        )
    path = Path(os.path.expanduser(given))
    if os.path.isdir(path):
        path = path / f"{split}.jsonl"
    elif split == "test" and override is None and os.path.exists(path):
        raise DataError(
            f"data.path={given} is one file, which holds training rows and leaves none for evaluation; "
            f"set training.train_fraction=0.9 to hold some of them out, or training.test_data_dir to another file"
        )
    try:
        path.stat()
    except OSError as error:
        remedy = f"correct {key}"
        if split == "test":
            remedy += " or set training.train_fraction=0.9 to hold some training rows out"
        raise DataError(
            f"{key}={given} should lead to the {split} rows, but {path} cannot be read: {error.strerror}; {remedy}"
        ) from error
    return path
