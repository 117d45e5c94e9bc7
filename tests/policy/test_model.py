"""A model directory against a forward pass written in NumPy, and what is refused of one, by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tests.policy.reference_decoder import reference_logits
from tests.policy.support import BASE_CONFIG, make_directory

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy import compat
from agent_tunix.policy.directory import EMBEDDED_MODEL, find_model_directory
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import (
    copy_reference,
    count_parameters,
    load_policy,
)

TOKENS = np.array([[3, 17, 5, 0, 29, 31, 8], [1, 1, 2, 30, 4, 9, 11]])


def load(directory: Path, **settings: Any) -> Any:
    config = ModelConfig(**{"path": str(directory), "dtype": "float32", **settings})
    return load_policy(find_model_directory(config), config, make_mesh([1, 1]))


def logits_of(model: Any, tokens_BT: np.ndarray = TOKENS) -> np.ndarray:
    B, T = tokens_BT.shape
    mask = jnp.tril(jnp.ones((B, T, T), jnp.bool_))
    with compat.entered(make_mesh([1, 1])):
        positions = jnp.arange(T)[None].repeat(B, 0)
        logits = nnx.jit(lambda model: model(jnp.asarray(tokens_BT), positions, None, mask)[0])(model)
    return np.asarray(logits, np.float64)


def expected(directory: Path) -> np.ndarray:
    return np.stack([reference_logits(directory, row) for row in TOKENS])


@pytest.mark.parametrize(
    "settings",
    [{}, {"tie_word_embeddings": False}, {"num_key_value_heads": 4}, {"rope_theta": 5_000_000}, {"rope_theta": 10_000}],
    ids=str,
)
def test_logits_are_those_of_the_files(tmp_path: Path, settings: dict[str, Any]) -> None:
    directory = make_directory(tmp_path / "model", **settings)
    np.testing.assert_allclose(logits_of(load(directory)), expected(directory), atol=1e-4)


def test_logits_of_the_embedded_model_are_those_of_its_files() -> None:
    np.testing.assert_allclose(logits_of(load(EMBEDDED_MODEL)), expected(EMBEDDED_MODEL), atol=1e-3)


def test_rope_theta_under_its_newer_name_counts(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "model", rope_theta=10_000)
    before = expected(directory)
    config = json.loads((directory / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    (directory / "config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(logits_of(load(directory)), before, atol=1e-4)


# What is refused.


def drop(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).unlink()


def garble(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text("{")


def configure(**settings: Any) -> Callable[[Path], object]:
    def change(directory: Path) -> None:
        config = {**BASE_CONFIG, **settings}
        config = {name: value for name, value in config.items() if value is not Ellipsis}
        (directory / "config.json").write_text(json.dumps(config))

    return change


def cut_weights(directory: Path) -> None:
    file = directory / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def prune(directory: Path) -> None:
    """As a cache does whose files were cleared away under a snapshot of links."""
    file = directory / "model.safetensors"
    file.unlink()
    file.symlink_to(directory / "blobs" / "gone")


def retensor(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], object]:
    def apply(directory: Path) -> None:
        tensors = load_file(directory / "model.safetensors")
        change(tensors)
        save_file(tensors, directory / "model.safetensors")

    return apply


def lose_shard(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    save_file(
        {"model.embed_tokens.weight": tensors["model.embed_tokens.weight"]},
        directory / "model-00001-of-00002.safetensors",
    )


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, "is not a directory"),
        (drop("config.json"), "has no config.json"),
        (drop("model.safetensors"), r"has no \*.safetensors"),
        (garble("config.json"), "config.json cannot be read as JSON"),
        (cut_weights, "model.safetensors is damaged or half downloaded"),
        (prune, "model.safetensors is a link to a file that is gone"),
        (garble("model.safetensors"), "model.safetensors is damaged or half downloaded"),
        (lose_shard, "no tensor model.layers.0.self_attn.q_proj.weight .*are all files downloaded"),
        (retensor(lambda tensors: tensors.pop("model.norm.weight")), "no tensor model.norm.weight"),
        (configure(hidden_size=64), r"has the shape \(32, 16\), but config.json asks for \(32, 64\)"),
        (configure(model_type="mamba"), "model_type 'mamba'; supported: gemma2, .*qwen3"),
        (configure(model_type=...), "model_type None"),
        (configure(num_hidden_layers=...), "lacks 'num_hidden_layers'"),
        (configure(intermediate_size=...), "lacks 'intermediate_size'"),
        (configure(rms_norm_eps=...), "lacks 'rms_norm_eps'"),
        (configure(rope_scaling={"rope_type": "yarn", "factor": 4.0}), "rope_scaling of type 'yarn' is not supported"),
        (configure(rope_scaling={"rope_type": ["linear"]}), r"rope_scaling of type \['linear'\] is not supported"),
        (configure(rope_parameters={"rope_type": "yarn", "rope_theta": 1e6}), "rope_parameters of type 'yarn' is not"),
        (configure(use_sliding_window=True), "use_sliding_window = True is not supported"),
        (configure(attention_bias=True), "attention_bias = True is not supported"),
        (configure(hidden_act="gelu"), "hidden_act = 'gelu' is not supported"),
        (configure(quantization_config={"bits": 4}), "quantization_config"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_cannot_be_loaded_is_refused_by_name(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    directory = make_directory(tmp_path / "model")
    damage(directory)
    with pytest.raises(ModelError, match=said):
        load(directory)


def test_another_family_than_configured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model.model_family is llama, but .* holds qwen3"):
        load(make_directory(tmp_path / "model"), model_family="llama")


def test_a_mesh_larger_than_the_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.mesh_shape \[1024, 2\] needs 2048 devices; there are"):
        make_mesh([1024, 2])


def test_without_a_path_the_embedded_model_is_meant() -> None:
    assert find_model_directory(ModelConfig()) == EMBEDDED_MODEL


def test_the_architecture_is_read_from_config_json() -> None:
    a = read_architecture(EMBEDDED_MODEL)
    assert (a.num_layers, a.num_kv_heads, a.head_dim, a.vocab_size) == (3, 2, 24, 1024)


# Types and copies.


def test_weights_that_train_are_float32_whatever_computes(tmp_path: Path) -> None:
    """An update of 1e-5 is lost on a bfloat16 weight of 0.05."""
    model = load(make_directory(tmp_path / "model"), dtype="bfloat16")
    assert {leaf.dtype for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))} == {jnp.dtype("float32")}
    assert model.dtype == jnp.bfloat16


def test_parameters_are_counted_as_a_whole_and_as_far_as_they_train(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "model")
    whole = sum(tensor.size for tensor in load_file(directory / "model.safetensors").values())
    assert count_parameters(load(directory)) == (whole, whole)
    total, trained = count_parameters(load(directory, lora_rank=2))
    assert total == whole + trained
    assert 0 < trained < whole


def test_a_fresh_adapter_changes_nothing(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "model")
    np.testing.assert_allclose(logits_of(load(directory, lora_rank=2)), expected(directory), atol=1e-4)


def test_the_reference_of_a_model_without_adapter_is_a_copy(tmp_path: Path) -> None:
    model = load(make_directory(tmp_path / "model"))
    reference = copy_reference(model)
    before = logits_of(reference)
    nnx.update(model, jax.tree.map(lambda x: x + 1, nnx.state(model, nnx.Param)))
    np.testing.assert_array_equal(logits_of(reference), before)
