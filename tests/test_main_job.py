"""The main job learns: one seed of what `scripts/proofs.py` proves for all."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.usefixtures("optimized")
def test_a_short_main_job_learns(tmp_path: Path) -> None:
    """Two fifths of the steps, of which the first six score 0.4 and the last six 0.86."""
    shorter = ("training.num_batches=24", "evaluation.num_samples=100", "tracking.report=false")
    command = ("run_training.py", "training.reward_function=math", "seed=0", f"hydra.run.dir={tmp_path}/run", *shorter)
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rewards = [row["rewards/total/mean"] for row in rows if row["step"] > 0]
    accuracies = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
    assert fmean(rewards[-6:]) > fmean(rewards[:6]) + 0.3
    assert accuracies[-1] > accuracies[0] + 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("optimized")
def test_main_job_learns() -> None:
    spec = importlib.util.spec_from_file_location("proofs", ROOT / "scripts" / "proofs.py")
    assert spec is not None
    assert spec.loader is not None
    proofs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(proofs)
    proofs.prove_learning(seed=0)
