"""The digest of a model, which changes with everything that the model computes by."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.raising import raises

from agent_tunix.errors import ModelError
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.model_digest import architecture_of, digest_model

WEIGHTS = "model.safetensors"
_HEADER = b'{"a": {"dtype": "F32", "shape": [], "data_offsets": [1, 0]}}'
BACKWARDS = len(_HEADER).to_bytes(8, "little") + _HEADER
LARGE = "model.embed_tokens.weight"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the embedded model."""
    return Path(shutil.copytree(EMBEDDED_MODEL, tmp_path / "model"))


def change_tensors(directory: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    tensors = load_file(directory / WEIGHTS)
    change(tensors)
    save_file(tensors, directory / WEIGHTS)


def change_config(directory: Path, **values: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def divide(directory: Path) -> None:
    """The same tensors in two files with an index."""
    tensors = load_file(directory / WEIGHTS)
    (directory / WEIGHTS).unlink()
    names = sorted(tensors)
    parts = {"b.safetensors": names[:5], "a.safetensors": names[5:]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("place", [0, "middle", -1])
@pytest.mark.parametrize("name", [LARGE, "model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_a_change_anywhere_in_a_tensor_is_another_model(model: Path, name: str, place: int | str) -> None:
    def nudge(tensors: dict[str, np.ndarray]) -> None:
        flat = tensors[name].reshape(-1)
        where = flat.size // 2 if isinstance(place, str) else place
        flat[where] += np.asarray(1, flat.dtype)

    before = digest_model(model)
    change_tensors(model, nudge)
    assert digest_model(model) != before
    assert architecture_of(digest_model(model)) == architecture_of(before)


def test_another_type_of_the_same_numbers_is_another_model(model: Path) -> None:
    before = digest_model(model)
    change_tensors(model, lambda tensors: tensors.update({LARGE: tensors[LARGE].astype(np.float64)}))
    assert digest_model(model) != before


@pytest.mark.parametrize("values", [{"rms_norm_eps": 0.5}, {"rope_theta": 777.0, "rope_parameters": None}])
def test_what_config_json_computes_otherwise_is_another_architecture(model: Path, values: dict[str, object]) -> None:
    before = digest_model(model)
    change_config(model, **values)
    now = digest_model(model)
    assert architecture_of(now) != architecture_of(before)
    assert now.partition("-")[2] == before.partition("-")[2]


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: change_config(directory, transformers_version="0", _name_or_path="elsewhere"),
        lambda directory: (directory / "README.md").write_text("a word more"),
        lambda directory: os.utime(directory / WEIGHTS, (0, 0)),
        lambda directory: change_tensors(directory, lambda tensors: None),
        divide,
    ],
    ids=["names in config.json", "another file", "time", "written again", "in two files"],
)
def test_what_computes_the_same_is_the_same_model(model: Path, change: Callable[[Path], object]) -> None:
    before = digest_model(EMBEDDED_MODEL)
    change(model)
    assert digest_model(model) == before


@pytest.mark.parametrize("damage", [b"", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"[]", BACKWARDS])
def test_a_damaged_file_is_refused_by_name(model: Path, damage: bytes) -> None:
    (model / WEIGHTS).write_bytes(damage)
    with raises(ModelError, "damaged_weights") as caught:
        digest_model(model)
    assert WEIGHTS in str(caught.value)
