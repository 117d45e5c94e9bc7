"""Adapters in PEFT's format, written and read again."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.files.adapter_files import read_adapter
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.files.export import write_adapter
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.network.decoder import Decoder


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return make_mesh([1, 1])


@pytest.fixture(scope="module")
def adapted(mesh: jax.sharding.Mesh) -> Decoder:
    model = load_policy(EMBEDDED_MODEL, ModelConfig(lora_rank=3, lora_alpha=6.0), mesh, seed=5)
    random = np.random.default_rng(0)
    for _, leaf in nnx.to_flat_state(nnx.state(model, nnx.LoRAParam)):
        leaf.set_value(jax.device_put(random.normal(size=leaf.get_value().shape).astype(np.float32)))
    return model


@pytest.fixture
def directory(adapted: Decoder, tmp_path: Path) -> Path:
    write_adapter(adapted, EMBEDDED_MODEL, tmp_path, 6.0, "base")
    return tmp_path


def test_an_adapter_that_was_written_is_read(adapted: Decoder, directory: Path, mesh: jax.sharding.Mesh) -> None:
    base = load_policy(EMBEDDED_MODEL, ModelConfig(), mesh)
    for start in (base, adapted):
        model = read_adapter(start, directory, mesh)
        read, written = (nnx.to_flat_state(nnx.state(each, nnx.LoRAParam)) for each in (model, adapted))
        assert len(read) == len(written) > 0
        for (path, leaf), (other_path, other) in zip(read, written, strict=True):
            assert path == other_path
            assert np.array_equal(leaf.get_value(), other.get_value())
        assert model.layers[0].self_attn.q_proj.lora_scale == 2.0
        assert model.embed_tokens.embedding.get_value() is start.embed_tokens.embedding.get_value()
    assert not nnx.to_flat_state(nnx.state(base, nnx.LoRAParam))


@pytest.mark.parametrize(
    "change",
    [
        {"use_dora": True},
        {"peft_type": "IA3"},
        {"r": 0},
        {"rank_pattern": {"q_proj": 2}},
        {"alora_invocation_tokens": [5]},
    ],
    ids=str,
)
def test_what_cannot_be_read_is_refused(
    adapted: Decoder, directory: Path, mesh: jax.sharding.Mesh, change: dict[str, object]
) -> None:
    file = directory / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_bytes()) | change))
    with pytest.raises(ModelError):
        read_adapter(adapted, directory, mesh)


def test_an_adapter_without_a_kind_is_refused(adapted: Decoder, directory: Path, mesh: jax.sharding.Mesh) -> None:
    file = directory / "adapter_config.json"
    config = json.loads(file.read_bytes())
    del config["peft_type"]
    file.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="peft_type"):
        read_adapter(adapted, directory, mesh)


def test_an_adapter_of_another_model_is_refused(
    adapted: Decoder, directory: Path, mesh: jax.sharding.Mesh, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="PEFT's format"):
        read_adapter(adapted, tmp_path / "missing", mesh)
    tensors = load_file(directory / "adapter_model.safetensors")
    first = next(iter(tensors))
    for change in ({"layers.99.lora_A.weight": tensors[first]}, {first: tensors[first][:, :-1]}):
        save_file({**tensors, **change}, directory / "adapter_model.safetensors")
        with pytest.raises(ModelError, match="use an adapter of this model"):
            read_adapter(adapted, directory, mesh)
