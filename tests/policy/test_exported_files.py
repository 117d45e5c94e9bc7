"""Files that go along with an exported model: no private file, program or pickle of whoever made the model."""

import json
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


def test_programs_and_pickles_of_the_model_stay_behind(source: Path, export: Callable[[Path], Path]) -> None:
    for name in ("modeling_mine.py", "native.so", "scaler.pkl"):
        (source / name).write_bytes(b"x")
    (source / "processor_config.json").write_text('{"a": [{"auto_map": {"AutoProcessor": "p.P"}, "b": 1}]}')
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((source / name).read_text())
        (source / name).write_text(json.dumps(settings | {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}}))
    directory = export(source)
    assert {path.suffix for path in directory.iterdir()} <= {".json", ".safetensors", ".jinja", ".txt", ""}
    assert json.loads((directory / "processor_config.json").read_text()) == {"a": [{"b": 1}]}
    for name in ("config.json", "tokenizer_config.json"):
        assert "auto_map" not in json.loads((directory / name).read_text())
