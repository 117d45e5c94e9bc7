"""The tensors of a Hugging Face directory and the weights of the decoder: one table, read both ways.

A file's tensor and a model's weight are the same numbers, transposed where a projection is a matrix: PyTorch stores
[out, in] and `nnx.Linear` multiplies by [in, out]. Each device reads only its own part of a tensor, one at a time.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from safetensors import SafetensorError, safe_open

from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.architecture import Architecture

WeightPath = tuple[str | int, ...]

# What a whole file of weights may be stored in; quantised types need scales that nobody reads here.
_TYPES = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class Tensor:
    """One tensor of the files, and where the decoder has it.

    Attributes:
        name: Without what precedes it in the files: `layers.0.mlp.up_proj.weight`.
        shape: In the files.
        path: Of the weight in the decoder's state.
    """

    name: str
    shape: tuple[int, ...]
    path: WeightPath

    @property
    def transposed(self) -> bool:
        """Whether the weight is the tensor's transpose."""
        return self.path[-1] == "kernel"


def list_tensors(architecture: Architecture) -> list[Tensor]:
    """Every tensor of a directory of this architecture, in the order of the model."""
    a = architecture
    queries, keys = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    hidden, inner = a.hidden_size, a.intermediate_size
    matrices = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if a.sandwich_norms:
        norms |= {"pre_feedforward_layernorm": hidden, "post_feedforward_layernorm": hidden}
    if a.qk_norm:
        norms |= {"self_attn.q_norm": a.head_dim, "self_attn.k_norm": a.head_dim}
    biases = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj") if a.qkv_bias else ()

    tensors = [Tensor("embed_tokens.weight", (a.vocab_size, hidden), ("embed_tokens", "embedding"))]
    for layer in range(a.num_layers):
        of_layer = [
            *((f"{name}.weight", shape, "kernel") for name, shape in matrices.items()),
            *((f"{name}.bias", matrices[name][:1], "bias") for name in biases),
            *((f"{name}.weight", (size,), "weight") for name, size in norms.items()),
        ]
        for name, shape, leaf in of_layer:
            module = name.rpartition(".")[0].split(".")
            tensors.append(Tensor(f"layers.{layer}.{name}", shape, ("layers", layer, *module, leaf)))
    tensors.append(Tensor("norm.weight", (hidden,), ("norm", "weight")))
    if not a.tied_embeddings:
        tensors.append(Tensor("lm_head.weight", (a.vocab_size, hidden), ("lm_head", "kernel")))
    return tensors


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies.

    Attributes:
        file: Its file.
        name: Its whole name there.
    """

    file: Path
    name: str


def locate_tensors(directory: Path, architecture: Architecture) -> dict[Tensor, Stored]:
    """Each tensor of the architecture in the files of a directory.

    What precedes the names differs: `model.` in a causal model, nothing in a bare one, `language_model.model.` in one
    with a vision tower. It is taken from the embedding's name.

    Raises:
        ModelError: A file is missing or damaged; a tensor is missing, or has another shape or a type that cannot be
            read; or the decoder's layers hold a tensor that `config.json` does not speak of.
    """
    found = {name: head for file in list_files(directory) for name, head in _read_heads(file).items()}
    embeddings = [name for name in found if name.endswith("embed_tokens.weight")]
    if len(embeddings) != 1:
        raise ModelError(
            f"{directory} has {len(embeddings) or 'no'} tensors embed_tokens.weight in its *.safetensors;"
            " are all files downloaded?"
        )
    prefix = embeddings[0].removesuffix("embed_tokens.weight")
    located = {}
    for tensor in list_tensors(architecture):
        name = _whole_name(tensor.name, prefix, found)
        if name not in found:
            raise ModelError(f"{directory} has no tensor {name} in its *.safetensors; are all files downloaded?")
        file, shape, kind = found[name]
        if shape != tensor.shape:
            raise ModelError(f"{directory}: {name} has the shape {shape}, but config.json asks for {tensor.shape}")
        if kind not in _TYPES:
            raise ModelError(f"{directory}: {name} is stored as {kind}, but weights must be one of {', '.join(_TYPES)}")
        located[tensor] = Stored(file, name)
    known = {stored.name for stored in located.values()}
    for name in found:
        if name.startswith(f"{prefix}layers.") and name not in known and "rotary_emb" not in name:
            raise ModelError(
                f"{directory} has a tensor {name} that its config.json, of model_type {architecture.model_type},"
                " does not account for; the model would not be computed as it was trained"
            )
    return located


def _whole_name(name: str, prefix: str, found: Mapping[str, Any]) -> str:
    if name != "lm_head.weight":
        return prefix + name
    # The head stands beside the decoder, wherever that is.
    return next((whole for whole in found if whole.endswith(name)), name)


def list_files(directory: Path) -> list[Path]:
    """The files that hold the model: those of the index, or the one, or all there are.

    Raises:
        ModelError: The index is damaged, or names a file that is not there.
    """
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        whole = directory / "model.safetensors"
        return [whole] if whole.is_file() else sorted(directory.glob("*.safetensors"))
    try:
        weight_map: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{index} cannot be read as an index of tensors: {error!r}; fetch it again") from error
    files = [directory / name for name in sorted(set(weight_map.values()))]
    if missing := [file.name for file in files if not file.is_file()]:
        raise ModelError(
            f"{index} names {len(files)} files, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
            " not there; the download is not complete"
        )
    return files


def _read_heads(file: Path) -> dict[str, tuple[Path, tuple[int, ...], str]]:
    """Name → file, shape and type of each tensor in a file."""
    heads = {}
    with _opened(file) as tensors:
        for name in tensors.keys():  # noqa: SIM118
            part = tensors.get_slice(name)
            heads[name] = file, tuple(part.get_shape()), part.get_dtype()
    return heads


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safe_open(file, framework="numpy") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is damaged or half downloaded ({error}); fetch it again") from error


def read_weights(located: Mapping[Tensor, Stored], shapes: Any, mesh: jax.sharding.Mesh) -> Any:
    """The decoder's state, divided over the mesh.

    Args:
        located: Where each tensor lies.
        shapes: The state as shapes, with the type that each weight is given and the mesh axes it is divided over.
        mesh: Where it goes.

    Raises:
        ConfigError: The mesh does not divide a weight evenly.
    """
    by_path: dict[tuple[Any, ...], tuple[Tensor, Stored]] = {
        tensor.path: (tensor, stored) for tensor, stored in located.items()
    }
    weights = []
    for path, leaf in nnx.to_flat_state(shapes):
        tensor, stored = by_path[tuple(path)]
        weights.append((path, leaf.replace(_read_weight(tensor, stored, leaf, mesh))))
    return nnx.from_flat_state(weights)


def _read_weight(tensor: Tensor, stored: Stored, leaf: Any, mesh: jax.sharding.Mesh) -> jax.Array:
    shape: jax.ShapeDtypeStruct = leaf.get_value()
    with _opened(stored.file) as tensors:
        source = tensors.get_slice(stored.name)

        def read(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            part = source[index[::-1]].T if tensor.transposed else source[index]
            return np.ascontiguousarray(part, shape.dtype)

        return jax.make_array_from_callback(shape.shape, _sharding(tensor, leaf, mesh), read)


def _sharding(tensor: Tensor, leaf: Any, mesh: jax.sharding.Mesh) -> jax.sharding.NamedSharding:
    axes = leaf.get_metadata().get("out_sharding") or ()
    for size, axis in zip(leaf.get_value().shape, axes, strict=False):
        if size % mesh.shape[axis]:
            raise ConfigError(
                f"model.mesh_shape {list(mesh.devices.shape)} divides {tensor.name} over {mesh.shape[axis]} devices"
                f" ({axis}), but its axis has {size} entries; choose a number that divides {size}"
            )
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))  # type: ignore[no-untyped-call]
