import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.service.inspector.support import EVIL, Visitor, showing, visiting
from tests.tracking.report.support import plain_response, write_run

FINDING = {
    "name": "dead_groups",
    "severity": "warning",
    "step": 4,
    "summary": f"too many {EVIL}",
    "subject": "correct",
    "evidence": {"share": 0.75, EVIL: EVIL, "unknown": None, "is_so": True},
    "rollout_ids": ["4_1_2", EVIL],
    "edits": [f"grpo.x={EVIL}"],
}


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visitor]:
    """Somebody who looks at a directory of runs, all of whose texts would like to be markup."""
    directory = tmp_path_factory.mktemp("service")
    runs = directory / "runs"
    runs.mkdir()
    write_run(
        runs / "one",
        6,
        ("correct", EVIL, "brevity"),
        respond=lambda step, place: EVIL if place == 3 else plain_response(step, place),
        unscored_share=0.2,
        findings=[FINDING],
    )
    write_run(runs / "one step", 1)
    write_run(runs / "episodes", 2, episodes_of="add")
    with showing(directory, runs) as server, visiting(server) as visitor:
        yield visitor


@pytest.fixture
def ids(alice: Visitor) -> dict[str, str]:
    found = alice.get("/v1/runs").status_code
    assert found == 401  # the page alone is asked here
    links = re.findall(r'href="/runs/(run_[a-z2-7]{24})" data-item>([^<]*)<', alice.get("/runs").text)
    return {name: id for id, name in links}


@pytest.fixture
def run(ids: dict[str, str]) -> str:
    return f"/runs/{ids['one']}"


def anchors(page: str) -> list[str]:
    return re.findall(r'<article class="rollout" id="([^"]+)"', page)


def test_runs_are_listed_with_their_state(alice: Visitor, ids: dict[str, str]) -> None:
    assert set(ids) == {"one", "one step", "episodes"}
    page = alice.get("/runs").text
    assert 'class="state stopped"' in page
    assert ">tiny<" in page


def test_a_run_is_shown_with_its_findings_and_configuration(alice: Visitor, run: str) -> None:
    page = alice.get(run).text
    assert "dead groups: correct" in page
    assert f'href="{run}/steps/4/groups/1#r-4_1_2"' in page
    assert "0.75" in page
    assert re.search(r"<dt>num_generations</dt><dd><code>\d+</code>", page)


def test_curves_are_sent_once_until_there_is_more(alice: Visitor, run: str) -> None:
    first = alice.get(f"{run}/curves.json").json()
    assert (first["state"], first["step"], first["is_whole"]) == ("stopped", 6, True)
    titles = [chart["title"] for section in first["sections"] for chart in section["charts"]]
    assert {"Total reward", "correct", "brevity", "Held-out accuracy", "KL from the reference", "Entropy"} < set(titles)
    correct = next(
        c for s in first["sections"] if s["key"] == "components" for c in s["charts"] if c["title"] == "correct"
    )
    assert len(correct["lines"][0]["low"]) == len(correct["lines"][0]["y"]) == 6
    again = alice.get(f"{run}/curves.json", params={"step": 6, "version": first["version"]}).json()
    assert again == {"state": "stopped"}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("step=2", [f"r-2_{group}_{place}" for group in (0, 1) for place in range(4)]),
        ("step=2&group=1", [f"r-2_1_{place}" for place in range(4)]),
        ("step=9", []),
        ("q=no+such+text", []),
        ("step=&group=&outcome=&min_reward=&max_reward=&q=&sort=&after=", None),
    ],
)
def test_rollouts_are_found(alice: Visitor, run: str, asked: str, expected: list[str] | None) -> None:
    found = anchors(alice.get(f"{run}/rollouts?{asked}").text)
    assert found == expected or (expected is None and len(found) == 20)


def test_rollouts_are_sorted_and_filtered_by_what_they_earned(alice: Visitor, run: str) -> None:
    page = alice.get(f"{run}/rollouts?step=3&sort=-reward&outcome=scored&min_reward=0").text
    rewards = [float(found) for found in re.findall(r"<dt>Reward</dt><dd>([\d.]+)</dd>", page)]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards
    failed = alice.get(f"{run}/rollouts?outcome=timeout").text
    assert set(re.findall(r"<dt>Reward</dt><dd>([^<]+)</dd>", failed)) == {"–"}
    assert "took longer than 10 s" in failed


def test_episodes_are_conversations_and_found_by_end_and_tool(alice: Visitor, ids: dict[str, str]) -> None:
    path = f"/runs/{ids['episodes']}/rollouts"
    page = alice.get(f"{path}?stop_reason=error&tool=add").text
    assert {anchor[:4] for anchor in anchors(page)} == {"r-1_"}
    assert page.count('<summary><code>add</code> <span class="when">250\u00a0ms</span></summary>') == 8
    assert page.count('<span class="chip">malformed</span>') == 8
    for text in ("the result add", "reply add", "fault add", "{&#34;expression&#34;: &#34;add&#34;}"):
        assert text in page
    assert page.count("row 1 (transcript), dropped, add") == 2  # the first episode of each group is an agent's
    assert anchors(alice.get(f"{path}?tool=other").text) == []
    assert 'name="stop_reason"' not in alice.get(f"/runs/{ids['one step']}/rollouts").text


def test_pages_of_rollouts_follow_one_another_and_share_by_their_address(alice: Visitor, run: str) -> None:
    path = f"{run}/rollouts?q=reasoning&sort=length"
    seen: list[str] = []
    while path:
        page = alice.get(path).text
        seen += anchors(page)
        found = re.search(r'href="([^"]+)" rel="next"', page)
        path = found[1].replace("&amp;", "&") if found else ""
    assert len(seen) == len(set(seen)) == 6 * 7  # all but the one of each step that says something else


@pytest.mark.parametrize(
    "asked", ["step=1e3", "outcome=fine", "stop_reason=x", "min_reward=nan", f"q={'a' * 201}", "after=x"]
)
def test_an_impossible_query_is_explained_on_a_page(alice: Visitor, run: str, asked: str) -> None:
    page = alice.get(f"{run}/rollouts?{asked}")
    assert page.status_code == 400
    assert 'role="alert"' in page.text
    if not asked.startswith("after"):  # which nobody types
        assert 'role="search"' in page.text


def test_what_the_verifier_extracts_is_marked(alice: Visitor, run: str) -> None:
    page = alice.get(f"{run}/rollouts?step=2&q=REASON").text
    assert re.search(r'&lt;answer&gt;<mark class="answer"[^>]*>\d+</mark>&lt;/answer&gt;', page)
    assert '<mark class="hit">reason</mark>' in page


def test_a_group_is_shown_with_advantages_and_the_deviation_that_divides_them(alice: Visitor, run: str) -> None:
    page = alice.get(f"{run}/steps/2/groups/1").text
    assert anchors(page) == [f"r-2_1_{place}" for place in range(4)]
    assert "Mean reward" in page
    assert page.count('<svg class="bar"') == 8
    assert f'rel="prev" href="{run}/steps/2/groups/0"' in page
    assert 'rel="next"' not in page
    rows = re.findall(r'<th scope="row"><a href="#r-[^>]*>[^<]*</a></th><td class="number">([^<]*)', page)
    totals = [float(text.replace("\N{MINUS SIGN}", "-")) for text in rows if text.strip() != "–"]
    told = re.search(r"<dt>Standard deviation</dt><dd>([^<]*)<", page)
    assert told is not None
    assert len(totals) > 1
    assert float(told[1]) == pytest.approx(np.std(totals, ddof=1), abs=1e-3)


def test_two_steps_are_compared_by_the_prompts_they_share(alice: Visitor, run: str) -> None:
    page = alice.get(f"{run}/compare").text
    assert 'name="step" min="0" value="1"' in page
    assert 'name="other" min="0" value="6"' in page
    found = anchors(page)
    assert len(found) == 8
    assert {name[:5] for name in found} == {"1-r-1", "2-r-6"}
    assert anchors(alice.get(f"{run}/compare?step=1&other=6&prompt=1").text)[0].startswith("1-r-1_1_")
    assert "no prompt in common" in alice.get(f"{run}/compare?step=1&other=77").text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/steps/2/groups/9", 404),
        ("/steps/77/groups/0", 404),
        ("/steps/x/groups/0", 400),
        ("/steps/99999999999/groups/0", 400),
        ("/compare?step=x", 400),
        ("/nothing", 404),
    ],
)
def test_a_missing_page_has_its_status(alice: Visitor, run: str, path: str, status: int) -> None:
    assert alice.get(run + path).status_code == status


@pytest.mark.parametrize("id", ["run_" + "a" * 24, "%2e%2e%2fone", "one", "a" * 5000, "%00"])
def test_only_ids_of_runs_lead_to_runs(alice: Visitor, id: str) -> None:
    for path in ("", "/rollouts", "/curves.json", "/compare", "/steps/1/groups/0"):
        assert alice.get(f"/runs/{id}{path}").status_code == 404


def test_damaged_files_are_reported_and_hide_nothing_else(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    write_run(runs / "one", 2)
    (runs / "one" / "findings.jsonl").write_text("nonsense\n" + json.dumps(FINDING) + "\n")
    next((runs / "one" / "rollouts").glob("*.parquet")).write_bytes(b"PAR1nonsensePAR1")
    (runs / "one" / "config.yaml").write_text("a: &a [*a]\nb: {c: [1, 2], d: 'x'}\n")
    with showing(tmp_path, runs) as server, visiting(server) as alice:
        found = re.search(r'href="(/runs/run_[a-z2-7]{24})" data-item', alice.get("/runs").text)
        assert found is not None
        page = alice.get(found[1])
        assert page.status_code == 200
        assert "1 lines of findings.jsonl are left out" in page.text
        assert "config.yaml cannot be read" in page.text
        rollouts = alice.get(f"{found[1]}/rollouts")
        assert rollouts.status_code == 200
        assert "cannot be read and are skipped" in rollouts.text
        assert "None of those that can be read match." in rollouts.text
