"""Interface of a source of rows."""

from collections.abc import Callable, Iterator
from typing import Literal

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row

Split = Literal["train", "test"]

# Reads the rows of a split one at a time. It counts unusable rows in the tally and sets the tally's `origin`. A problem
# of the whole source, such as a missing file, raises a DataError that names the remedy.
Source = Callable[[Config, Split, Dropped], Iterator[Row]]
