"""Cost of sampling, and the saving when rows leave the batch at the end of their completions.

    python benchmarks/rollout.py [--rounds 20] [--quick] [--vanilla] [--noise]

Random weights sample at three shapes. Lengths are geometric with a mean of 0.3 of the maximum: random weights like all
words about equally, so the number of words that end a completion determines the mean. Sampling in stages
(`planning/cache_plan.py`) alternates with sampling in one loop of all rows until the last one ends. The first call of
each, which compiles, does not count. The benchmark prints medians, their ratio, and the seconds of the first calls. The
bar is a ratio below 1 at every shape.

`--vanilla` adds Tunix's sampler, on the embedded model with the same prompts, G copies of each. No word ends a
completion then, for either sampler.

`--noise` compares three ways of drawing a word from logits: ours, Gumbel noise for all rows at once, and Gumbel noise
with a key per row, which rows that leave the batch would need.
"""

import argparse
import dataclasses
import functools
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from agent_tunix.config.schema import DistributedConfig, ModelConfig
from agent_tunix.planning.cache_plan import Stage, plan_stages
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.decode_loop import generate
from agent_tunix.sampling.token_choice import SamplingParams, choose, uniforms
from agent_tunix.startup.devices import prepare

sys.path.insert(0, str(Path(__file__).parents[1]))

GENERATE = jax.jit(generate, static_argnames=("num_generations", "stages", "sampling", "pad_id", "eos_ids"))
MEAN_LENGTH = 0.3
FLOAT32 = jnp.dtype("float32")


class Shape(NamedTuple):
    """Sizes of a batch and of a model."""

    prompts: int
    generations: int
    prompt_length: int
    tokens: int
    layers: int
    width: int
    words: int


SHAPES = {
    "tiny": Shape(16, 8, 40, 24, 2, 64, 512),
    "long prompts": Shape(2, 16, 485, 64, 4, 256, 512),
    "long completions": Shape(8, 8, 40, 256, 2, 64, 512),
}


def make_model(shape: Shape) -> Decoder:
    """Return a model of random weights: four query heads, two key-value heads, an MLP of three times the width."""
    head = shape.width // 4
    architecture = dataclasses.replace(
        read_architecture(EMBEDDED_MODEL),
        num_layers=shape.layers,
        layer_kinds=("full_attention",) * shape.layers,  # type: ignore[arg-type]
        hidden_size=shape.width,
        intermediate_size=3 * shape.width,
        num_heads=4,
        num_kv_heads=2,
        head_dim=head,
        query_scale=head**-0.5,
        vocab_size=shape.words,
    )
    with nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        return Decoder(architecture, dtype=FLOAT32, param_dtype=FLOAT32, rngs=nnx.Rngs(0))


def sampler(shape: Shape, stages: tuple[Stage, ...]) -> Callable[[int], Any]:
    """Return a function that samples a batch with a key of the given number."""
    graphdef, state = nnx.split(make_model(shape))
    prompts = np.random.default_rng(0).integers(0, shape.words, (shape.prompts, shape.prompt_length)).astype(np.int32)
    # Word 0 is padding. With k end-of-sequence words, a completion has about words / k tokens.
    ends = tuple(range(1, 1 + round(shape.words / (MEAN_LENGTH * shape.tokens))))

    def sample(number: int) -> Any:
        return GENERATE(
            graphdef,
            state,
            prompts,
            np.full(shape.prompts, shape.prompt_length, np.int32),
            jax.random.key(number),
            num_generations=shape.generations,
            stages=stages,
            sampling=SamplingParams(shape.tokens),
            pad_id=0,
            eos_ids=ends,
        )

    return sample


def alternate(candidates: Mapping[str, Callable[[int], Any]], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of the first call of each candidate, and the median of its later calls."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, call in candidates.items():
            started = time.perf_counter()
            jax.block_until_ready(call(number))
            seconds[name].append(time.perf_counter() - started)
    return {name: found[0] for name, found in seconds.items()}, {
        name: statistics.median(found[1:]) for name, found in seconds.items()
    }


def compare_stages(rounds: int) -> None:
    """Print the table of stages."""
    print(f"{'shape':<18}{'one loop':>10}{'stages':>10}{'ratio':>7}{'mean length':>13}{'first calls':>16}   stages")
    for name, shape in SHAPES.items():
        one = (Stage(shape.prompts, shape.generations, shape.tokens),)
        stages = plan_stages(shape.prompts, shape.generations, shape.prompt_length, shape.tokens)
        candidates = {"one": sampler(shape, one), "stages": sampler(shape, stages)}
        first, median = alternate(candidates, rounds)
        mean = float(candidates["stages"](1).lengths.mean())
        described = " ".join(f"{stage.slots}x{stage.places}x{stage.length}" for stage in stages)
        print(
            f"{name:<18}{median['one']:>8.4f} s{median['stages']:>8.4f} s{median['stages'] / median['one']:>7.2f}"
            f"{mean:>13.1f}{first['one']:>7.1f} s{first['stages']:>6.1f} s   {described}",
            flush=True,
        )


def compare_vanilla(rounds: int) -> None:
    """Compare Tunix's sampler with ours, on completions of full length."""
    from benchmarks.peers.tunix_tokenizer import TunixTokenizer
    from tunix.generate import sampler as tunix_sampler

    prompts, generations, tokens = 16, 8, 24
    mesh = make_mesh([1, 1])
    policy = load_policy(EMBEDDED_MODEL, ModelConfig(), mesh)
    tokenizer = TunixTokenizer(EMBEDDED_MODEL)
    texts = [tokenizer.render_chat([{"role": "user", "content": f"What is {n} plus {n}?"}]) for n in range(10, 26)]
    ids = [tokenizer.encode(text) for text in texts]
    width = max(map(len, ids))
    a = policy.config
    vanilla = tunix_sampler.Sampler(
        policy,
        tokenizer,
        tunix_sampler.CacheConfig(
            cache_size=64 + tokens, num_layers=a.num_layers, num_kv_heads=a.num_kv_heads, head_dim=a.head_dim
        ),
    )
    graphdef, state = nnx.split(policy)
    prompt_BP = np.array([[tokenizer.pad_id()] * (width - len(row)) + row for row in ids], np.int32)
    never = (a.vocab_size,)

    def theirs(number: int) -> Any:
        with mesh:
            return vanilla(
                [text for text in texts for _ in range(generations)],
                max_generation_steps=tokens,
                max_prompt_length=64,
                temperature=1.0,
                top_p=1.0,
                seed=jax.random.key(number),
                eos_tokens=list(never),
            ).tokens

    def ours(number: int) -> Any:
        return GENERATE(
            graphdef,
            state,
            prompt_BP,
            np.array(list(map(len, ids)), np.int32),
            jax.random.key(number),
            num_generations=generations,
            stages=plan_stages(prompts, generations, width, tokens),
            sampling=SamplingParams(tokens),
            pad_id=tokenizer.pad_id(),
            eos_ids=never,
        )

    _, median = alternate({"ours": ours, "theirs": theirs}, rounds)
    print(f"embedded model, {prompts} × {generations} × {tokens} tokens, none ends before:")
    print(
        f"agent_tunix {median['ours']:.4f} s   Tunix's sampler {median['theirs']:.4f} s"
        f"   ratio {median['ours'] / median['theirs']:.2f}"
    )


def compare_noise(rounds: int) -> None:
    """Compare ways of drawing a word for each row."""
    plain = SamplingParams(1)

    def inverted(key: jax.Array, logits_NV: jax.Array) -> jax.Array:
        return choose(logits_NV, uniforms(key, 0, logits_NV.shape[0]), plain, None)[0]

    def of_rows(key: jax.Array, logits_NV: jax.Array) -> jax.Array:
        keys = jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(logits_NV.shape[0]))
        return jax.vmap(jax.random.categorical)(keys, logits_NV)

    ways: dict[str, Any] = {"inverted": inverted, "gumbel": jax.random.categorical, "gumbel of rows": of_rows}
    print(f"{'a word of each row':<24}" + "".join(f"{name:>16}" for name in ways))
    for rows, words in ((128, 512), (64, 32_000), (16, 151_936)):
        logits_NV = jax.random.normal(jax.random.key(1), (rows, words))
        compiled = {name: jax.jit(way) for name, way in ways.items()}
        calls = {
            name: (lambda number, way=way, logits_NV=logits_NV: way(jax.random.key(number), logits_NV))
            for name, way in compiled.items()
        }
        _, median = alternate(calls, rounds)
        print(f"{rows:>6} rows, {words:>7} words" + "".join(f"{1e3 * median[name]:>13.2f} ms" for name in ways))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--vanilla", action="store_true", help="beside Tunix's own sampler")
    parser.add_argument("--noise", action="store_true", help="ways of drawing a word")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    # The same setup as a run.
    prepare(DistributedConfig(compilation_cache=None))
    rounds = 3 if arguments.quick else arguments.rounds
    compare_stages(rounds)
    if arguments.noise:
        compare_noise(rounds)
    if arguments.vanilla:
        compare_vanilla(rounds)
    print(f"devices: {jax.devices()}")


if __name__ == "__main__":
    main()
