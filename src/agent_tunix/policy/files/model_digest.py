"""The digest of a model, computed without reading all of it; loads no JAX.

A model is defined by its `config.json` and its weights. A few KiB of each tensor are read, at places that depend only
on its length. A fine-tuned or merged copy differs in every tensor that was trained, and therefore in some of the bytes
that are read. The digest misses a change in other bytes, such as a change of one row of the embedding.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from agent_tunix.errors import ModelError
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensor_files import list_files

_SAMPLE = 4096  # Bytes read at the start, the middle and the end of a tensor. A short tensor is read as a whole.
_HEX_DIGITS = 16  # Digits of each half.


def digest_model(directory: Path) -> str:
    """Return a digest of the model in a directory. Its path and the division into files have no effect.

    Returns:
        `ARCHITECTURE-WEIGHTS`, 16 hexadecimal digits each; `architecture_of` returns the first half.

    Raises:
        ModelError: `config.json` or a file of weights cannot be read.
    """
    described = json.dumps(_decisive(read_architecture(directory)), sort_keys=True)
    architecture = hashlib.sha256(described.encode()).hexdigest()
    # Sorted, because the same tensors in other files are the same model.
    tensors = sorted(line for file in list_files(directory) for line in _describe_tensors(file))
    weights = hashlib.sha256("\n".join(tensors).encode()).hexdigest()
    return f"{architecture[:_HEX_DIGITS]}-{weights[:_HEX_DIGITS]}"


def architecture_of(digest: str) -> str:
    """Return the half of a model's digest that does not depend on the weights."""
    return digest.partition("-")[0]


def _decisive(value: Any) -> Any:
    """Return a dataclass as JSON-ready data, without fields that have their default.

    A field that is added later, with a default, does not change older digests.
    """
    if isinstance(value, Mapping):
        return {str(name): _decisive(each) for name, each in value.items()}
    if not dataclasses.is_dataclass(value):
        return value
    return {
        field.name: _decisive(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }


def _describe_tensors(path: Path) -> list[str]:
    """Return a line for each tensor in a safetensors file: name, type, shape and a hash of the samples."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            lines = []
            for name, entry in header.items():
                begin, end = entry["data_offsets"]
                sampled = _sample(file, 8 + length + begin, 8 + length + end)
                lines.append(json.dumps([name, entry["dtype"], entry["shape"], sampled]))
            return lines
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise ModelError(
            f"{path} is damaged or incomplete ({error!r}); download it again", code="damaged_weights"
        ) from error


def _sample(file: BinaryIO, begin: int, end: int) -> str:
    """Return a hash of the bytes from `begin` to `end`, or of three samples of them."""
    size = end - begin
    if size < 0:  # all of the file would be read
        raise ValueError("a tensor ends before it begins")
    digest = hashlib.sha256()
    if size <= 3 * _SAMPLE:
        file.seek(begin)
        digest.update(file.read(size))
    else:
        for place in (begin, begin + (size - _SAMPLE) // 2, end - _SAMPLE):
            file.seek(place)
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()
