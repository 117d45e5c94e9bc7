"""The tensors of a decoder in the files of a Hugging Face directory; loads no JAX."""

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.files.model_files import indexed_files, open_tensors
from agent_tunix.policy.files.tensors import Tensor, list_tensors

_LOGGER = logging.getLogger("agent_tunix.model")

# Supported types of stored weights. Quantised types would need scales, which are not read.
_TYPES = ("F64", "F32", "F16", "BF16")
_EMBEDDING = "embed_tokens.weight"
_HEAD = "lm_head.weight"
# Parts of a model besides its text model, by family: towers for images and sounds, multi-token prediction.
_TOWERS = {
    "gemma3": frozenset({"vision_tower", "multi_modal_projector"}),
    "gemma4": frozenset({"vision_tower", "embed_vision", "audio_tower", "embed_audio"}),
    **dict.fromkeys(("qwen3_5", "qwen3_5_text"), frozenset({"visual", "mtp"})),
}
_COMPARED_ROWS = 4096  # Rows compared at once, so that two large matrices are never whole in memory.


@dataclass(frozen=True)
class Stored:
    """A tensor in a file.

    Attributes:
        file: Path of the file.
        name: Full name in the file.
        shape: Shape in the file.
        kind: Type, in the notation of safetensors.
    """

    file: Path
    name: str
    shape: tuple[int, ...]
    kind: str


def locate_tensors(directory: Path, architecture: Architecture) -> dict[Tensor, Stored]:
    """Return each tensor of the architecture with its place in the files of a directory.

    The prefix of the names varies: `model.` in a causal model, nothing in a bare one, `language_model.model.` or
    `model.language_model.` in one with a vision tower. It is read from the embedding's name. An output projection that
    is stored although `config.json` ties it to the embedding is only compared with the embedding.

    Raises:
        ModelError: A file is missing or damaged. A tensor is missing, is stored twice, or has a wrong shape or an
            unsupported type. Or `config.json` does not account for a tensor, so that the model would not be computed as
            in training.
    """
    by_name = _without_others(directory, architecture, _read_heads(directory))
    embeddings = [name for name in by_name if name == _EMBEDDING or name.endswith(f".{_EMBEDDING}")]
    if not embeddings:
        raise ModelError(
            f"{directory} has no tensor {_EMBEDDING} in its *.safetensors; check that all files are downloaded",
            code="damaged_weights",
        )
    if len(embeddings) > 1:
        raise ModelError(
            f"{directory} has {' and '.join(embeddings)}; only models of one decoder are supported",
            code="unsupported_model",
        )
    prefix = embeddings[0].removesuffix(_EMBEDDING)
    heads = [name for name in by_name if name == _HEAD or name.endswith(f".{_HEAD}")]
    located = {}
    missing = []
    for tensor in list_tensors(architecture):
        # The head is outside the decoder, so it does not have the decoder's prefix.
        name = prefix + tensor.name if tensor.name != _HEAD else heads[0] if heads else _HEAD
        if name in by_name:
            located[tensor] = by_name[name]
        else:
            missing.append(name)
    known = {stored.name for stored in located.values()} | set(heads[:1])
    unknown = [name for name in by_name if name not in known]
    if unknown:
        raise ModelError(
            f"{directory} has {_some(unknown)}, which the model_type {architecture.model_type} of its config.json "
            "does not have; the model would be computed differently than in training",
            code="damaged_weights",
        )
    if missing:
        raise ModelError(
            f"{directory} has no {_some(missing)} in its *.safetensors; check that all files are downloaded",
            code="damaged_weights",
        )
    for tensor, stored in located.items():
        _check_stored(directory, tensor, stored)
    if architecture.tied_embeddings and heads:
        _check_copy(directory, by_name[heads[0]], by_name[embeddings[0]])
    return located


def _without_others(directory: Path, architecture: Architecture, by_name: dict[str, Stored]) -> dict[str, Stored]:
    """Return the tensors without those that the decoder does not need, such as those of a vision tower."""
    others = _TOWERS.get(architecture.model_type, frozenset())
    parts = {name: name.split(".") for name in by_name}
    unused = [name for name, of_name in parts.items() if not others.isdisjoint(of_name)]
    if unused:
        held = " and ".join(sorted(part for part in others if any(part in parts[name] for name in unused)))
        _LOGGER.info("%s: only the text model is used, not the %d tensors of %s", directory, len(unused), held)
    return {
        name: stored
        for name, stored in by_name.items()
        if name not in unused and not _is_set_aside(parts[name], architecture)
    }


def _is_set_aside(parts: list[str], architecture: Architecture) -> bool:
    """Return True if the decoder does not need a tensor.

    Such a tensor is a computed table, or belongs to the keys and values of a layer that uses those of another layer.
    Gemma 4's files store those too.
    """
    if "layers" in parts and not {"k_proj", "v_proj", "k_norm"}.isdisjoint(parts):
        number = parts[parts.index("layers") + 1]
        return number.isdecimal() and architecture.is_borrowing(int(number))
    return parts[-2:] == ["rotary_emb", "inv_freq"]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"tensor {names[0]}{more}"


def _check_stored(directory: Path, tensor: Tensor, stored: Stored) -> None:
    if stored.shape != tensor.shape:
        raise ModelError(
            f"{directory}: {stored.name} must have the shape {tensor.shape} of config.json, but has {stored.shape}; "
            "check that both belong to the same model",
            code="damaged_weights",
        )
    if stored.kind not in _TYPES:
        raise ModelError(
            f"{directory}: {stored.name} must be stored as one of {', '.join(_TYPES)}, not {stored.kind}",
            code="damaged_weights",
        )


def _check_copy(directory: Path, head: Stored, embedding: Stored) -> None:
    """Refuse an output projection that differs from the embedding although `config.json` ties the two.

    Transformers before version 5 uses the embedding instead; later versions use the stored projection.
    """
    same = (head.shape, head.kind) == (embedding.shape, embedding.kind)
    if same:
        with open_tensors(head.file) as of_head, open_tensors(embedding.file) as of_embedding:
            one, other = of_head.get_slice(head.name), of_embedding.get_slice(embedding.name)
            spans = [
                slice(row, min(row + _COMPARED_ROWS, head.shape[0])) for row in range(0, head.shape[0], _COMPARED_ROWS)
            ]
            same = all(np.array_equal(one[span], other[span]) for span in spans)
    if not same:
        raise ModelError(
            f"{directory}: {head.name} differs from {embedding.name}, but config.json has tie_word_embeddings = "
            "true; set it to false if the model was trained with a separate output projection, otherwise remove the "
            "tensor",
            code="damaged_weights",
        )


def _read_heads(directory: Path) -> dict[str, Stored]:
    """Return the tensors in the files, by full name."""
    by_name: dict[str, Stored] = {}
    for file in list_files(directory):
        with open_tensors(file) as tensors:
            for name in tensors.keys():  # noqa: SIM118  # not a dictionary
                if name in by_name:
                    raise ModelError(
                        f"{directory} has {name} in {by_name[name].file.name} and in {file.name}; remove the files "
                        "that do not belong to this model",
                        code="damaged_weights",
                    )
                part = tensors.get_slice(name)
                by_name[name] = Stored(file, name, tuple(part.get_shape()), part.get_dtype())
    return by_name


def list_files(directory: Path) -> list[Path]:
    """Return the weight files of a model: `model.safetensors`, those that an index names, or all in the directory.

    Raises:
        ModelError: The index is damaged.
    """
    whole = directory / "model.safetensors"
    if whole.is_file():
        return [whole]
    files = [directory / name for name in sorted(indexed_files(directory))]
    if not files:
        # `consolidated` is a second copy in some repositories, and an adapter is not part of the model.
        names = sorted(directory.glob("*.safetensors"))
        return [file for file in names if not file.name.startswith(("adapter_", "consolidated"))]
    return files
