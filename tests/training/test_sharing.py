"""The frozen base of an adapter is in memory once: the policy's, the sampler's and the reference's."""

import gc
import inspect
from typing import Any

import jax
import pytest
from flax import nnx

from agent_tunix.config.schema import Config
from tests.training.support import Bench, BenchMaker


@pytest.fixture(scope="module", params=[None, "nf4"], ids=["lora", "qlora"])
def bench(request: pytest.FixtureRequest, make_bench: BenchMaker) -> Bench:
    def adjust(config: Config) -> None:
        config.model.lora_rank = 4
        config.model.quantization = request.param
        config.grpo.beta = 0.1

    return make_bench(adjust)


def buffers(model: Any, of_adapter: bool) -> dict[str, int]:
    leaves = nnx.to_flat_state(nnx.state(model))
    return {
        str(path): leaf.get_value().unsafe_buffer_pointer()
        for path, leaf in leaves
        if isinstance(leaf, nnx.LoRAParam) == of_adapter
    }


def test_the_base_is_there_once_before_and_after_updates(bench: Bench) -> None:
    cluster = bench.learner.rl_cluster
    policy, reference = cluster.actor_trainer.model, cluster.inference_worker.get_model("reference")
    before = buffers(policy, of_adapter=False)
    for step in (1, 2):
        assert bench.run_step(step).finite
    assert buffers(policy, of_adapter=False) == before
    assert buffers(reference, of_adapter=False) == before
    assert cluster.rollout.model() is policy
    assert not set(buffers(policy, of_adapter=True).values()) & set(buffers(reference, of_adapter=True).values())


def test_building_and_updating_leave_no_copy_of_a_base_weight(bench: Bench) -> None:
    def copies() -> int:
        gc.collect()
        arrays: list[jax.Array] = jax.live_arrays()  # type: ignore[no-untyped-call]
        return sum(array.nbytes for array in arrays if array.shape == embedding.shape)

    embedding = bench.learner.rl_cluster.actor_trainer.model.embed_tokens.embedding[...]
    before = copies()
    bench.run_step(1)
    assert copies() == before
    assert bench.learner.rl_cluster._anchor_policy_state is None


def test_tunix_still_keeps_a_copy_of_the_policy_beside_it(bench: Bench) -> None:
    """Where it no longer does, `release_anchor` can go."""
    cluster = bench.learner.rl_cluster
    assert "_anchor_policy_state" in inspect.getsource(type(cluster)._init_cluster)
