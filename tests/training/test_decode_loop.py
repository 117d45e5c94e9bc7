"""The compiled loop with all its stages, token for token against a plain sampler of single rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from agent_tunix.planning.cache_plan import Stage
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.sampling.compaction import arrange, fits
from agent_tunix.sampling.decode_loop import generate
from agent_tunix.sampling.token_choice import SampledTokens, SamplingParams
from tests.training import reference_sampler
from tests.training.test_logps import ARCHITECTURES

pytestmark = pytest.mark.slow

GENERATE = jax.jit(generate, static_argnames=("num_generations", "stages", "sampling", "pad_id", "eos_ids"))
B, G, P, T, V = 3, 4, 7, 16, 53
KEY = jax.random.key(12)
PAD = 0
# Several words end a row, so that rows end at all lengths. One of them is the padding.
EOS = (PAD, *range(1, 7))
LENGTHS = (7, 4, 1)
PROMPTS = [np.random.default_rng(row).integers(7, V, length).tolist() for row, length in enumerate(LENGTHS)]
# Slots of every kind: shared by some rows of a prompt, by one; fewer slots than prompts; and a cache that grows.
STAGES = (Stage(B, G, 5), Stage(B, G, T), Stage(4, 2, T), Stage(6, 1, T), Stage(2, 1, T))


ALL = SamplingParams(T, temperature=1.5, top_k=20, top_p=0.9, min_p=0.05)


@pytest.fixture(scope="module", params=["sliding", "linear"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    """In float64, so that rounding decides nothing, with weights large enough that words differ."""
    with jax.enable_x64(True), nnx.use_eager_sharding(False):  # type: ignore[no-untyped-call]
        float64 = jnp.dtype("float64")
        model = Decoder(ARCHITECTURES[request.param], dtype=float64, param_dtype=float64, rngs=nnx.Rngs(0))
        nnx.update(model, jax.tree.map(lambda x: x * 15 if x.ndim > 1 else x + 0.3, nnx.state(model)))
        yield model


def run(
    model: Any,
    sampling: SamplingParams,
    stages: Sequence[Stage] = STAGES,
    eos_ids: tuple[int, ...] = EOS,
) -> SampledTokens:
    sampled: SampledTokens = jax.device_get(call(GENERATE, model, sampling, stages, eos_ids))
    return sampled


def call(
    function: Callable[..., Any],
    model: Any,
    sampling: SamplingParams,
    stages: Sequence[Stage] = STAGES,
    eos_ids: tuple[int, ...] = EOS,
) -> Any:
    """Call a form of `generate` with the prompts."""
    prompt_BP = np.full((B, P), PAD, np.int32)
    for row, prompt in zip(prompt_BP, PROMPTS, strict=True):
        row[P - len(prompt) :] = prompt
    return function(
        *nnx.split(model),
        prompt_BP,
        np.array(LENGTHS, np.int32),
        KEY,
        num_generations=G,
        stages=tuple(stages),
        sampling=sampling,
        pad_id=PAD,
        eos_ids=eos_ids,
    )


def rows_of(sampled: SampledTokens) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(sampled.tokens, sampled.lengths, strict=True)]


def test_every_row_is_that_of_a_plain_sampler_under_the_same_key(model: Any) -> None:
    """Greedy rows are in test_episodes.py and test_sampler.py."""
    found = run(model, ALL)
    logits = reference_sampler.logits_of(model, P + T)
    for row, ids in enumerate(rows_of(found)):
        prompt = PROMPTS[row // G]
        assert ids == reference_sampler.complete(logits, prompt, row, KEY, ALL, pad_id=PAD, eos_ids=EOS)
        assert found.ended[row] == (ids[-1] in EOS)
        expected = reference_sampler.logps_of(logits, prompt, ids, ALL.temperature)
        np.testing.assert_allclose(found.logps[row, : len(ids)], expected, atol=1e-6)
    # Rows end at different places, or nothing above were tested.
    assert len(set(found.lengths.tolist())) > 4


@pytest.mark.parametrize("model", ["linear"], indirect=True)
def test_a_batch_in_which_all_end_at_once_and_one_of_a_single_token(model: Any) -> None:
    everything = tuple(range(V))
    assert run(model, SamplingParams(T), STAGES, everything).lengths.tolist() == [1] * (B * G)
    assert run(model, SamplingParams(1), (Stage(B, G, 1),)).lengths.tolist() == [1] * (B * G)


# Where rows go.


def live(*counts: int, size: int = 4) -> jax.Array:
    """The last rows of each prompt go on."""
    return jnp.array([[place >= size - count for place in range(size)] for count in counts])


@pytest.mark.parametrize(
    ("counts", "stage", "expected"),
    [
        ((4, 0, 0), Stage(2, 2, T), True),
        ((3, 1, 0), Stage(2, 2, T), False),  # two slots for the first prompt, one for the second
        ((1, 1, 1), Stage(2, 2, T), False),
        ((1, 1, 0), Stage(2, 1, T), True),
        ((0, 0, 0), Stage(1, 1, T), True),
    ],
)
def test_a_slot_is_of_one_prompt(counts: tuple[int, ...], stage: Stage, expected: bool) -> None:
    assert bool(fits(live(*counts), stage)) is expected


def test_rows_keep_their_order_and_their_prompts() -> None:
    found = arrange(live(3, 0, 1), Stage(4, 2, T))
    none = 12
    assert found.row.tolist() == [1, 2, 3, none, 11, none, none, none]
    assert found.prompt.tolist()[:3] == [0, 0, 2]
    assert [found.place.tolist()[row] for row in (1, 2, 3, 11)] == [0, 1, 2, 4]
    assert all(found.place.tolist()[row] == 8 for row in (0, 4, 5, 6, 7, 8, 9, 10))


@pytest.mark.parametrize("model", ["linear"], indirect=True)
def test_random_numbers_are_drawn_once_and_not_in_each_stage(model: Any) -> None:
    text = call(GENERATE.lower, model, SamplingParams(T)).as_text()
    assert text.count("call @_uniform") == 1
