"""Source of generated problems."""

from collections.abc import Iterator

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split


def read_synthetic(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield generated word problems; the training and held-out splits share none."""
    from agent_tunix.data.word_problems import make_problems

    count = config.data.num_train if split == "train" else config.data.num_test
    for number, columns in enumerate(make_problems(split, count, config.data.seed), start=1):
        yield Row(number, dict(columns))
