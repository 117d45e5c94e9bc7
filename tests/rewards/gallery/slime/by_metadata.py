"""The row's metadata decides what is scored."""


async def reward_func(args, sample, **kwargs):
    info = sample.metadata["extra_info"] if isinstance(sample.metadata, dict) else {}
    return 0.5 * (info.get("split") == "train") + 0.5 * (sample.label in sample.response)
