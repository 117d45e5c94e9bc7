"""Where a model lies, and which tokenizer it has; loads no JAX."""

import hashlib
from pathlib import Path

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError

EMBEDDED_MODEL = Path(__file__).resolve().parents[1] / "assets" / "tiny_qwen3"


def find_model_directory(config: ModelConfig) -> Path:
    """The directory that `model.path` names, or the embedded model's.

    Raises:
        ModelError: The directory or a file in it is missing.
    """
    directory = EMBEDDED_MODEL if config.path is None else Path(config.path).expanduser()
    if not directory.is_dir():
        raise ModelError(f"model.path {directory} is not a directory; give a Hugging Face model directory on disk")
    if not (directory / "config.json").is_file():
        raise ModelError(f"model.path {directory} has no config.json; give a Hugging Face model directory")
    if not any(directory.glob("*.safetensors")):
        raise ModelError(f"model.path {directory} has no *.safetensors file; is the download complete?")
    return directory


def fingerprint_tokenizer(directory: Path) -> str | None:
    """A short hash of the tokenizer of a directory, which decides token ids and counts; None where it has none."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()[:16]
