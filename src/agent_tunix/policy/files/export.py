"""Export of a policy as a Hugging Face directory: merged weights, or only the adapter in PEFT's format.

Tensors keep their names in the directory from which the policy was loaded. Everything else in it (a vision tower, the
tokenizer, a licence) is copied unchanged. Weights are written file by file, so that no second copy of the model is
held.
"""

import functools
import json
import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import safe_open
from safetensors.numpy import save_file

from agent_tunix.errors import ExportError, ModelError
from agent_tunix.policy.files.tensor_files import list_files, locate_tensors
from agent_tunix.policy.files.tensors import WeightPath
from agent_tunix.policy.mesh import fetch
from agent_tunix.policy.network.decoder import Decoder
from agent_tunix.policy.network.projection import Projection, Scale

MAX_FILE_BYTES = 5 * 10**9
# Files of a model directory with weights in any format, or with descriptions of the original model.
_NOT_COPIED = (
    *("*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.pt", "*.pth", "*.h5", "*.msgpack"),
    *("*.gguf", "*.onnx", "README.md", ".*", "config.json"),
    # Programs and pickles from the author of the model. No supported family needs them.
    *("*.py", "*.pyc", "*.so", "*.pkl", "*.pickle", "*.ckpt", "*.joblib", "modules.json"),
    # Adapters of the original model, which name another base model.
    "adapter_*",
)
# Keys that name the programs that `trust_remote_code` would run.
_CODE_KEYS = frozenset(("auto_map", "custom_pipelines"))
# Tables of tokens, in which a key is a token.
_TABLES = ("added_tokens.json", "tokenizer.json", "vocab.json")
# transformers marks its files with this metadata and refuses files without it.
_FORMAT = {"format": "pt"}
# Families whose text model is inside a model with vision.
_WITH_VISION = ("gemma3", "gemma4", "qwen3_5")


def write_merged(
    policy: Decoder, source: Path, directory: Path | None, alpha: float, dtype: jnp.dtype | None = None
) -> None:
    """Write a directory that transformers and vLLM load: configuration, weights with the adapter merged, tokenizer.

    Args:
        policy: Policy with or without an adapter.
        source: Model directory that it was loaded from.
        directory: Existing, empty directory; None to write nothing. If several processes hold the weights, all of them
            call this function, and one writes.
        alpha: LoRA alpha. The adapter's output is multiplied by alpha / rank.
        dtype: Type of the stored weights; None for the policy's compute type, which reproduces its logits.
    """
    dtype = jnp.dtype(policy.dtype if dtype is None else dtype)
    _write_weights(_merged_tensors(policy, source, alpha, dtype), directory)
    if directory is None:
        return
    _copy_others(source, directory)
    config = json.loads((source / "config.json").read_bytes())
    write_json(directory / "config.json", _with_dtype(_without_code(config), dtype.name))


def write_adapter(
    policy: Decoder,
    source: Path,
    directory: Path | None,
    alpha: float,
    base_model: str,
    revision: str | None = None,
    *,
    has_tokenizer: bool = True,
) -> None:
    """Write a directory that PEFT loads: the adapter's matrices in float32, its configuration, the tokenizer.

    Args:
        policy: Policy with an adapter.
        source: Model directory that it was loaded from.
        directory: Existing, empty directory; None to write nothing, as in `write_merged`.
        alpha: LoRA alpha. The adapter's output is multiplied by alpha / rank.
        base_model: Name of the repository, or path, from which PEFT loads the base model.
        revision: Revision of the repository; None for the latest.
        has_tokenizer: False to leave out the tokenizer, which the base model's directory has too.

    Raises:
        ModelError: The policy has no adapter.
    """
    pairs = _adapter_pairs(policy)
    if not pairs:
        raise ModelError(
            "an adapter export requires an adapter, but all weights were trained (model.lora_rank=0); export the "
            "whole model"
        )
    tensors = {}
    for module, (a, b) in pairs.items():
        name = f"base_model.model.{place_in_transformers(module, policy)}"
        tensors[f"{name}.lora_A.weight"] = _to_host(a, jnp.dtype("float32"), transposed=True)
        tensors[f"{name}.lora_B.weight"] = _to_host(b, jnp.dtype("float32"), transposed=True)
    if directory is None:
        return
    save_file(tensors, directory / "adapter_model.safetensors", metadata=_FORMAT)
    write_json(
        directory / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base_model,
            "revision": revision,
            "r": next(iter(pairs.values()))[0].shape[1],
            "lora_alpha": alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": False,
            "inference_mode": True,
            "target_modules": _target_modules(pairs, policy),
        },
    )
    if has_tokenizer:
        _copy_others(source, directory)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in the format of transformers."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Pending:
    """A tensor that is computed when it is written.

    Attributes:
        num_bytes: Size in the file.
        make: Function that returns the tensor.
    """

    num_bytes: int
    make: Callable[[], np.ndarray]


def _merged_tensors(policy: Decoder, source: Path, alpha: float, dtype: jnp.dtype) -> dict[str, _Pending]:
    """Return name → tensor for everything in the files of the source."""
    weights: dict[Any, jax.Array] = {
        tuple(path): leaf.get_value() for path, leaf in nnx.to_flat_state(nnx.state(policy, (nnx.Param, Scale)))
    }
    pairs = _adapter_pairs(policy)
    projections = {path: module for path, module in nnx.iter_modules(policy) if isinstance(module, Projection)}
    pending = {}
    for tensor, stored in locate_tensors(source, policy.config).items():
        module, pair = tensor.path[:-1], pairs.get(tensor.path[:-1])
        if tensor.path[-1] == "kernel":
            make = functools.partial(_merge, projections[module], pair, alpha, dtype)
        elif tensor.of_expert:
            make = functools.partial(_expert_to_host, weights[module], tensor.path[-1], dtype)
        else:
            make = functools.partial(_to_host, weights[tensor.path], dtype, transposed=tensor.transposed)
        pending[stored.name] = _Pending(math.prod(tensor.shape) * dtype.itemsize, make)
    for file in list_files(source):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                # A stored copy of a tied head would have the values from before training.
                if name not in pending and not (policy.config.tied_embeddings and name.endswith("lm_head.weight")):
                    kept = tensors.get_tensor(name)
                    pending[name] = _Pending(kept.nbytes, functools.partial(_read, file, name))
    return pending


def _merge(
    projection: Projection, pair: tuple[jax.Array, jax.Array] | None, alpha: float, dtype: jnp.dtype
) -> np.ndarray:
    """Return W + (alpha / rank) A B, computed in float32, in the layout of a file; only W without an adapter.

    If the base is quantised, W is the dequantised matrix, with which the adapter was trained.
    """
    base = projection.base_weight()
    if pair is None:
        return _to_host(base, dtype, transposed=True)
    whole, left, right = (_to_host(x, jnp.dtype("float32")) for x in (base, *pair))
    merged = whole + (alpha / left.shape[1]) * (left @ right)
    return np.ascontiguousarray(merged.T.astype(dtype))


def _to_host(array: jax.Array, dtype: jnp.dtype, *, transposed: bool = False) -> np.ndarray:
    host = np.asarray(fetch(array)).astype(dtype)
    return np.ascontiguousarray(host.T if transposed else host)


def _expert_to_host(stack: jax.Array, number: Any, dtype: jnp.dtype) -> np.ndarray:
    return _to_host(stack[number], dtype, transposed=True)


def _read(file: Path, name: str) -> np.ndarray:
    with safe_open(file, framework="numpy") as tensors:
        kept: np.ndarray = tensors.get_tensor(name)
        return kept


def _write_weights(pending: Mapping[str, _Pending], directory: Path | None) -> None:
    split = split_state_dict_into_shards_factory(
        dict(pending),
        get_storage_size=lambda tensor: tensor.num_bytes,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=MAX_FILE_BYTES,
    )
    for file, names in split.filename_to_tensors.items():
        tensors = {name: pending[name].make() for name in names}
        if directory is not None:
            save_file(tensors, directory / file, metadata=_FORMAT)
    if split.is_sharded and directory is not None:
        index = {"metadata": split.metadata, "weight_map": split.tensor_to_filename}
        write_json(directory / "model.safetensors.index.json", index)


def _adapter_pairs(policy: Decoder) -> dict[WeightPath, tuple[jax.Array, jax.Array]]:
    """Return module → A [in, rank] and B [rank, out]."""
    pairs: dict[Any, dict[str, jax.Array]] = {}
    for path, leaf in nnx.to_flat_state(nnx.state(policy, nnx.LoRAParam)):
        pairs.setdefault(tuple(path[:-1]), {})[str(path[-1])] = leaf.get_value()
    return {module: (pair["kernel_lora_a"], pair["kernel_lora_b"]) for module, pair in pairs.items()}


def _dotted(path: WeightPath) -> str:
    return ".".join(map(str, path))


def place_in_transformers(module: WeightPath, policy: Decoder) -> str:
    """Return a module's name in transformers; its name in the files may differ. The head is outside the decoder."""
    if module[0] == "lm_head":
        return _dotted(module)
    return ("model.language_model." if policy.config.model_type in _WITH_VISION else "model.") + _dotted(module)


def _target_modules(pairs: Mapping[WeightPath, Any], policy: Decoder) -> list[str]:
    """Return the names by which PEFT finds the adapted modules again, and no others.

    The last part of a name is enough if every module with that last part is adapted. In a model with a vision tower it
    is not enough, because modules in the tower may have the same name.
    """
    leaves = sorted({str(module[-1]) for module in pairs})
    named = [path for path, module in nnx.iter_modules(policy) if isinstance(module, Projection) and path[-1] in leaves]
    if len(pairs) == len(named) and policy.config.model_type not in _WITH_VISION:
        return leaves
    return sorted(place_in_transformers(module, policy).removeprefix("model.") for module in pairs)


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return the configuration with the type of the exported weights, under the keys `dtype` and `torch_dtype`."""
    changed = {name: _with_dtype(value, dtype) if name == "text_config" else value for name, value in config.items()}
    return {name: dtype if name in ("dtype", "torch_dtype") else value for name, value in changed.items()}


def _copy_others(source: Path, directory: Path) -> None:
    """Copy the other files of a model directory."""
    for path in sorted(source.iterdir()):
        if path.is_file() and not any(path.match(pattern) for pattern in _NOT_COPIED):
            shutil.copyfile(path, directory / path.name)
            if path.suffix == ".json" and path.name not in _TABLES:
                _remove_code(directory / path.name)


def _remove_code(file: Path) -> None:
    """Remove the keys that name programs from a copied JSON file.

    Raises:
        ExportError: The file is not JSON.
    """
    try:
        content = json.loads(file.read_bytes())
        if (cleaned := _without_code(content)) != content:
            write_json(file, cleaned)
    except (OSError, ValueError) as error:
        raise ExportError(f"{file.name} of the model must be JSON, but is not: {error}; remove it") from error


def _without_code(value: Any) -> Any:
    """Return JSON data without the keys that name programs."""
    if isinstance(value, Mapping):
        return {name: _without_code(inner) for name, inner in value.items() if name not in _CODE_KEYS}
    return [_without_code(inner) for inner in value] if isinstance(value, list) else value
