"""A float for each sample."""

from slime.utils.types import Sample


async def reward_func(args, sample: Sample, **kwargs):
    if not isinstance(sample, Sample):
        raise TypeError("Sample must be an instance of Sample class.")
    return 1.0 if sample.label in sample.response else 0.0
