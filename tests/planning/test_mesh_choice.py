"""The shapes that `model.mesh_shape=auto` chooses, and those that a model refuses."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.mesh_shape import MeshShape
from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.planning.known_models import KNOWN_MODELS
from agent_tunix.planning.memory import plan_memory
from agent_tunix.planning.mesh_choice import Devices, choose_mesh_shape, shape_problems
from agent_tunix.policy.families import parse_architecture, read_architecture
from agent_tunix.policy.files.config_file import ConfigFile
from tests.policy.small_families import make_family
from tests.raising import raises

GB = 10**9
ARCHITECTURE = parse_architecture(ConfigFile(Path("config.json"), KNOWN_MODELS["Qwen/Qwen3-8B"]))


def plan(weights: float) -> Callable[[MeshShape], int]:
    """So many GB of weights."""
    return lambda shape: int(weights * GB) // shape.weight_shards


def devices(count: int, memory: float = 80.0, per_process: int | None = None) -> Devices:
    """Each with so many GB."""
    return Devices(count, per_process or count, int(memory * GB))


@pytest.mark.parametrize(
    ("count", "weights", "expected"),
    [
        (1, 10, (1, 1, 1)),
        (8, 10, (8, 1, 1)),
        # 100 GB on 80: two parts, which lie over tp.
        (8, 100, (4, 1, 2)),
        (8, 200, (2, 1, 4)),
        (8, 500, (1, 1, 8)),
        (16, 10, (16, 1, 1)),
    ],
)
def test_weights_are_divided_into_as_few_parts_as_fit(count: int, weights: float, expected: tuple[int, ...]) -> None:
    assert choose_mesh_shape(ARCHITECTURE, plan(weights), devices(count), num_rows=64).shape == expected


def test_over_several_processes_tp_stays_within_one() -> None:
    chosen = choose_mesh_shape(ARCHITECTURE, plan(1000), devices(16, per_process=4), num_rows=64)
    assert chosen.shape == MeshShape(data=1, fsdp=4, tp=4)


def test_over_several_processes_no_device_stays_idle() -> None:
    with raises(ConfigError, "idle_devices") as caught:
        choose_mesh_shape(ARCHITECTURE, plan(10), devices(14, per_process=7), num_rows=12)
    assert "multiple of 14 rows" in str(caught.value)


def test_rows_that_all_devices_cannot_share_leave_them_to_tp() -> None:
    chosen = choose_mesh_shape(ARCHITECTURE, plan(10), devices(8), num_rows=4)
    assert chosen.shape == MeshShape(data=4, fsdp=1, tp=2)
    assert "the 4 rows of a micro-batch can be divided over at most 4 of them" in chosen.reason


def test_devices_that_nothing_can_use_stay_idle_and_it_is_said() -> None:
    chosen = choose_mesh_shape(ARCHITECTURE, plan(10), devices(7), num_rows=12)
    assert chosen.shape.size == 6
    assert "1 of 7 devices stay idle" in chosen.reason
    assert "multiple of 7" in chosen.reason


def test_any_number_of_rows_is_divided_where_nothing_trains() -> None:
    assert choose_mesh_shape(ARCHITECTURE, plan(10), devices(7), num_rows=None).shape == (7, 1, 1)


def test_the_reason_names_what_one_device_lacks() -> None:
    reason = choose_mesh_shape(ARCHITECTURE, plan(100), devices(8), num_rows=64).reason
    assert "about 50.00 GB on each of 8 devices with 80.00 GB each" in reason
    assert "on one device it would need 100.00 GB" in reason


def test_what_fits_nowhere_is_divided_as_far_as_it_can_be() -> None:
    chosen = choose_mesh_shape(ARCHITECTURE, plan(10_000), devices(8), num_rows=64)
    assert chosen.shape.weight_shards == 8
    assert "no mesh that fits the model and the batch needs less" in chosen.reason


def test_a_plan_of_sampling_is_weights_and_what_sampling_adds() -> None:
    config = Config()
    config.model.lora_rank = 8
    full = plan_memory(ARCHITECTURE, config, 2)
    assert full.for_sampling().total == full.weights + full.adapter + full.cache + full.sampling


@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])
def test_tp_leaves_heads_whole(num_kv_heads: int) -> None:
    architecture = dataclasses.replace(ARCHITECTURE, num_heads=6, num_kv_heads=num_kv_heads, intermediate_size=48 * 32)
    tp = choose_mesh_shape(architecture, plan(10_000), devices(16), num_rows=64).shape.tp
    assert 6 % tp == 0
    assert num_kv_heads % tp == 0 or tp % num_kv_heads == 0


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((1, 5, 1), ["fsdp=5", "hidden_size 4096", "try fsdp=4"]),
        (
            (1, 1, 3),
            ["tp=3", "num_heads × head_dim 4096", "num_key_value_heads × head_dim 1024", "vocab_size 151936", "tp=2"],
        ),
    ],
)
def test_a_shape_that_does_not_divide_the_model_is_refused_by_size(shape: tuple[int, ...], parts: list[str]) -> None:
    (problem,) = shape_problems(ARCHITECTURE, MeshShape(*shape))
    assert all(part in problem for part in [*parts, "model.mesh_shape=auto"])


def test_data_divides_nothing_of_the_model() -> None:
    assert shape_problems(ARCHITECTURE, MeshShape(7, 1, 1)) == []


def test_two_weights_a_byte_must_both_lie_on_one_device(tmp_path: Path) -> None:
    architecture = read_architecture(make_family(tmp_path / "model", "qwen3"))
    tp = architecture.num_heads * architecture.head_dim
    shape = MeshShape(1, 1, tp)
    assert not [p for p in shape_problems(architecture, shape) if "of nf4" in p]
    assert any("of nf4" in p for p in shape_problems(architecture, shape, "nf4"))
