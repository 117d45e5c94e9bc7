"""The main job learns: one seed of what `scripts/proofs.py` proves for all."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.usefixtures("optimized")
def test_main_job_learns() -> None:
    spec = importlib.util.spec_from_file_location("proofs", ROOT / "scripts" / "proofs.py")
    assert spec is not None
    assert spec.loader is not None
    proofs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(proofs)
    proofs.prove_learning(seed=0)
