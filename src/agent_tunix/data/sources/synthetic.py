"""Source of generated problems."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.data.dropped import Dropped
from agent_tunix.data.examples import Row
from agent_tunix.data.sources.base import Split
from agent_tunix.errors import ConfigError


def read_synthetic(config: Config, split: Split, dropped: Dropped) -> Iterator[Row]:
    """Yield generated problems of the kind `data.problems`; the training and held-out splits share none.

    Raises:
        ConfigError: There are not as many distinct problems.
    """
    key = "num_train" if split == "train" else "num_test"
    try:
        problems = _make(config.data.problems, split, getattr(config.data, key), config.data.seed)
    except ValueError as error:
        raise ConfigError(f"data.{key}: {error}") from error
    for number, columns in enumerate(problems, start=1):
        yield Row(number, dict(columns))


def _make(problems: str, split: Split, count: int, seed: int) -> Sequence[Mapping[str, Any]]:
    if problems == "word_problems":
        from agent_tunix.data.generated.word_problems import make_problems

        return make_problems(split, count, seed)
    if problems == "arithmetic":
        from agent_tunix.data.generated.arithmetic import make_arithmetic

        return make_arithmetic(split, count, seed)
    assert problems == "numbers", problems  # config.data_sets allows no other
    from agent_tunix.data.generated.numbers import make_numbers

    return make_numbers(split, count, seed)
