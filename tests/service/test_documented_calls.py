"""The examples of docs/inspector.md, run against a real server."""

from pathlib import Path

import pytest

from tests.service.support import Server
from tests.test_docs import ROOT, read_blocks, run_blocks


@pytest.mark.slow
def test_the_calls_of_the_page_are_answered_as_it_shows(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("URL", server.url)
    monkeypatch.setenv("KEY", server.secret)
    blocks = read_blocks(ROOT / "docs" / "inspector.md")
    shown = [block for block in blocks if block.title or block.reason_not_to_run == "server"]
    assert len(shown) == 7
    run_blocks(shown, tmp_path)
