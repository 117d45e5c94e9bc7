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
from tests.policy.support import make_larger
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
    ("given", "weights", "num_rows", "expected", "said"),
    [
        (devices(1), 10, 64, (1, 1, 1), ""),
        (devices(8), 10, 64, (8, 1, 1), ""),
        # 100 GB on 80: two parts, which lie over tp.
        (devices(8), 100, 64, (4, 1, 2), "about 50.00 GB on each of 8 devices with 80.00 GB each"),
        (devices(8), 100, 64, (4, 1, 2), "on one device it would need 100.00 GB"),
        (devices(8), 200, 64, (2, 1, 4), ""),
        (devices(8), 500, 64, (1, 1, 8), ""),
        (devices(16), 10, 64, (16, 1, 1), ""),
        (devices(8), 10_000, 64, (1, 1, 8), "no mesh that fits the model and the batch needs less"),
        # Over several processes, tp stays within one.
        (devices(16, per_process=4), 1000, 64, (1, 4, 4), ""),
        # Rows that all devices cannot share leave them to tp, or idle.
        (devices(8), 10, 4, (4, 1, 2), "the 4 completions of a micro-batch can be divided over at most 4 of them"),
        (devices(7), 10, 12, (6, 1, 1), "1 of 7 devices stay idle"),
        (devices(7), 10, None, (7, 1, 1), ""),
    ],
)
def test_weights_are_divided_into_as_few_parts_as_fit(
    given: Devices, weights: float, num_rows: int | None, expected: tuple[int, ...], said: str
) -> None:
    chosen = choose_mesh_shape(ARCHITECTURE, plan(weights), given, num_rows=num_rows)
    assert chosen.shape == expected
    assert said in chosen.reason


def test_over_several_processes_no_device_stays_idle() -> None:
    with raises(ConfigError, "invalid_devices", "multiple of 14"):
        choose_mesh_shape(ARCHITECTURE, plan(10), devices(14, per_process=7), num_rows=12)


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
        ((1, 5, 1), ["fsdp=5", "hidden_size 4096", "use fsdp=4"]),
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
    architecture = read_architecture(make_larger(tmp_path / "model", "qwen3"))
    tp = architecture.num_heads * architecture.head_dim
    shape = MeshShape(1, 1, tp)
    assert not [p for p in shape_problems(architecture, shape) if "of nf4" in p]
    assert any("of nf4" in p for p in shape_problems(architecture, shape, "nf4"))
