"""Settings of JAX before it is imported, and garbage collection while a program starts."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.errors import ConfigError, DeviceMemoryError
from agent_tunix.startup import devices
from agent_tunix.startup.devices import explained_memory, prepare
from tests.raising import raises


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/nowhere")


def flags(**settings: object) -> list[str]:
    prepare(DistributedConfig(**settings))  # type: ignore[arg-type]
    return os.environ["XLA_FLAGS"].split()


BARRIERS = "--xla_disable_hlo_passes=cse_barrier_expander"
LESS = "--xla_backend_extra_options=xla_cpu_disable_loop_unrolling,xla_cpu_disable_tiled_emitter"
LEVEL = "--xla_backend_optimization_level=1"


def test_on_a_cpu_recomputation_is_kept_apart_and_less_is_compiled() -> None:
    assert flags(platform="cpu") == [BARRIERS, LESS, LEVEL]


def test_preparing_twice_says_everything_once() -> None:
    once = flags(platform="cpu", num_cpu_devices=2)
    assert "--xla_force_host_platform_device_count=2" in once
    assert flags(platform="cpu", num_cpu_devices=2) == once


def test_an_accelerators_compiler_is_left_alone() -> None:
    assert flags(platform="gpu") == []


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("--xla_disable_hlo_passes=algsimp", [LESS, LEVEL]),
        ("--xla_backend_extra_options=xla_cpu_optimize_for_size", [BARRIERS, LEVEL]),
        ("--xla_backend_optimization_level=3", [BARRIERS, LESS]),
    ],
)
def test_what_the_user_has_said_stays(monkeypatch: pytest.MonkeyPatch, said: str, added: list[str]) -> None:
    monkeypatch.setenv("XLA_FLAGS", said)
    assert flags(platform="cpu") == [said, *added]


@pytest.mark.parametrize(("many", "forgets"), [(0.0, True), (1.0, False)])
def test_programs_are_forgotten_only_if_many(monkeypatch: pytest.MonkeyPatch, many: float, forgets: bool) -> None:
    import jax

    monkeypatch.setattr(devices, "_MANY", many)
    double = jax.jit(lambda number: number * 2)
    double(1)
    assert devices.make_room_for_programs() is forgets
    assert double._cache_size() == (0 if forgets else 1)  # type: ignore[attr-defined]


def test_a_device_without_enough_memory_is_explained() -> None:
    with raises(DeviceMemoryError, "out_of_device_memory") as caught, explained_memory():
        jax.jit(lambda: jnp.zeros(2**46) + 1)()
    assert "training.micro_batch_size" in str(caught.value)


def test_other_errors_of_a_device_stay_as_they_are() -> None:
    with pytest.raises(RuntimeError, match="INTERNAL"), explained_memory():
        raise RuntimeError("INTERNAL: no memory of this kind")


@pytest.mark.parametrize(("limit", "is_enough"), [(1_500_000_000, False), (8_000_000_000, True), (-1, True)])
def test_too_little_address_space_is_refused_before_jax_is_imported(
    limit: int, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    if is_enough:
        prepare(DistributedConfig(compilation_cache=None))
        return
    with raises(ConfigError, "not_enough_memory") as caught:
        prepare(DistributedConfig(compilation_cache=None))
    assert "\n" not in str(caught.value)


def test_a_device_without_enough_memory_names_the_limit_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3_000_000_000,) * 2)
    with pytest.raises(DeviceMemoryError, match=r"3\.0 GB of address space"), explained_memory():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")


@pytest.mark.slow
def test_a_run_with_a_small_ulimit_ends_in_one_line(tmp_path: Path) -> None:
    command = f"ulimit -v 1500000; {sys.executable} -m agent_tunix train +experiment=quick_test"
    done = subprocess.run(
        ["bash", "-c", f"{command} hydra.run.dir={tmp_path}/run"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "ulimit -v" in done.stderr
