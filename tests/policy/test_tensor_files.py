"""Tensors located in the files of a directory: prefixes, several files, types, and files that are refused."""

import json
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file
from tests.policy.support import make_directory, make_family
from tests.raising import raises

from agent_tunix.errors import ModelError
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensor_files import locate_tensors
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_decoder

Tensors = dict[str, np.ndarray]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "model")


def rewrite(directory: Path, change: Callable[[Tensors], Tensors | None]) -> Path:
    """The directory with other tensors."""
    tensors = load_file(directory / "model.safetensors")
    changed = change(tensors)
    save_file(tensors if changed is None else changed, directory / "model.safetensors")
    return directory


def split(directory: Path, *, with_index: bool) -> list[Path]:
    """Two files in place of one."""
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    files = [directory / f"model-{number:05}-of-00002.safetensors" for number in (1, 2)]
    parts = [dict(list(tensors.items())[start::2]) for start in (0, 1)]
    for file, part in zip(files, parts, strict=True):
        save_file(part, file)
    if with_index:
        weight_map = {name: file.name for file, part in zip(files, parts, strict=True) for name in part}
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return files


def locate(directory: Path) -> dict[str, str]:
    """Where each tensor of the decoder was found."""
    located = locate_tensors(directory, read_architecture(directory))
    return {tensor.name: stored.name for tensor, stored in located.items()}


def weights(directory: Path) -> Any:
    float32 = jnp.dtype("float32")
    model = load_decoder(directory, read_architecture(directory), make_mesh([1, 1]), float32, float32)
    return {"/".join(map(str, path)): np.asarray(leaf) for path, leaf in nnx.to_flat_state(nnx.state(model))}


def assert_same(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


# What precedes the names.


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model.", "model.", ""])
def test_whatever_precedes_the_names_the_decoder_is_found(tmp_path: Path, prefix: str) -> None:
    """As the hub has Gemma 3 with a vision tower, as transformers 5 saves it, as a causal model and as a bare one."""
    directory = make_family(tmp_path / "model", "gemma3")
    before = weights(directory)

    def rename(tensors: Tensors) -> Tensors:
        return {prefix + name.removeprefix("language_model.model."): tensor for name, tensor in tensors.items()}

    assert_same(weights(rewrite(directory, rename)), before)


@pytest.mark.parametrize("head", ["lm_head.weight", "language_model.lm_head.weight"])
def test_the_output_projection_is_found_beside_the_decoder(tmp_path: Path, head: str) -> None:
    directory = make_directory(tmp_path / "model", tie_word_embeddings=False)

    def rename(tensors: Tensors) -> None:
        tensors[head] = tensors.pop("lm_head.weight")

    assert locate(rewrite(directory, rename))["lm_head.weight"] == head


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("gemma3", "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight"),
        ("gemma3", "multi_modal_projector.mm_input_projection_weight"),
        ("qwen3_5", "model.visual.blocks.0.attn.qkv.weight"),
        ("qwen3_5_text", "mtp.layers.0.self_attn.q_proj.weight"),
        ("qwen3_5_text", "mtp.embed_tokens.weight"),
        ("qwen3", "model.layers.0.self_attn.rotary_emb.inv_freq"),
    ],
)
def test_a_vision_tower_and_tables_of_old_files_are_left_aside(
    tmp_path: Path, family: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    directory = make_family(tmp_path / "model", family)
    add(name, 2, 2)(directory)
    with caplog.at_level("INFO", "agent_tunix.model"):
        assert "norm.weight" in locate(directory)
    assert (", not the 1 tensors of " in caplog.text) == (family != "qwen3")


# Files.


@pytest.mark.parametrize("with_index", [False, True])
def test_several_files_are_one_model(directory: Path, with_index: bool) -> None:
    before = weights(directory)
    split(directory, with_index=with_index)
    assert_same(weights(directory), before)


@pytest.mark.parametrize(
    ("with_index", "others"),
    [(True, ["old"]), (False, ["consolidated", "adapter_model"])],
    ids=["not in the index", "a second copy and an adapter"],
)
def test_other_files_are_not_read(directory: Path, with_index: bool, others: list[str]) -> None:
    split(directory, with_index=with_index)
    for name in others:
        save_file({"model.norm.weight": np.zeros(3, np.float32)}, directory / f"{name}.safetensors")
    assert "norm.weight" in locate(directory)


def test_the_whole_file_comes_before_an_index(directory: Path) -> None:
    whole = (directory / "model.safetensors").read_bytes()
    for file in split(directory, with_index=True):
        file.unlink()
    (directory / "model.safetensors").write_bytes(whole)
    assert "norm.weight" in locate(directory)


# Types.


@pytest.mark.parametrize("kind", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_weights_may_be_stored_in_any_type_of_numbers(directory: Path, kind: Any) -> None:
    before = weights(directory)
    stored = weights(rewrite(directory, lambda tensors: {name: array.astype(kind) for name, array in tensors.items()}))
    for name, array in before.items():
        np.testing.assert_array_equal(stored[name], array.astype(kind).astype(np.float32), err_msg=name)


# A tied output projection.


def test_an_output_projection_that_is_stored_twice_may_be_tied(directory: Path) -> None:
    before = weights(directory)

    def copy(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()

    assert_same(weights(rewrite(directory, copy)), before)


# Refused.


def lose_part(directory: Path) -> None:
    split(directory, with_index=True)[1].unlink()


def repeat_a_part(directory: Path) -> None:
    files = split(directory, with_index=False)
    save_file({**load_file(files[1]), **load_file(files[0])}, files[1])


def change(**changed: Callable[[np.ndarray], np.ndarray] | None) -> Callable[[Path], object]:
    """Tensors of the first layer without their prefix, by what becomes of them; None removes one."""

    def apply(tensors: Tensors) -> None:
        for short, how in changed.items():
            name = f"model.layers.0.{short.replace('__', '.')}.weight"
            tensor = tensors.pop(name)
            if how is not None:
                tensors[name] = how(tensor)

    return lambda directory: rewrite(directory, apply)


def add(name: str, *shape: int) -> Callable[[Path], object]:
    return lambda directory: rewrite(directory, lambda tensors: {**tensors, name: np.zeros(shape, np.float32)})


def call_it_llama(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "model_type": "llama"}))


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        (lose_part, "damaged_weights", "model-00002-of-00002.safetensors is damaged or incomplete (No such file"),
        (repeat_a_part, "damaged_weights", "in model-00001-of-00002.safetensors and in model-00002-of"),
        *(
            (change(mlp__up_proj=operator.methodcaller("astype", kind)), "damaged_weights", "up_proj")
            for kind in (np.int8, np.uint8, ml_dtypes.float8_e4m3fn)
        ),
        *(
            (add(name, 2), "damaged_weights", f"tensor {name},")
            for name in (
                "model.layers.0.self_attn.q_proj.bias",
                "model.layers.0.self_attn.q_proj.qweight",
                "model.layers.0.self_attn.q_proj.lora_A.weight",
                "model.layers.0.mlp.experts.0.up_proj.weight",
                "model.layers.1.mlp.up_proj.weight",
                "score.weight",
                "vision_tower.patch_embedding.weight",
                "model.lm_head.weight.scale",
            )
        ),
        (call_it_llama, "damaged_weights", "tensor model.layers.0.self_attn.k_norm.weight and 1 more"),
        (
            change(**{f"self_attn__{name}_proj": None for name in "qkv"}),
            "damaged_weights",
            "tensor model.layers.0.self_attn.q_proj.weight and 2 more",
        ),
        (add("encoder.embed_tokens.weight", 32, 16), "unsupported_model", "encoder.embed_tokens.weight"),
        (add("model.embed_tokens.weight", 33, 16), "damaged_weights", "(32, 16) of config.json, but has (33, 16)"),
    ],
)
def test_wrong_files_are_refused(directory: Path, damage: Callable[[Path], object], code: str, said: str) -> None:
    damage(directory)
    with raises(ModelError, code) as caught:
        locate(directory)
    assert said in str(caught.value)


@pytest.mark.parametrize("difference", [1e-3, np.nan])
def test_a_projection_that_differs_from_its_tied_embedding_is_refused(directory: Path, difference: float) -> None:
    def copy(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
        tensors["lm_head.weight"][-1, -1] += difference

    with raises(ModelError, "damaged_weights"):
        locate(rewrite(directory, copy))


def test_an_untied_projection_must_be_there(tmp_path: Path) -> None:
    directory = make_directory(tmp_path / "model", tie_word_embeddings=False)
    rewrite(directory, lambda tensors: {name: array for name, array in tensors.items() if name != "lm_head.weight"})
    with raises(ModelError, "damaged_weights") as caught:
        locate(directory)
    assert "lm_head.weight" in str(caught.value)
