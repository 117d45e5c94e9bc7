import json
import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import Outcome, Sample
from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.cache import ReplyCache
from tests.rewards.judges.conftest import Bench
from tests.rewards.judges.endpoint_server import Answer, chat

SAMPLES = [Sample("yes"), Sample("no"), Sample("partly")]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "new" / "cache.sqlite"


def test_a_verdict_is_asked_for_once(bench: Bench, cache: Path) -> None:
    first = bench.judge(cache=str(cache)).score(SAMPLES)
    second = bench.judge(cache=str(cache)).score(SAMPLES)
    assert [score.value for score in second] == [score.value for score in first] == [1.0, 0.0, 0.5]
    assert [score.extras["cached"] for score in second] == [True] * 3
    assert [score.extras["cost"] for score in second] == [0] * 3
    assert len(bench.server.requests) == 3


@pytest.mark.slow
def test_several_processes_write_at_once(cache: Path) -> None:
    program = f"""
from pathlib import Path
from typing import Any
from agent_tunix.rewards.judges.cache import ReplyCache
cache = ReplyCache(Path({str(cache)!r}))
for number in range(100):
    cache.put(f"key {{number}}", f"reply {{number}}")
    assert cache.get(f"key {{number}}") == f"reply {{number}}"
cache.close()
"""
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(3)]
    assert [process.communicate()[1] for process in running] == [b""] * 3
    replies = ReplyCache(cache)
    assert all(replies.get(f"key {number}") for number in range(100))
    replies.close()


@pytest.mark.parametrize(
    ("change", "is_in_the_key"),
    [
        ({"model": "another"}, True),
        ({"temperature": 0.5}, True),
        ({"seed": 3}, True),
        ({"max_tokens": 99}, True),
        ({"extra_body": {"top_k": 1}}, True),
        ({"rubric": "Is it polite?"}, True),
        ({"scores": {"yes": 1.0, "no": 0.0}}, True),
        ({"structured": "text"}, True),
        ({"base_url": "elsewhere"}, True),
        ({"timeout_s": 5.0}, False),
        ({"max_concurrency": 1}, False),
        ({"prices": {"prompt": 1, "completion": 1}}, False),
    ],
    ids=str,
)
def test_whatever_decides_a_verdict_is_in_the_key(
    change: dict[str, Any], is_in_the_key: bool, bench: Bench, cache: Path
) -> None:
    bench.ask(cache=str(cache))
    if "base_url" in change:
        change = {"base_url": bench.server.url.replace("127.0.0.1", "localhost")}
    bench.ask(cache=str(cache), **change)
    assert len(bench.server.requests) == 1 + is_in_the_key


@pytest.mark.parametrize(
    "other", [Sample("yes", prompt="Why?", columns={"answer": "4"}), Sample("yes", columns={"answer": "5"})]
)
def test_whatever_the_judge_is_shown_is_in_the_key(
    other: Sample, bench: Bench, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = bench.judge(cache=str(cache), columns=["answer"])
    judge.score([Sample("yes", columns={"answer": "4"})])
    judge.score([other])
    assert len(bench.server.requests) == 2
    monkeypatch.setattr(prompts, "VERSION", prompts.VERSION + 1)
    judge.score([other])
    assert len(bench.server.requests) == 3


def test_a_failure_is_not_kept(bench: Bench, cache: Path) -> None:
    bench.server.answers.extend([Answer(400, {}), Answer(body=chat("no verdict")), Answer(body=chat("no verdict"))])
    judge = bench.judge(cache=str(cache))
    assert judge.score([Sample("yes")])[0].outcome is Outcome.ERROR
    assert judge.score([Sample("yes")])[0].outcome is Outcome.ERROR
    assert judge.score([Sample("yes")])[0].value == 1.0


def test_the_default_cache_is_in_the_home_directory_and_without_one_no_file_is_made(bench: Bench) -> None:
    home = Path(os.environ["AGENT_TUNIX_HOME"])
    for _ in range(2):
        bench.ask(cache=False)
    assert not home.exists()
    assert len(bench.server.requests) == 2
    bench.ask(cache=True)
    assert (home / "judge_cache.sqlite").is_file()


def test_equal_questions_of_a_batch_are_asked_once(bench: Bench) -> None:
    scores = bench.judge().score([Sample("yes")] * 5)
    assert [score.value for score in scores] == [1.0] * 5
    assert sorted(score.extras["cached"] for score in scores) == [False] + [True] * 4
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize("content", [b"this is no database, however long one looks at it" * 100, b"", None])
def test_a_file_that_is_no_cache_is_given_up_with_a_warning(
    content: bytes | None, bench: Bench, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:  # a file where its directory should be
        cache.parent.touch()
    else:
        cache.parent.mkdir()
        cache.write_bytes(content)
    with caplog.at_level(logging.WARNING, "agent_tunix"):
        assert bench.judge(cache=str(cache)).score(SAMPLES)[0].value == 1.0
    assert caplog.text.count("is no longer used") == (0 if content == b"" else 1)  # an empty file becomes a database


@pytest.mark.parametrize("damage", ["no JSON", '{"reply": 3}', "[]", json.dumps({"reply": '{"id": "x"}'})])
def test_an_entry_that_is_no_verdict_is_asked_for_again(damage: str, bench: Bench, cache: Path) -> None:
    judge = bench.judge(cache=str(cache))
    judge.score([Sample("yes")])
    connection = sqlite3.connect(cache)
    with connection:
        connection.execute("UPDATE replies SET reply = ?", (damage,))
    connection.close()
    assert judge.score([Sample("yes")])[0].value == 1.0
    assert len(bench.server.requests) == 2
    assert judge.score([Sample("yes")])[0].extras["cached"] is True
