"""Reports of runs of every kind: complete, small, and true to the run."""

import csv
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking import report
from agent_tunix.tracking.metrics_file import MetricsFile
from agent_tunix.tracking.report import write_analysis, write_report
from agent_tunix.tracking.report.charts import draw_curves
from agent_tunix.tracking.report.curves import Curves
from agent_tunix.tracking.stored_run import StoredRun
from tests.raising import raises
from tests.tracking.report.support import write_run

FINDING: dict[str, Any] = {
    "name": "length_hacking",
    "subject": "brevity",
    "severity": "warning",
    "step": 3,
    "summary": "Paid for <b>length</b>.",
    "evidence": {"rewards/total/length_correlation": 0.912345, "oracle": "down"},
    "rollout_ids": ["3_0_1", "77_0_0"],
    "edits": ["reward.components.brevity.weight=-0.1"],
}


def data_of(page: Path) -> Any:
    """The data inside a page."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert match
    return json.loads(match[1])


def charts_of(page: Path) -> dict[str, Any]:
    return {chart["title"]: chart for section in data_of(page)["sections"] for chart in section["charts"]}


def test_the_calls_of_agents_and_what_breaks_prefixes_are_shown(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", 2, episodes_of="<b>"), tmp_path / "out")
    text = page.read_text("utf-8")
    assert "4 calls of agents did not continue the tokens of an earlier one" in text
    assert "<span>dropped: <code>&lt;b&gt;</code></span> <b>4</b>" in text
    agents = [rollout["agent"] for rollout in data_of(page)["rollouts"] if "agent" in rollout]
    assert len(agents) == 4
    assert "row 1 (transcript), dropped, <b>" in agents[0]


def test_a_report_has_every_picture_and_read_again_is_the_same(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    page = write_report(run, tmp_path / "out")
    assert page == tmp_path / "out" / "report.html"
    assert "What breaks prefixes" not in page.read_text("utf-8")
    assert charts_of(page).keys() >= {
        *("Total reward", "Distribution of the total", "Held-out accuracy", "correct", "brevity"),
        *("Share of the advantage", "Effective weights", "Conflict with the rest", "KL from the reference"),
        *("Entropy", "Gradient norm", "Clipped ratios", "Length", "Dead groups"),
    }
    total = charts_of(page)["Total reward"]["lines"][0]
    assert total["x"] == [1, 2, 3, 4, 5, 6]
    assert len(total["low"]) == len(total["high"]) == 6
    plots = {file.stem: file.read_bytes() for file in (tmp_path / "out" / "plots").iterdir()}
    assert {"rewards", "components", "gradient", "policy", "completions"} <= plots.keys()
    assert all(content.startswith(b"\x89PNG") for content in plots.values())
    again = write_report(StoredRun(run.root), tmp_path / "again", plots=False)
    assert again.read_bytes() == page.read_bytes()


def test_the_page_asks_for_nothing_and_names_its_own_script_alone(tmp_path: Path) -> None:
    text = write_report(write_run(tmp_path / "run", 1), tmp_path / "out", plots=False).read_text("utf-8")
    found: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Reader().feed(text)
    places = [attrs[name] for _, attrs in found for name in ("src", "href", "action", "data") if name in attrs]
    assert all(place is not None and place.startswith(("#", "data:,")) for place in places)
    assert not [attrs for _, attrs in found if any(name.startswith("on") or name == "style" for name in attrs)]
    (policy,) = [attrs["content"] for tag, attrs in found if "http-equiv" in attrs]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


ASSETS = sorted((Path(report.__file__).parent / "assets").glob("*s"))  # scripts and styles


def test_markup_in_findings_and_names_is_text(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    run = write_run(tmp_path / "run", 2, [evil, "b", "a"], findings=[FINDING | {"summary": evil, "edits": [evil]}])
    text = write_report(run, tmp_path / "out", plots=False).read_text("utf-8")
    assert evil not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 3
    assert data_of(tmp_path / "out" / "report.html")["components"] == [evil, "b", "a"]  # in the mixture's order


def test_findings_are_shown_once_as_they_were_last_with_links_to_what_is_stored(tmp_path: Path) -> None:
    later = FINDING | {"severity": "error", "step": 5, "summary": "Worse."}
    other = FINDING | {"name": "dead_groups", "subject": "", "severity": "info", "step": 1}
    run = write_run(tmp_path / "run", findings=[other, FINDING, later])
    text = write_report(run, tmp_path / "out", plots=False).read_text("utf-8")
    assert text.index("length hacking: brevity") < text.index("dead groups")
    assert "Paid for" not in text.partition("dead groups")[0]
    assert "0.9123" in text
    assert 'href="#rollout/3_0_1"' in text
    assert 'href="#rollout/77_0_0"' not in text
    assert "reward.components.brevity.weight=-0.1" in text


@pytest.mark.parametrize(
    ("options", "chart"),
    [
        ({"num_steps": 0}, None),
        ({"num_steps": 1, "components": ["only"]}, "only"),
    ],
    ids=["no steps", "one component"],
)
def test_unusual_runs_have_reports(options: dict[str, Any], chart: str | None, tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path / "run", **options), tmp_path / "out", plots=False)
    if chart is None:
        assert "No step has been recorded yet" in page.read_text("utf-8")
        assert charts_of(page) == {}
    else:
        assert chart in charts_of(page)


def test_rows_of_nulls_make_no_charts_of_zeros(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0)
    with MetricsFile(run.root / "metrics.jsonl") as metrics:
        for step in range(1, 4):
            metrics.write(step, {"rewards/total/mean": None, "rewards/a/weight": 1.0, "rewards/a/histogram": None})
    charts = charts_of(write_report(run, tmp_path / "out", plots=False))
    assert charts.keys() == {"Effective weights"}


def test_a_run_killed_while_writing_is_reported(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 3, max_steps=50)
    with open(run.root / "metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rewards/tot')
    (run.root / "environment.json").unlink()
    text = write_report(run, tmp_path / "out", plots=False).read_text("utf-8")
    assert re.search(r'value">3<.*?note">of 50<', text, re.DOTALL)


@pytest.mark.slow
def test_many_steps_and_components_stay_small(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 5, [f"c{number}" for number in range(42)], num_prompts=1)
    mean = {"rewards/total/mean": 0.5}
    with (run.root / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, **mean}) + "\n" for step in range(6, 2001))
    page = write_report(run, tmp_path / "out")
    assert page.stat().st_size < 5_000_000
    lines = [line for chart in charts_of(page).values() for line in chart["lines"]]
    assert max(len(line["x"]) for line in lines) <= 400
    for said in ("Each point of a curve represents up to", "2 further components"):
        assert said in page.read_text("utf-8")


def test_what_a_reward_logs_is_no_component_and_names_may_contain_slashes() -> None:
    curves = Curves()
    names = ("a/weight", "b/c/weight", "a/logged/weight", "a/logged/x/weight", "a/components/weight", "conflicts/a/b/c")
    curves.add({"step": 1} | {f"rewards/{name}": 0.5 for name in names})
    pictures = draw_curves(curves)
    assert (list(pictures.components), pictures.conflicts) == (["a", "b/c"], [("a", "b/c", 0.5)])


@pytest.mark.slow
def test_long_completions_stay_small_and_the_page_says_what_it_shows(tmp_path: Path) -> None:
    def respond(step: int, place: int) -> str:
        return f"{step} {place} " + "<漢>" * 20_000

    page = write_report(write_run(tmp_path / "run", 20, num_prompts=8, respond=respond), tmp_path / "out", plots=False)
    assert page.stat().st_size < 5_000_000
    assert re.search(r"[\d,]+ of 640 stored rollouts \(", page.read_text("utf-8"))
    assert "characters omitted" in page.read_text("utf-8")


def test_an_earlier_report_stays_whole_if_the_next_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", 1)
    before = write_report(run, run.root, plots=False).read_text("utf-8")

    def refuse(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with raises(RunDirectoryError, "unwritable_directory"):
        write_report(run, run.root, plots=False)
    assert (run.root / "report.html").read_text("utf-8") == before
    assert not list(run.root.glob(".*.partial"))


def test_the_analysis_covers_every_stored_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 5, unscored_share=0.2, findings=[FINDING])
    analysis = json.loads(write_analysis(run, tmp_path / "out").read_text())
    assert analysis["covers"] == {"steps": 5, "completions": 40, "share_stored": 1.0}
    assert sum(analysis["outcomes"].values()) == 40
    assert {"mean", "variance", "skew"} <= analysis["total"].keys()
    assert {example["step"] for example in analysis["top"]} <= {1, 2, 3, 4, 5}
    assert analysis["failures"]["timeout"]
    assert analysis["findings"][0]["name"] == "length_hacking"
    with open(tmp_path / "out" / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert [row["eval/accuracy"] for row in rows] == ["0.2", "", "", "", "", "0.95"]


@pytest.mark.slow
def test_the_command_reports_and_loads_no_jax(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2)
    program = (
        "import sys, agent_tunix.tracking.report\n"
        "assert not {'matplotlib', 'pyarrow', 'jax'} & sys.modules.keys()\n"
        "from agent_tunix.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'jax', 'tensorflow', 'matplotlib.pyplot'} & sys.modules.keys()"
    )
    arguments = ["report", str(run.root), "--to", str(tmp_path / "out"), "--data"]
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    written = [str(tmp_path / "out" / name) for name in ("report.html", "reward_analysis.json")]
    assert result.stdout.splitlines() == written
    assert not (run.root / "report.html").exists()


def test_the_first_prompt_is_shown_as_text(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    stored = run.root / "environment.json"
    environment = json.loads(stored.read_text())
    prompt = {"row": 7, "tools": ["add"], "text": "<|im_start|>user\n<b>2 + 2?</b>", "num_tokens": 12}
    stored.write_text(json.dumps({**environment, "first_prompt": prompt}))
    page = write_report(StoredRun(run.root), tmp_path / "out", plots=False).read_text()
    assert "row 7, 12 tokens" in page
    assert "&lt;|im_start|&gt;user\n&lt;b&gt;2 + 2?&lt;/b&gt;" in page
    stored.write_text(json.dumps({**environment, "first_prompt": "odd"}))
    assert "as the model sees it" not in write_report(StoredRun(run.root), tmp_path / "out", plots=False).read_text()
