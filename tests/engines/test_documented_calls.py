"""The examples of docs/engines.md, run against a stand-in."""

from pathlib import Path

import pytest

from tests.engines.stand_ins import ToyPolicy, VllmStandIn
from tests.test_docs import ROOT, read_blocks, run_blocks


def test_the_check_of_the_page_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for block in read_blocks(ROOT / "docs" / "engines.md") if block.reason_not_to_run == "server"]
    assert len(blocks) == 1
    with VllmStandIn(ToyPolicy()).running() as url:
        monkeypatch.setenv("URL", url)
        run_blocks(blocks, tmp_path)
