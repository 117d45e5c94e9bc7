"""Sources that read files on disk."""

from collections.abc import Iterator

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Source, Split
from agent_tunix.data.sources.csv import read_csv
from agent_tunix.data.sources.jsonl import read_jsonl
from agent_tunix.data.sources.parquet import read_parquet
from agent_tunix.data.sources.paths import source_of_path

FILE_SOURCES: dict[str, Source] = {"jsonl": read_jsonl, "csv": read_csv, "parquet": read_parquet}


def read_files(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Read the rows of a split from files whose suffixes determine their format."""
    return FILE_SOURCES[source_of_path(config, split)](config, split, dropped)
