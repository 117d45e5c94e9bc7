"""The division of the devices of a machine."""

import os
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config, EngineConfig
from agent_tunix.engines.devices import device_variables, divide_devices, find_devices, reserve_devices
from agent_tunix.errors import ConfigError
from tests.raising import raises

EIGHT = [str(number) for number in range(8)]


@pytest.mark.parametrize(
    ("num_processes", "per_process", "expected"),
    [
        (1, None, ("01234567"[:4], ["4567"])),
        (2, None, ("0123", ["45", "67"])),
        (4, 1, ("0123", ["4", "5", "6", "7"])),
        (1, 6, ("01", ["234567"])),
        (5, None, ("012", ["3", "4", "5", "6", "7"])),
    ],
)
def test_the_trainer_keeps_the_first_devices(
    num_processes: int, per_process: int | None, expected: tuple[str, list[str]]
) -> None:
    own, others = divide_devices(EIGHT, num_processes, per_process)
    assert ("".join(own), ["".join(one) for one in others]) == expected


@pytest.mark.parametrize(("devices", "num_processes", "per_process"), [("0", 1, None), ("0123", 2, 2)])
def test_no_device_is_left_for_the_trainer(devices: str, num_processes: int, per_process: int | None) -> None:
    with raises(ConfigError, "not_enough_devices"):
        divide_devices(list(devices), num_processes, per_process)


def test_a_process_on_a_tpu_has_an_arrangement_and_a_port_of_its_own() -> None:
    first, second = (device_variables("TPU_VISIBLE_CHIPS", EIGHT[n * 4 : n * 4 + 4], n) for n in range(2))
    assert second["TPU_VISIBLE_CHIPS"] == "4,5,6,7"
    assert second["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "2,2,1"
    assert second["TPU_PROCESS_BOUNDS"] == "1,1,1"
    assert first["TPU_PROCESS_PORT"] != second["TPU_PROCESS_PORT"]
    with raises(ConfigError, "not_enough_devices"):
        device_variables("TPU_VISIBLE_CHIPS", EIGHT[:3], 0)
    assert device_variables("CUDA_VISIBLE_DEVICES", EIGHT[:3], 0) == {"CUDA_VISIBLE_DEVICES": "0,1,2"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["accel0", "accel1"], ("TPU_VISIBLE_CHIPS", ["0", "1"])),
        (["vfio/0", "vfio/1", "vfio/vfio"], ("TPU_VISIBLE_CHIPS", ["0", "1"])),
        (["nvidia0", "nvidia1", "nvidiactl"], ("CUDA_VISIBLE_DEVICES", ["0", "1"])),
        (["null"], ("CUDA_VISIBLE_DEVICES", [])),
    ],
)
def test_devices_are_counted_by_their_files(
    files: list[str], expected: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAX_PLATFORMS", "TPU_VISIBLE_CHIPS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_devices(tmp_path) == expected


def test_listed_devices_are_those_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert find_devices(tmp_path) == ("CUDA_VISIBLE_DEVICES", ["2", "5"])


def test_a_second_run_in_a_process_divides_the_devices_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("TPU_VISIBLE_CHIPS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9,10,11")
    config = Config(engine=EngineConfig(name="agent_tunix", num_processes=1))
    for _ in range(2):
        assert reserve_devices(config) == [{"CUDA_VISIBLE_DEVICES": "10,11"}]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "8,9"
    config.engine.devices_per_process = 3
    with raises(ConfigError, "not_enough_devices", "restart"):
        reserve_devices(config)
