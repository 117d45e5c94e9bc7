"""A whole group at once, as with `--group-rm`."""

from slime.utils.types import Sample


async def reward_func(args, samples: list[Sample], **kwargs) -> list[float]:
    lengths = sorted(len(sample.response) for sample in samples)
    return [1.0 - lengths.index(len(sample.response)) / len(lengths) for sample in samples]
