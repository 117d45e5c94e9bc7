"""A server killed during uploads: each acknowledged upload is there, once."""

from pathlib import Path

import pytest

from tests.service.killing import kill_server


@pytest.mark.slow
def test_acknowledged_uploads_survive_kills_whole_and_once(tmp_path: Path) -> None:
    result = kill_server(f"sqlite:///{tmp_path / 'store.db'}", tmp_path, uploads=8, seed=0)  # the proof has 100
    assert result.faults == []
    assert len(result.acknowledged) == 8
