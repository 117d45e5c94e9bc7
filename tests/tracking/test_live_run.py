import json
from pathlib import Path

from agent_tunix.tracking.findings_file import FindingsFile
from agent_tunix.tracking.live_run import LiveRun
from agent_tunix.workbench.diagnosis import Finding, Severity
from tests.tracking.report.support import write_run


def test_components_evaluations_and_configuration(tmp_path: Path) -> None:
    write_run(tmp_path / "run", num_steps=6)
    run = LiveRun(tmp_path / "run")
    assert run.components() == ["brevity", "correct"]
    evaluations, _ = run.metrics.evaluations()
    assert [row["step"] for row in evaluations] == [0, 6]
    assert evaluations[1]["eval/accuracy"] == 0.95
    assert run.config is not None
    assert run.config["grpo"]["loss"] == "grpo"


def test_a_directory_without_readable_files_has_gaps(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: [")
    run = LiveRun(tmp_path)
    assert (run.config, run.components(), run.findings()) == (None, [], ([], 0))


def test_damaged_findings_are_left_out_and_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "run", num_steps=1)
    path = tmp_path / "run" / "findings.jsonl"
    finding = Finding("dead_component", next(iter(Severity)), 3, "It is dead.", "brevity", {"share": 0.5}, ("3_0_1",))
    with FindingsFile(path, None) as file:
        file.write(finding)
    with path.open("a") as damaged:
        damaged.write("nothing\n" + json.dumps({"step": 4}) + "\n" + '{"name": "half')
    assert LiveRun(tmp_path / "run").findings() == ([finding], 2)
