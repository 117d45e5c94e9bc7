"""Whole runs on eight virtual devices give the metrics of one, whatever the mesh; `mesh_runs` makes them.

The tolerance: sums over rows and widths are taken in another order, which float32 shows in the sixth or seventh digit,
and a gradient near zero, of which AdamW makes a step of full length, shows a little more of it. Completions are the
same: noise is the row's own, so that only two tokens as likely up to rounding could change places. The loss is near
zero, a difference of sums, so that it has an absolute tolerance.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from agent_tunix.runs.found_run import find_run
from agent_tunix.tracking import read_rows
from agent_tunix.training.exporting import export_run
from tests.eight_devices import run_on_eight_devices

pytestmark = pytest.mark.slow

RELATIVE, ABSOLUTE = 1e-4, 1e-6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all runs."""
    directory = tmp_path_factory.mktemp("runs")
    run_on_eight_devices("tests.training.mesh_runs", directory)
    return directory


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """Return those of each step, without times."""
    return [
        {name: value for name, value in row.items() if not name.startswith(("time/", "throughput/"))}
        for row in read_rows(run / "metrics.jsonl")
    ]


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """List the metrics that are not equal within the tolerance."""
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    wrong = []
    for now, then in zip(found, expected, strict=True):
        assert now.keys() == then.keys()
        for name, value in then.items():
            if isinstance(value, float) and now[name] is not None:
                equal = np.isclose(now[name], value, rtol=RELATIVE, atol=ABSOLUTE)
            else:
                equal = now[name] == value
            if not equal:
                wrong.append(f"step {then['step']} {name}: {now[name]} instead of {value}")
    return wrong


@pytest.mark.parametrize("name", ["divided", "resumed"])
def test_a_run_on_a_mesh_or_resumed_on_another_has_the_metrics_of_one_device(runs: Path, name: str) -> None:
    assert differences(metrics_of(runs / name), metrics_of(runs / "alone")) == []


def test_an_optimiser_with_a_state_of_other_shapes_trains(runs: Path) -> None:
    assert metrics_of(runs / "adafactor")[1]["policy/update_norm/rest"] > 0


def test_a_policy_trained_by_eight_devices_is_exported_by_one_as_by_eight(runs: Path, tmp_path: Path) -> None:
    export_run(find_run(runs / "adafactor"), tmp_path / "exported")
    here, there = (
        load_file(directory / "model.safetensors") for directory in (tmp_path / "exported", runs / "exported")
    )
    assert here.keys() == there.keys()
    for name, weight in here.items():
        np.testing.assert_allclose(there[name], weight, rtol=1e-5, atol=1e-7, err_msg=name)


def test_auto_takes_all_devices_and_says_why(runs: Path) -> None:
    root = runs / "divided"
    assert len(json.loads((root / "environment.json").read_text())["devices"]) == 8
    log = (root / "train.log").read_text()
    assert "model.mesh_shape=auto: [data,fsdp,tp] = [8,1,1]: about" in log
    assert "on each of 8 devices" in log
