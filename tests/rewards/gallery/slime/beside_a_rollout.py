"""A rollout and its reward in one file; the rollout needs slime, the reward does not."""

from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post
from slime.utils.types import Sample


async def generate(args, sample: Sample, sampling_params) -> Sample:
    state = GenerateState(args)
    output = await post(f"http://{args.router}/generate", {"text": sample.prompt, "sampling_params": sampling_params})
    sample.response, sample.tokens = output["text"], state.tokenizer(output["text"])
    sample.status = Sample.Status.COMPLETED
    return sample


async def reward_func(args, sample, **kwargs):
    whole = sample.prompt + sample.response
    return float(whole.count(sample.label) - sample.prompt.count(sample.label))
