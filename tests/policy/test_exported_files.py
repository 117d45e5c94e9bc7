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
    programs = ("modeling_mine.py", "modeling_mine.pyc", "native.so", "scaler.pkl", "a.pickle", "last.ckpt", "a.joblib")
    for name in (*programs, "modules.json", "adapter_config.json"):
        (source / name).write_bytes(b"x")
    (source / "processor_config.json").write_text('{"a": [{"auto\\u005fmap": {"AutoProcessor": "p.P"}, "b": 1}]}')
    (source / "vocab.json").write_text('{"auto_map": 7}')
    for name in ("config.json", "tokenizer_config.json"):
        settings = json.loads((source / name).read_text())
        (source / name).write_text(json.dumps(settings | {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Mine"}}))
    directory = export(source)
    known = {".json", ".safetensors", ".jinja", ".txt", ""}
    assert not (directory / "adapter_config.json").exists()
    assert json.loads((directory / "processor_config.json").read_text()) == {"a": [{"b": 1}]}
    assert json.loads((directory / "vocab.json").read_text()) == {"auto_map": 7}
    assert not (directory / "modules.json").exists()
    assert {path.suffix for path in directory.iterdir()} <= known, sorted(directory.iterdir())
    for name in ("config.json", "tokenizer_config.json"):
        written, before = (json.loads((place / name).read_text()) for place in (directory, EMBEDDED_MODEL))
        assert written.keys() == before.keys()
