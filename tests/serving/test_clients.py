"""Clients of this package against a served policy: judges."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import Sample, Score
from agent_tunix.rewards.judges import load_judge
from agent_tunix.serving.settings import PolicySettings
from tests.rewards.judges.conftest import STAND_IN, forget_deepeval
from tests.serving.support import running


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path))


def grade(prompt: str) -> str:
    """A policy that finds every completion clear."""
    code = re.findall(r'"id": "(\w+)"', prompt)[-1]
    (criterion,) = re.findall(r"^- (\w+):", prompt, re.MULTILINE)
    return json.dumps({"id": code, criterion: {"reason": "it is short", "verdict": "yes"}})


def score(kind: str, url: str, **args: Any) -> Score:
    settings = {"model": "policy", "base_url": url, "cache": False, "rubric": "Is it clear?", **args}
    (found,) = load_judge(kind).bind("rubric", settings).score([Sample("4", prompt="2 + 2?")])
    assert isinstance(found, Score)
    return found


def test_a_judge_asks_a_served_policy_whose_replies_follow_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_KEY", "sesame")
    with running(grade, settings=PolicySettings(port=0, api_keys=("sesame",))) as server:
        found = score("judge", server.url, api_key_env="POLICY_KEY")
        assert found.value == 1.0, found.detail
        (request,) = server.source.requests  # the others, with a response_format, were refused before the policy
        assert (request.temperature, request.seed, request.max_tokens) == (0.0, 0, 1024)


def test_g_eval_asks_a_served_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_deepeval()
    monkeypatch.syspath_prepend(STAND_IN)
    with running(lambda prompt: json.dumps({"reason": "as it reads", "score": 7})) as server:
        assert score("geval_judge", server.url, steps=["Read it."]).value == pytest.approx(0.7)
    forget_deepeval()
