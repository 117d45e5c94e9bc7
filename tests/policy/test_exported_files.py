"""Files that go along with an exported model: no private file, program or pickle of whoever made the model."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_tunix.config.schema import ModelConfig
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.export import write_merged
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED_MODEL, tmp_path / "model"))


@pytest.fixture
def export(tmp_path: Path) -> Callable[[Path], Path]:
    def write(source: Path) -> Path:
        policy = load_policy(EMBEDDED_MODEL, ModelConfig(lora_rank=0), make_mesh([1, 1]), 0)
        directory = tmp_path / "out"
        directory.mkdir()
        write_merged(policy, source, directory, 1.0)
        return directory

    return write


def test_links_within_the_hub_and_model_are_kept(source: Path, tmp_path: Path, export: Callable[[Path], Path]) -> None:
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "0123", tmp_path / "hub" / "blobs"
    shutil.copytree(source, snapshot)
    blobs.mkdir()
    (blobs / "abc").write_text("as you like")
    (blobs / "abc").chmod(0o600)
    (snapshot / "LICENSE").symlink_to("../../blobs/abc")
    (snapshot / "COPYING").symlink_to("LICENSE")
    directory = export(snapshot)
    assert (directory / "LICENSE").read_text() == (directory / "COPYING").read_text() == "as you like"
