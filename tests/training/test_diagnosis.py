"""Diagnosis of a run while it goes on and afterwards; `scripts/proofs.py` has all sick and healthy runs."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_tunix.cli import main
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking import read_findings
from agent_tunix.training.train import train
from tests.small_run import SMALL_RUN
from tests.training.sick_runs import SETTINGS, Case, check_case, compose_config, run_case
from tests.training.support import copy_run, train_run

pytestmark = pytest.mark.slow

# Of the shapes of all small runs.
SMALL = (*SMALL_RUN, "rollouts.share=1")
CUT = Case("cut", "truncation", 4, (*SMALL, "generation.max_generation_steps=6", "training.save_interval_steps=2"))


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose completions are cut."""
    directory = tmp_path_factory.mktemp("cut")
    check_case(CUT, run_case(CUT, directory))
    return directory / "run"


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is too short for any finding."""
    root = tmp_path_factory.mktemp("well") / "run"
    train_run(root, "training.num_batches=1", "training.eval_every_n_steps=0")
    return root


def diagnose(run: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["rewards", "diagnose", str(run), *options])


def test_a_sick_run_says_so_in_its_log_with_completions_and_edits(cut: Path) -> None:
    log = (cut / "train.log").read_text()
    assert "WARNING agent_tunix.diagnosis: truncation, step 2" in log
    (finding, *_) = read_findings(cut / "findings.jsonl")
    assert all(rollout_id.startswith("2_") for rollout_id in finding.rollout_ids)
    assert len(finding.rollout_ids) == 3
    assert finding.edits == ("generation.max_generation_steps=12",) or finding.edits == (
        "generation.max_generation_steps=24",
    )
    compose_config([*SETTINGS, *CUT.overrides, *finding.edits])


def test_diagnose_finds_afterwards_what_was_found_live(cut: Path) -> None:
    live = read_findings(cut / "findings.jsonl")
    result = diagnose(cut, "--json")
    assert result.exit_code == 1
    after = {(f["name"], f["step"]): f for f in json.loads(result.stdout)}
    assert after[live[0].name, live[0].step]["rollout_ids"] == list(live[0].rollout_ids)
    assert {name for name, _ in after} == {finding.name for finding in live}
    assert "  try: generation.max_generation_steps=" in diagnose(cut).stdout


def test_a_healthy_run_has_no_findings_live_or_afterwards(well: Path) -> None:
    assert not (well / "findings.jsonl").exists()
    result = diagnose(well)
    assert (result.exit_code, result.stdout) == (0, "no findings\n")


def test_diagnose_refuses_what_is_no_run(tmp_path: Path, well: Path) -> None:
    assert diagnose(tmp_path / "nowhere").exit_code == 2
    result = diagnose(tmp_path)
    assert result.exit_code == 2
    assert "must be the directory of a run" in result.stderr
    shutil.copytree(well, tmp_path / "old")
    environment = json.loads((well / "environment.json").read_text())
    del environment["context"]
    (tmp_path / "old" / "environment.json").write_text(json.dumps(environment))
    result = diagnose(tmp_path / "old")
    assert (result.exit_code, "earlier versions cannot be diagnosed" in result.stderr) == (2, True)


def test_a_resumed_run_has_the_findings_of_an_unbroken_one(cut: Path, tmp_path: Path) -> None:
    run = copy_run(cut, tmp_path / "run", without=4)
    before = (cut / "findings.jsonl").read_bytes()
    with (run / "findings.jsonl").open("a") as file:
        file.write('{"step": 3, "name": "made_up_past_the_checkpoint"}\n{"step": 4, "na')
    config = CUT.config()
    config.training.resume = True
    train(preflight(config, tmp_path), run)
    assert (run / "findings.jsonl").read_bytes() == before
