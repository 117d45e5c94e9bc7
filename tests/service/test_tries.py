"""Functions tried over HTTP: scored in isolated processes, with every failure as an outcome."""

import linecache
import os
from typing import Any

import httpx

from agent_tunix.errors import RewardError, SandboxUnavailableError
from agent_tunix.rewards.uploaded import UploadedSource
from agent_tunix.service import ServiceSettings, TryLimits
from agent_tunix.service.tries import TrialRow, cannot_be_tried, try_reward
from tests.service.support import BREVITY, new_name, upload


def attempt(client: httpx.Client, source: bytes, *rows: dict[str, Any], format: str = "trl") -> httpx.Response:
    id = upload(client, new_name(), source, format).json()["id"]
    return client.post(f"/v1/reward_functions/{id}/try", json={"rows": rows})


def one(client: httpx.Client, source: bytes, **row: Any) -> dict[str, Any]:
    (score,) = attempt(client, source, {"completions": ["a"]} | row).json()["data"]
    found: dict[str, Any] = score
    return found


def test_each_completion_of_each_row_gets_its_score_in_order(client: httpx.Client) -> None:
    answer = attempt(client, BREVITY, {"completions": ["", "a" * 40]}, {"completions": ["a" * 80]}).json()
    assert answer["object"] == "try"
    assert [(score["row"], score["completion"], score["value"]) for score in answer["data"]] == [
        (0, 0, 1.0),
        (0, 1, 0.5),
        (1, 0, 0.0),
    ]
    assert {score["outcome"] for score in answer["data"]} == {"scored"}


def test_columns_and_the_prompt_are_passed_by_name(client: httpx.Client) -> None:
    source = b"""\
import os
def reward(completions, answer, level, prompts, log_extra, **kwargs):
    log_extra("process", [os.getpid()])
    return [float(a == c) + n / 10 + len(p) for c, a, n, p in zip(completions, answer, level, prompts)]
"""
    score = one(client, source, prompt="ab", completions=["4"], answer="4", columns={"level": 3})
    assert score["value"] == 3.3
    assert score["extras"]["process"] != os.getpid()


def test_an_async_function_is_tried(client: httpx.Client) -> None:
    source = b"async def reward(args, sample, **kwargs):\n    return float(sample.response == sample.label)\n"
    (score,) = attempt(client, source, {"completions": ["4"], "answer": "4"}, format="miles").json()["data"]
    assert score["value"] == 1.0


LOGGED = {
    "{1}": [1],
    "float('nan')": {"$type": "float", "value": "nan"},
    "float('-inf')": {"$type": "float", "value": "-inf"},
    "b'\\xff'": "b'\\xff'",
    "{(1, 2): 3}": {"(1, 2)": 3},
    "2**70": 2**70,
    "-(10**6000)": "…",
    "[[[None]]]": [[[None]]],
    "'\\ud800'": "\\ud800",
}


def test_every_logged_value_can_be_shown(client: httpx.Client) -> None:
    logged = "".join(f"    log_extra('{number}', [{value}])\n" for number, value in enumerate(LOGGED))
    source = f"def reward(completions, log_extra, **kwargs):\n{logged}    return [1.0]\n"
    assert one(client, source.encode())["extras"] == {
        str(number): shown for number, shown in enumerate(LOGGED.values())
    }


def test_a_deeply_nested_value_is_cut_off(client: httpx.Client) -> None:
    body = "    d = []\n    for _ in range(300):\n        d = [d]\n    log_extra('seen', [d])\n    return [1.0]"
    score = one(client, f"def reward(completions, log_extra, **kwargs):\n{body}\n".encode())
    assert score["outcome"] in ("scored", "error")


def test_a_missing_column_is_named(client: httpx.Client) -> None:
    response = attempt(
        client, b"def reward(completions, rubric, **kwargs):\n    return [1.0]\n", {"completions": ["a"]}
    )
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "cannot_be_tried"
    assert "rubric" in response.json()["error"]["message"]


def test_too_many_rows_or_completions_are_refused(client: httpx.Client) -> None:
    limits = TryLimits()
    many = attempt(client, BREVITY, *[{"completions": ["a"]}] * (limits.max_rows + 1))
    wide = attempt(client, BREVITY, {"completions": ["a"] * (limits.max_completions + 1)})
    assert [response.json()["error"]["code"] for response in (many, wide)] == ["too_many_rows", "too_many_completions"]


def test_half_a_surrogate_is_an_outcome(client: httpx.Client) -> None:
    source = b"def reward(completions, mark, **kwargs):\n    raise ValueError(mark[0])\n"
    id = upload(client, new_name(), source).json()["id"]
    body = b'{"rows": [{"completions": ["a"], "columns": {"mark": "\\ud800"}}]}'
    answer = client.post(f"/v1/reward_functions/{id}/try", content=body, headers={"Content-Type": "application/json"})
    assert answer.json()["data"][0]["outcome"] == "error"


def test_completions_not_scored_in_the_total_time_have_the_outcome_timeout() -> None:
    slow = (
        b"import time\ndef reward(completions, **kwargs):\n    time.sleep(60)\n    return [1.0 for _ in completions]\n"
    )
    source = UploadedSource("rf_" + "a" * 24, "slow", "trl", 1, slow, "a test")
    rows = [TrialRow("", ["a"]), TrialRow("", ["b", "c"])]
    tried = try_reward(source, rows, 0, TryLimits(timeout_s=30, total_timeout_s=1))
    assert [[score.outcome for score in row] for row in tried.scores] == [["timeout"], ["timeout", "timeout"]]
    assert "1 s" in tried.scores[1][0].detail
    assert ServiceSettings().tries.total_timeout_s > ServiceSettings().tries.timeout_s


def test_the_server_keeps_nothing_of_a_tried_function() -> None:
    content = b"def reward(completions, **kwargs):\n    return 1 / 0\n"
    source = UploadedSource("rf_" + "a" * 24, "kept", "trl", 1, content, "a test")
    ((score,),) = try_reward(source, [TrialRow("", ["a"])], 0, TryLimits()).scores
    assert "1 / 0" in score.detail
    assert source.file not in linecache.cache


def test_code_that_cannot_be_isolated_is_an_error_of_the_server() -> None:
    refused = cannot_be_tried(SandboxUnavailableError("no Landlock"))
    assert (refused.status, refused.code) == (503, "sandbox_unavailable")
    assert "no Landlock" in str(refused)
    assert cannot_be_tried(RewardError("no column")).status == 400
