"""Rows of an installed environment of verifiers, which `data.path` names.

Held-out rows are those of the environment's evaluation dataset. An environment with one dataset holds out a tenth of
its rows, at least one and at most `data.num_test`: the last ones.
"""

from collections.abc import Iterator
from pathlib import Path

from agent_tunix.config.episodes import verifiers_name
from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.environments.verifiers import read_rows
from agent_tunix.errors import ConfigError

_HELD_OUT = 0.1


def read_environment(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield the rows of a split.

    Raises:
        ConfigError: `data.path` is not set.
        InvalidEnvironmentError: The environment cannot be loaded.
    """
    name, data = config.data.path, config.data
    if name is None:
        raise ConfigError(
            "data.source=verifiers requires the name of an installed environment; write data=verifiers:NAME",
            code="missing_data",
        )
    dropped.origin, dropped.unit = name, "row"
    args = config.environment.args if verifiers_name(config) == name else {}
    train, test = read_rows(name, args, Path.cwd(), data.num_train + data.num_test)
    if not train or not test:
        both = train or test
        count = min(data.num_test, max(int(len(both) * _HELD_OUT), 1), max(len(both) - 1, 0))
        train, test = both[: len(both) - count], both[len(both) - count :]
    rows = train if split == "train" else test
    first = 1 if split == "train" else len(train) + 1
    for number, columns in enumerate(rows, start=first):
        yield Row(number, columns, is_padded=True)
