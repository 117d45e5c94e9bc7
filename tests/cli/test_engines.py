import json
import sys

import pytest
from click.testing import CliRunner
from tests.engines.stand_ins import Fault, SglangStandIn, StandIn, ToyPolicy, VllmStandIn

from agent_tunix.cli import main


@pytest.mark.parametrize("kind", [VllmStandIn, SglangStandIn])
def test_two_engines_are_checked_without_jax(kind: type[StandIn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sesame")
    before = set(sys.modules)
    with kind(ToyPolicy(), key="sesame").running() as one, kind(ToyPolicy(), Fault.RAW_LOGPS).running() as other:
        result = CliRunner().invoke(main, ["engines", "check", one, other, "--api-key-env", "ENGINE_KEY", "--json"])
    assert result.exit_code == 1, result.output
    statuses = {url: {row["check"]: row["status"] for row in rows} for url, rows in json.loads(result.stdout).items()}
    assert "failed" not in statuses[one].values()
    assert {name for name, status in statuses[other].items() if status == "failed"} == {"temperature"}
    assert not {"jax", "transformers"} & (set(sys.modules) - before)


def test_the_table_of_an_engine_says_what_was_sent_and_what_came() -> None:
    with VllmStandIn(ToyPolicy()).running() as url:
        result = CliRunner().invoke(main, ["engines", "check", url, "--kind", "vllm"])
        refused = CliRunner().invoke(main, ["engines", "check", url, "--kind", "sglang"])
    assert result.exit_code == 0, result.output
    assert "8 ids, 16 tokens, then 4" in result.stdout
    assert "vllm 0.33.0 with base, context 256" in result.stdout
    assert refused.exit_code == 1


@pytest.mark.parametrize(
    "arguments", [["--reload"], ["--api-key-env", "NOT_SET"], ["--adapter-directory", "/no/such/directory"]]
)
def test_options_that_cannot_be_used(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["engines", "check", "http://127.0.0.1:9", *arguments]).exit_code == 2
