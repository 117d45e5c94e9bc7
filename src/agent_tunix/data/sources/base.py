"""What a source of rows is."""

from collections.abc import Callable, Iterator
from typing import Literal

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row

Split = Literal["train", "test"]

# Reads the rows of a split one at a time. Rows that hold nothing usable are counted in the tally, whose `origin` says
# where the rows come from; what concerns all rows, as a file that is missing, is a DataError that says what to do.
Source = Callable[[Config, Split, Dropped], Iterator[Row]]
