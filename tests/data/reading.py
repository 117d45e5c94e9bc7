"""Rows as the sources read them from a file."""

from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config, DataConfig
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources import read_rows
from agent_tunix.errors import DataError
from tests.raising import raises


def config_for(path: Path | str | None, **data: Any) -> Config:
    return Config(data=DataConfig(path=None if path is None else str(path), **data))


def read(path: Path, content: bytes | None = None, **data: Any) -> tuple[list[Row], Dropped]:
    """Return the training rows of a path, after writing its `content`, and the tally of dropped rows."""
    if content is not None:
        path.write_bytes(content)
    dropped = Dropped()
    return list(read_rows(config_for(path, **data), "train", dropped)), dropped


def refusal(code: str, path: Path, content: bytes | None = None) -> str:
    """Return the message of the error with which a path is refused."""
    with raises(DataError, code) as caught:
        read(path, content)
    return str(caught.value)
