"""Source of generated problems."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split


def read_synthetic(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield generated problems of the kind `data.problems`; the training and held-out splits share none."""
    count = config.data.num_train if split == "train" else config.data.num_test
    for number, columns in enumerate(_make(config.data.problems, split, count, config.data.seed), start=1):
        yield Row(number, dict(columns))


def _make(problems: str, split: Split, count: int, seed: int) -> Iterator[Mapping[str, Any]]:
    if problems == "word_problems":
        from agent_tunix.data.generated.word_problems import make_problems

        yield from make_problems(split, count, seed)
    elif problems == "arithmetic":
        from agent_tunix.data.generated.arithmetic import make_arithmetic

        yield from make_arithmetic(split, count, seed)
    else:
        assert problems == "numbers", problems  # config.data_sets allows no other
        from agent_tunix.data.generated.numbers import make_numbers

        yield from make_numbers(split, count, seed)
