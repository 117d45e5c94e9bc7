from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agent_tunix.service import ServiceSettings
from tests.service.support import Server, serving
from tests.tracking.report.support import write_run

FINDING = {
    "name": "dead_component",
    "severity": "warning",
    "step": 2,
    "summary": "It is dead.",
    "subject": "brevity",
    "evidence": {"share": 0.5},
    "rollout_ids": ["2_0_1"],
    "edits": [],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that was given a directory with a run."""
    directory = tmp_path_factory.mktemp("service")
    (directory / "runs").mkdir()
    write_run(directory / "runs" / "one", findings=[FINDING], unscored_share=0.2)
    settings = ServiceSettings(runs=(directory / "runs",))
    with serving(directory, settings) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(server.new_key("read")) as client:
        yield client


@pytest.fixture
def run(client: httpx.Client) -> str:
    return f"/v1/runs/{client.get('/v1/runs').json()['data'][0]['id']}"


def test_a_run_has_its_configuration(client: httpx.Client, run: str) -> None:
    found = client.get(run).json()
    assert (found["name"], found["step"], found["config"]["grpo"]["loss"]) == ("one", 6, "grpo")
    assert (found["first_rollouts"], found["last_rollouts"]) == (1, 6)


def test_metrics_go_on_after_a_step(client: httpx.Client, run: str) -> None:
    page = client.get(f"{run}/metrics", params={"after": 2, "limit": 2}).json()
    assert [row["step"] for row in page["data"]] == [3, 4]
    assert (page["has_more"], page["next"]) == (True, 4)


def test_rollouts_are_paged_by_their_cursor(client: httpx.Client, run: str) -> None:
    seen: list[str] = []
    params: dict[str, str | int] = {"step": 2, "sort": "-reward", "limit": 3}
    while True:
        page = client.get(f"{run}/rollouts", params=params).json()
        seen += [row["id"] for row in page["data"]]
        if not page["has_more"]:
            break
        params["after"] = page["next"]
    assert sorted(seen) == [f"2_{group}_{one}" for group in range(2) for one in range(4)]


def test_findings_are_listed(client: httpx.Client, run: str) -> None:
    assert client.get(f"{run}/findings").json()["data"] == [{"object": "finding", **FINDING}]


def test_runs_need_the_scope_read(server: Server) -> None:
    with server.client(server.new_key("try")) as client:
        assert client.get("/v1/runs").status_code == 403
    with server.client("") as client:
        assert client.get("/v1/runs").status_code == 401


@pytest.mark.parametrize(
    ("part", "params", "param"),
    [
        ("", {"limit": 0}, "limit"),
        ("", {"limit": 101}, "limit"),
        ("", {"after": "../x"}, "after"),
        ("/metrics", {"after": "x"}, "after"),
        ("/metrics", {"limit": 10**6}, "limit"),
        ("/rollouts", {"step": -1}, "step"),
        ("/rollouts", {"step": 10**30}, "step"),
        ("/rollouts", {"outcome": "good"}, "outcome"),
        ("/rollouts", {"sort": "size"}, "sort"),
        ("/rollouts", {"stop_reason": "good"}, "stop_reason"),
        ("/rollouts", {"tool": "x" * 201}, "tool"),
        ("/rollouts", {"min_reward": "nan"}, "min_reward"),
        ("/rollouts", {"max_reward": "inf"}, "max_reward"),
        ("/rollouts", {"q": "x" * 201}, "q"),
        ("/rollouts", {"after": "AAAA"}, "after"),
    ],
)
def test_an_impossible_query_is_refused(
    client: httpx.Client, run: str, part: str, params: dict[str, str | int], param: str
) -> None:
    answer = client.get(f"{run}{part}" if part else "/v1/runs", params=params)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_damaged_run_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "runs" / "one"
    root.parent.mkdir()
    write_run(root)
    for path in (root / "config.yaml", root / "metrics.jsonl", *(root / "rollouts").iterdir()):
        path.write_bytes(b"\xff\x00{[\n" * 50)
    settings = ServiceSettings(runs=(tmp_path / "runs",))
    with serving(tmp_path, settings) as server, server.client() as client:
        (found,) = client.get("/v1/runs").json()["data"]
        assert (found["step"], found["reward"], found["method"]) == (None, None, None)
        assert client.get(f"/v1/runs/{found['id']}").json()["config"] is None
        assert client.get(f"/v1/runs/{found['id']}/metrics").json()["damaged"] == 50
        page = client.get(f"/v1/runs/{found['id']}/rollouts").json()
    assert page["data"] == []
    assert len(page["problems"]) == 1
