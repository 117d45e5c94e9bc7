"""The files of a model directory, and checks that they are complete."""

import contextlib
import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from agent_tunix.errors import ModelError

INDEX = "model.safetensors.index.json"
# Files besides the weights. The tokenizer is read from tokenizer.json; its other files name its special tokens.
_SMALL = {
    INDEX,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
}


def choose_files(names: Iterable[str]) -> list[str]:
    """Return the files of a repository that a run needs: configuration, weights in safetensors, tokenizer."""
    return sorted(name for name in names if name in _SMALL or _is_weights(name))


def check_files(where: str, names: Collection[str]) -> None:
    """Refuse a directory or repository that is not a model directory.

    Args:
        where: Directory or repository, for the message.
        names: Names of its files.

    Raises:
        ModelError: Files are missing. The message names files that were found instead.
    """
    if any(_is_weights(name) for name in names) and "config.json" in names:
        return
    if "adapter_config.json" in names:
        raise ModelError(
            f"{where} must contain a model, but contains an adapter; export its run without --adapter, or "
            "merge another adapter into its base with PEFT's `merge_and_unload()` and `save_pretrained`, and give that "
            "directory",
            code="adapter_mismatch",
        )
    if "config.json" not in names:
        raise ModelError(
            f"{where} has no config.json; give a Hugging Face model directory", code="invalid_model_config"
        )
    other = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack")))
    if other:
        raise ModelError(
            f"{where} must have its weights in *.safetensors, but has {other[0]}; convert them with transformers: "
            "`AutoModelForCausalLM.from_pretrained(SOURCE).save_pretrained(DIR)`, and set model.path=DIR",
            code="damaged_weights",
        )
    raise ModelError(f"{where} has no *.safetensors file; check that the download is complete", code="damaged_weights")


def check_weights(directory: Path) -> None:
    """Refuse a directory in which a file of weights is missing, damaged or incomplete.

    Raises:
        ModelError: The message names the file.
    """
    for name in sorted(indexed_files(directory)):
        if not (directory / name).is_file():
            raise ModelError(
                f"{directory} lacks {name}, which its {INDEX} names; download it again, or the whole model",
                code="damaged_weights",
            )
    for path in sorted(directory.glob("*.safetensors")):
        if not path.is_file():
            what = "a link to a file that does not exist" if path.is_symlink() else "no file"
            raise ModelError(
                f"{path} is {what}; download it again, or give the directory with the files", code="damaged_weights"
            )
        with open_tensors(path):
            pass


@contextlib.contextmanager
def open_tensors(file: Path) -> Iterator[Any]:
    """Yield an open file of tensors, whose parts can be read.

    Raises:
        ModelError: The file cannot be opened or read.
    """
    try:
        with safe_open(file, framework="numpy") as tensors:
            yield tensors
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{file} is damaged or incomplete ({error}); delete and download it again", code="damaged_weights"
        ) from error


def is_whole(directory: Path) -> bool:
    """Return True if a directory contains a model and all its files are complete."""
    try:
        check_files(str(directory), [path.name for path in directory.iterdir()])
        check_weights(directory)
    except (ModelError, OSError):
        return False
    return True


def _is_weights(name: str) -> bool:
    """Return True for a file with weights of the whole model.

    The Hugging Face hub has them at the top level. Other copies are in subdirectories.
    """
    return name.endswith(".safetensors") and "/" not in name and not name.startswith(("consolidated", "adapter_"))


def indexed_files(directory: Path) -> set[str]:
    """Return the names of the weight files that the index of a directory lists; none without an index.

    Raises:
        ModelError: The index is damaged.
    """
    path = directory / INDEX
    if not path.is_file():
        return set()
    try:
        return {str(name) for name in json.loads(path.read_bytes())["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{path} is damaged or incomplete ({error!r}); delete and download it again", code="damaged_weights"
        ) from error
