"""The command line of `scripts/proofs.py`, without its proofs."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "scripts/proofs.py", *arguments]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_names_the_proofs_are_listed() -> None:
    done = call()
    assert done.returncode == 0
    assert {"main job, seed 0", "processes"} < set(done.stdout.splitlines())


def test_unknown_proof_is_refused() -> None:
    done = call("main job, seed 9")
    assert done.returncode == 2
    assert "main job, seed 9" in done.stderr


def test_real_model_says_that_torch_is_missing_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    venv.create(tmp_path / "bare")
    done = call("real model", "--model", str(tmp_path), "--torch", str(tmp_path / "bare" / "bin" / "python"))
    assert done.returncode == 2
    assert "No module named 'torch'" in done.stderr
    assert "--torch" in done.stderr


def test_real_model_needs_a_model_directory(tmp_path: Path) -> None:
    done = call("real model", "--model", str(tmp_path), "training.batch_size=2")
    assert done.returncode == 2
    assert "config.json" in done.stderr
