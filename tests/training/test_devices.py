"""What JAX is told before it is imported."""

import os

import pytest

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.training import devices
from agent_tunix.training.devices import prepare


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XLA_FLAGS", "JAX_PLATFORMS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/nowhere")


def flags(**settings: object) -> list[str]:
    prepare(DistributedConfig(**settings))  # type: ignore[arg-type]
    return os.environ["XLA_FLAGS"].split()


def test_on_a_cpu_recomputation_is_kept_apart() -> None:
    assert flags(platform="cpu") == ["--xla_disable_hlo_passes=cse_barrier_expander"]


def test_preparing_twice_says_everything_once() -> None:
    once = flags(platform="cpu", num_cpu_devices=2)
    assert "--xla_force_host_platform_device_count=2" in once
    assert flags(platform="cpu", num_cpu_devices=2) == once


def test_an_accelerators_compiler_is_left_alone() -> None:
    assert flags(platform="gpu") == []


def test_what_the_user_has_said_of_passes_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_disable_hlo_passes=algsimp")
    assert flags(platform="cpu") == ["--xla_disable_hlo_passes=algsimp"]


@pytest.mark.parametrize(("many", "forgets"), [(0.0, True), (1.0, False)])
def test_programs_are_forgotten_only_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch, many: float, forgets: bool
) -> None:
    import jax

    monkeypatch.setattr(devices, "_MANY", many)
    double = jax.jit(lambda number: number * 2)
    double(1)
    assert devices.make_room_for_programs() is forgets
    assert double._cache_size() == (0 if forgets else 1)  # type: ignore[attr-defined]
