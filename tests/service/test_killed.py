"""A server that is killed while it is uploaded to: what it acknowledged is there, once."""

from pathlib import Path

from tests.service.killing import kill_server


def test_after_kills_each_upload_is_there_whole_and_once(tmp_path: Path) -> None:
    result = kill_server(f"sqlite:///{tmp_path / 'store.db'}", tmp_path, uploads=12, seed=0)  # the proof has 100
    assert result.faults == []
    assert len(result.acknowledged) == 12
