"""Throughput of continuous batching beside the batch sampler, on the same requests of mixed lengths.

    python benchmarks/serving.py [--requests 64] [--places 64] [--rounds 10] [--chunk 16] [--cpu] [--profile]

The batch sampler samples all requests in one call; each round takes another seed. The embedded model answers word
problems at a high temperature, so that lengths differ. Calls alternate, and the first rounds, which compile, do not
count. It prints medians of tokens a second, and their ratio. The bar is a ratio of at least 0.8.

`--profile` prints where the host spends its time. `--cpu` measures the time of the process on all cores instead of wall
time, for a machine that has other work.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from pathlib import Path

import jax
import numpy as np

from agent_tunix.config.schema import DistributedConfig, ModelConfig
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.sampling.continuous import ContinuousSampler
from agent_tunix.sampling.requests import TokenRequest
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.startup.devices import prepare

PROMPT_TOKENS = 64
WARM_UP = 2
TEMPERATURE = 1.5


def make_prompts(tokenizer: Tokenizer, count: int, seed: int) -> list[list[int]]:
    """Return prompts of word problems, of different lengths."""
    random = np.random.default_rng(seed)
    texts = [
        f"Tom has {a} apples and buys {b} more." + " He counts them again." * int(extra) + " How many does he have?"
        for a, b, extra in random.integers([2, 2, 0], [99, 99, 5], (count, 3))
    ]
    chats = [tokenizer.render_chat([{"role": "user", "content": text}]) for text in texts]
    return [tokenizer.encode(chat)[-PROMPT_TOKENS:] for chat in chats]


def main() -> None:
    """Measure both samplers in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--places", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--chunk", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--model", type=Path, default=EMBEDDED_MODEL)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    prepare(DistributedConfig())
    mesh = make_mesh([1, 1])
    tokenizer = Tokenizer(arguments.model)
    sampler = Sampler(load_policy(arguments.model, ModelConfig(), mesh), tokenizer, mesh)
    source = ContinuousSampler(
        sampler,
        num_places=arguments.places,
        max_context=PROMPT_TOKENS + arguments.tokens,
        chunk_tokens=arguments.chunk,
    )
    source.warm_up()
    sampling = SamplingParams(arguments.tokens, temperature=TEMPERATURE)
    clock = time.process_time if arguments.cpu else time.perf_counter

    def batch(seed: int) -> int:
        completions = sampler.sample(
            make_prompts(tokenizer, arguments.requests, seed),
            jax.random.key(seed),
            sampling,
            num_generations=1,
            max_prompt_length=PROMPT_TOKENS,
        )
        return int(completions.num_sampled.sum())

    def continuous(seed: int) -> int:
        prompts = make_prompts(tokenizer, arguments.requests, seed)
        futures = [
            source.submit(TokenRequest(tuple(prompt), arguments.tokens, TEMPERATURE, seed=1000 * seed + number))
            for number, prompt in enumerate(prompts)
        ]
        source.run_pending()
        return sum(len(future.result().tokens) for future in futures)

    rates: dict[str, list[float]] = {"batch": [], "continuous": []}
    for seed in range(arguments.rounds + WARM_UP):
        for function in (batch, continuous):
            start = clock()
            tokens = function(seed)
            if seed >= WARM_UP:
                rates[function.__name__].append(tokens / (clock() - start))
    for name, values in rates.items():
        print(f"{name:10} {statistics.median(values):10.0f} tokens a second")
    ratios = [ours / other for other, ours in zip(*rates.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} (bar 0.8); {source.counts}")
    if arguments.profile:
        with cProfile.Profile() as profile:
            continuous(arguments.rounds + WARM_UP)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(25)


if __name__ == "__main__":
    main()
