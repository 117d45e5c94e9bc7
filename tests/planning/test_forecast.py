"""Forecasts of a run: operations and bounds counted by hand, and the largest settings that fit."""

import dataclasses
import math
from pathlib import Path

import pytest

from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.planning.accelerators import ACCELERATORS, Accelerator, find_accelerator
from agent_tunix.planning.forecast import Assumptions, forecast_run
from agent_tunix.planning.known_models import KNOWN_MODELS, plannable_architecture
from agent_tunix.planning.memory import ONE_DEVICE, plan_memory
from agent_tunix.planning.work import count_operations, work_of_step
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families import parse_architecture
from agent_tunix.policy.files.config_file import ConfigFile
from agent_tunix.policy.files.tensors import list_tensors
from tests.policy.published_configs import PUBLISHED
from tests.raising import raises

# 2 layers of queries 8, keys 4, MLP 16 on a residual stream of 8: each 8·8 + 2·4·8 + 8·8 + 3·8·16 = 576 weights.
SIZES = {
    "model_type": "qwen3",
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
SMALL = parse_architecture(ConfigFile(Path("config.json"), SIZES))


def make_config(*, prompts: int = 2, group: int = 4, prompt: int = 6, completion: int = 5, rank: int = 0) -> Config:
    config = Config()
    config.model.lora_rank = rank
    config.training.batch_size, config.grpo.num_generations = prompts, group
    config.generation.max_prompt_length, config.generation.max_generation_steps = prompt, completion
    return config


def known(name: str) -> Architecture:
    return plannable_architecture(dataclasses.replace(ModelConfig(), path=f"hf://{name}"))


def test_operations_of_a_token_are_twice_the_weights_it_meets() -> None:
    counts = count_operations(SMALL)
    assert counts.of_token == 2 * 2 * 576
    assert counts.of_logits == 2 * 8 * 10
    assert counts.of_pair == 2 * 2 * 2 * 8  # two products of width 8, two operations each, two layers


def test_a_prompt_is_read_once_however_many_completions_it_has() -> None:
    few, many = (
        work_of_step(SMALL, make_config(group=group, completion=1, prompt=1000), 4, ONE_DEVICE) for group in (2, 8)
    )
    assert many["prefill"].flops < 1.01 * few["prefill"].flops
    assert many["update"].flops < 1.2 * few["update"].flops


def test_an_update_is_three_passes_and_two_through_frozen_matrices() -> None:
    full, lora = (work_of_step(SMALL, make_config(rank=rank), 4, ONE_DEVICE) for rank in (0, 1))
    counts = count_operations(SMALL)
    tokens, logits = 2 * 6 + 8 * 5, 8 * 5
    pairs = 2 * 6 * 6 + 8 * 5 * (5 + 6)
    forward = tokens * counts.of_token + pairs * counts.of_pair + logits * counts.of_logits
    assert full["reference"].flops == forward
    # Logits are computed again for the backward pass.
    assert full["update"].flops == 3 * forward + logits * counts.of_logits
    of_adapter = count_operations(SMALL, 1)
    assert lora["update"].flops == 2 * tokens * of_adapter.of_token + 3 * (
        pairs * counts.of_pair + logits * counts.of_logits
    )


def test_with_an_engine_the_trainer_alone_is_planned() -> None:
    config = make_config()
    own = forecast_run(SMALL, config, Accelerator("device", 10**9, 1e12), ONE_DEVICE, 4)
    config.engine.name = "vllm"
    planned = forecast_run(SMALL, config, Accelerator("device", 10**9, 1e12), ONE_DEVICE, 4)
    assert planned.memory.while_sampling == 0 < own.memory.while_sampling
    assert planned.memory.held == own.memory.held
    assert set(own.phases) - set(planned.phases) == {"prefill", "decode"}
    assert planned.evaluation == {}


def test_no_reference_is_counted_without_a_penalty() -> None:
    config = make_config()
    config.grpo.beta = 0.0
    assert list(work_of_step(SMALL, config, 4, ONE_DEVICE)) == ["prefill", "decode", "update"]


def test_a_teacher_is_a_forward_pass_of_its_own_size() -> None:
    config = make_config()
    config.grpo.teacher = config.model.path = "hf://Qwen/Qwen3-0.6B"
    found = work_of_step(SMALL, config, 4, ONE_DEVICE)
    assert found["teacher"] == found["reference"]  # the policy before training
    config.grpo.teacher = "hf://Qwen/Qwen3-8B"
    larger = work_of_step(known("Qwen/Qwen3-0.6B"), config, 2, ONE_DEVICE)
    assert larger["teacher"].flops > 10 * larger["reference"].flops
    assert larger["teacher"].read == 2 * 8_190_735_360


def test_decoding_reads_weights_and_cache_for_every_token() -> None:
    config = make_config()
    weights = plan_memory(SMALL, config, 4).weights
    cache = (2 * 6 + 8 * 5) * 2 * 2 * 4 * 4  # keys and values of two layers, width 4, four bytes
    logits = 3 * 8 * 10 * 4
    assert work_of_step(SMALL, config, 4, ONE_DEVICE)["decode"].read == 5 * (weights + cache + logits)


def test_an_evaluation_goes_through_the_weights_once_a_batch() -> None:
    config = make_config()
    config.evaluation.num_samples, config.evaluation.batch_size, config.evaluation.num_passes = 10, 4, 2
    found = forecast_run(SMALL, config, ACCELERATORS["h100"], ONE_DEVICE, 4)
    assert found.evaluation["prefill"].work.read == 3 * 2 * plan_memory(SMALL, config, 4).weights


def test_an_evaluation_has_no_more_rows_than_its_batches_hold() -> None:
    few, limited = make_config(), make_config()
    few.evaluation.num_samples, few.evaluation.batch_size = 16, 8
    limited.evaluation.num_samples, limited.evaluation.batch_size, limited.training.num_test_batches = 1000, 8, 2
    found = [forecast_run(SMALL, config, ACCELERATORS["h100"], ONE_DEVICE, 4).evaluation for config in (few, limited)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("device", "bound"),
    [
        (Accelerator("a", 10**9, flops=1.0, bandwidth=1e12, link=1e12), "compute"),
        (Accelerator("b", 10**9, flops=1e15, bandwidth=1.0, link=1e12), "memory"),
        (Accelerator("c", 10**9, flops=1e15, bandwidth=1e12, link=1.0), "links"),
        (Accelerator("d", 10**9, flops=1e15, bandwidth=1e12, link=1e12, layer_s=1e6), "launches"),
    ],
)
def test_a_phase_takes_as_long_as_its_slowest_part(device: Accelerator, bound: str) -> None:
    found = forecast_run(SMALL, make_config(), device, MeshShape(1, 2, 1), 4, Assumptions(0.5, 0.25))
    decode = found.phases["decode"]
    expected = {
        "compute": decode.work.flops / 2 / 0.5,
        "memory": decode.work.read / 0.25,
        "links": decode.work.sent / 0.25,
        "launches": decode.work.layers * device.layer_s,
    }
    assert decode.bound == bound
    assert decode.seconds == pytest.approx(expected[bound])


def test_a_run_is_its_steps_and_evaluations() -> None:
    config = make_config()
    config.training.num_batches, config.training.eval_every_n_steps, config.training.num_epochs = 10, 4, 2
    found = forecast_run(SMALL, config, ACCELERATORS["h100"], ONE_DEVICE, 2)
    assert (found.steps, found.evaluations) == (20, 2 + 4)
    assert found.step_seconds is not None
    assert found.run_seconds is not None
    assert found.run_seconds > 20 * found.step_seconds


def test_the_largest_values_fit_and_the_next_ones_do_not() -> None:
    architecture = known("Qwen/Qwen3-0.6B")
    config = make_config(prompts=16, group=8, prompt=512, completion=512, rank=16)
    found = forecast_run(architecture, config, ACCELERATORS["v6e"], ONE_DEVICE, 2)
    assert found.largest_micro_batch is not None
    assert found.largest_group is not None

    def total(micro: int, group: int) -> int:
        config.training.micro_batch_size, config.grpo.num_generations = micro, group
        return plan_memory(architecture, config, 2).total

    assert total(found.largest_micro_batch, 8) <= found.available < total(2 * found.largest_micro_batch, 8)
    assert total(1, found.largest_group) <= found.available < total(1, found.largest_group + 1)


def test_a_run_that_cannot_fit_or_a_device_of_unknown_speed_has_no_figures() -> None:
    found = forecast_run(known("Qwen/Qwen3-32B"), make_config(), Accelerator("x", 10**9), ONE_DEVICE, 2)
    assert (found.fits, found.largest_micro_batch, found.largest_group) == (False, None, None)
    assert (found.step_seconds, found.tokens_per_second, found.run_seconds) == (None, None, None)


def test_a_device_is_found_by_its_name_and_others_are_named() -> None:
    assert find_accelerator("H100").memory_bytes == 80_000_000_000
    with raises(ConfigError, "invalid_devices", "a100-40, "):
        find_accelerator("h9")


@pytest.mark.parametrize("name", sorted(set(PUBLISHED) & set(KNOWN_MODELS)))
def test_sizes_of_a_known_model_are_those_it_is_published_with(name: str) -> None:
    planned = [tensor.shape for tensor in list_tensors(known(name))]
    published = parse_architecture(ConfigFile(Path(name), PUBLISHED[name].config))
    assert planned == [tensor.shape for tensor in list_tensors(published)]


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen3-1.7B", 1_720_574_976),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-14B", 14_768_307_200),
    ],
)
def test_a_known_model_has_as_many_weights_as_its_page_says(name: str, weights: int) -> None:
    assert sum(math.prod(tensor.shape) for tensor in list_tensors(known(name))) == weights


def test_a_model_of_a_hub_that_is_not_known_is_refused_with_what_to_do() -> None:
    with raises(ModelError, "unknown_model", "set model.path=DIR"):
        known("some/body")


@pytest.mark.parametrize("shape", [MeshShape(1, 2, 1), MeshShape(1, 1, 2), MeshShape(1, 4, 2)])
def test_a_mesh_divides_matrices_and_copies_vectors(shape: MeshShape) -> None:
    architecture = known("Qwen/Qwen3-0.6B")
    config = make_config(prompts=16)
    vectors = 4 * sum(math.prod(t.shape) for t in list_tensors(architecture) if len(t.shape) == 1)
    whole, part = plan_memory(architecture, config, 4), plan_memory(architecture, config, 4, shape)
    assert part.weights - vectors == (whole.weights - vectors) // shape.size
    assert part.cache == whole.cache // shape.size


def test_copies_divide_rows_and_no_weights() -> None:
    config = make_config(prompts=16, rank=4)
    whole, part = plan_memory(SMALL, config, 4), plan_memory(SMALL, config, 4, MeshShape(4, 1, 1))
    assert (part.weights, part.adapter, part.optimizer) == (whole.weights, whole.adapter, whole.optimizer)
    assert part.cache == whole.cache // 4
