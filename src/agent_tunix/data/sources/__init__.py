"""Sources of rows by name, one module each.

Rows are read one at a time. An unusable row is dropped and counted; it does not raise an exception.
"""

import difflib
from collections.abc import Iterator

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Source, Split
from agent_tunix.data.sources.huggingface import read_huggingface
from agent_tunix.data.sources.local import FILE_SOURCES, read_kaggle
from agent_tunix.data.sources.paths import source_of_path
from agent_tunix.data.sources.reasoning_gym import read_reasoning_gym
from agent_tunix.data.sources.synthetic import read_synthetic
from agent_tunix.data.sources.tfds import read_tfds
from agent_tunix.data.sources.verifiers import read_environment
from agent_tunix.errors import ConfigError

__all__ = ["SOURCES", "Source", "Split", "find_source", "read_rows"]

SOURCES: dict[str, Source] = {
    "synthetic": read_synthetic,
    **FILE_SOURCES,
    "huggingface": read_huggingface,
    "tfds": read_tfds,
    "kaggle": read_kaggle,
    "reasoning_gym": read_reasoning_gym,
    "verifiers": read_environment,
}


def read_rows(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Read the rows of a split, one at a time.

    Args:
        config: The run's configuration; `training.data_source` takes precedence over `data.source`.
        split: Split to read.
        dropped: Tally to which dropped rows and their origin are added while reading.

    Raises:
        ConfigError: The source is unknown.
        DataError: A file is missing or cannot be read.
    """
    return SOURCES[find_source(config, split)](config, split, dropped)


def find_source(config: Config, split: Split) -> str:
    """Return the name of the source of a split's rows, with `auto` resolved.

    Raises:
        ConfigError: The source is unknown.
        DataError: `auto` cannot be resolved.
    """
    name = config.data.source if config.training.data_source is None else config.training.data_source
    if name == "auto":
        name = source_of_path(config, split)
    if name not in SOURCES:
        key = "data.source" if config.training.data_source is None else "training.data_source"
        nearest = difflib.get_close_matches(name, SOURCES, n=1, cutoff=0.5)
        advice = f"; did you mean {nearest[0]}?" if nearest else ""
        raise ConfigError(f"{key} must be one of auto, {', '.join(SOURCES)}, not {name!r}{advice}")
    return name
