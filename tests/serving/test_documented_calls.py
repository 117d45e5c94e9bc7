"""The examples of docs/serving.md, run against a real server."""

from pathlib import Path

import pytest

from tests.serving.support import running
from tests.test_docs import ROOT, read_blocks, run_blocks


@pytest.mark.slow
def test_the_calls_of_the_page_are_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for block in read_blocks(ROOT / "docs" / "serving.md") if block.reason_not_to_run == "server"]
    calls = [block for block in blocks if not block.code.startswith("agent-tunix serve-policy")]
    assert (len(blocks), len(calls)) == (3, 2)
    with running(lambda prompt: "It is 30.") as server:
        monkeypatch.setenv("URL", server.url.removesuffix("/v1"))
        run_blocks(calls, tmp_path)
    assert len(server.source.requests) == 3
