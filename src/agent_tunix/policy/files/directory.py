"""The directory of a model, and the fingerprint of its tokenizer; loads no JAX."""

import dataclasses
import hashlib
import os
import re
from collections.abc import Collection
from pathlib import Path

from agent_tunix.config.schema import ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.hubs import google_storage, huggingface, kaggle
from agent_tunix.hubs.request import HubRequest
from agent_tunix.policy.files.location import Location, parse_location
from agent_tunix.policy.files.model_files import check_files, check_weights, choose_files, is_whole

_ASSETS = Path(__file__).resolve().parents[2] / "assets"
EMBEDDED_MODELS = {name: _ASSETS / name for name in ("tiny_qwen3", "tiny_tools")}
# The model to use if `model.path` is not set.
EMBEDDED_MODEL = EMBEDDED_MODELS["tiny_qwen3"]

_EMBEDDED = "embedded:"


def find_model_directory(config: ModelConfig, setting: str = "model.path") -> Path:
    """Return the directory of the model that `model.path` names; download it if necessary.

    Args:
        config: The model.
        setting: Key of the path, for messages.

    Raises:
        ModelError: The model cannot be found or downloaded, or a file of it is missing or damaged.
    """
    location = parse_location(config.path, setting)
    if location is not None:
        directory = _fetch(location if location.is_exact else _resolve(location))
    else:
        directory = local_directory(config.path, setting)
        if not os.path.isdir(directory):  # False for a path that is too long, unlike `Path.is_dir`
            raise ModelError(f"{setting} {directory} is not a directory{_advice(config.path or '')}")
        check_files(f"{setting} {directory}", [path.name for path in directory.iterdir()])
    check_weights(directory)
    return directory


def local_directory(path: str | None, setting: str = "model.path") -> Path:
    """Return the directory of a path that names no hub: an embedded model or a directory on this disk.

    Args:
        path: The path.
        setting: Key of the path, for messages.

    Raises:
        ModelError: There is no embedded model of that name.
    """
    if path is None:
        return EMBEDDED_MODEL
    if not path.startswith(_EMBEDDED):
        return Path(path).expanduser()
    name = path.removeprefix(_EMBEDDED)
    if name not in EMBEDDED_MODELS:
        raise ModelError(f"{setting}={path} must be one of {', '.join(_EMBEDDED + known for known in EMBEDDED_MODELS)}")
    return EMBEDDED_MODELS[name]


def is_on_hub(config: ModelConfig, setting: str = "model.path") -> bool:
    """Return True if the model may have to be downloaded.

    Args:
        config: The model.
        setting: Key of its path, for messages.

    Raises:
        ModelError: The path is an invalid address.
    """
    return parse_location(config.path, setting) is not None


def find_cached_directory(config: ModelConfig) -> Path | None:
    """Return the directory of a model that is complete on this disk, or None, without asking a hub."""
    location = parse_location(config.path)
    if location is None:
        directory = local_directory(config.path)
    elif not location.is_exact:
        return None
    else:
        name, revision = location.name, str(location.revision)
        directory = {
            "hf": lambda: huggingface.cached_snapshot(name, revision),
            "gs": lambda: google_storage.cache_directory(name) / revision,
            "kaggle": lambda: kaggle.cached_version(f"{name}/{revision}", "model"),
        }[location.scheme]()
    return directory if is_whole(directory) else None


def pin_model(config: ModelConfig, recorded: ModelConfig | None = None, setting: str = "model.path") -> ModelConfig:
    """Return the configuration with a `path` that always means the same bytes: a model on a hub gets its commit.

    Args:
        config: Configuration from the user.
        recorded: Configuration that a resumed run was started with. Its model is kept if `config` may refer to it.
        setting: Key of the path, for messages.

    Raises:
        ModelError: The hub cannot be reached, or has no such model.
    """
    location = parse_location(config.path, setting)
    if location is None or location.is_exact:
        return config
    before = parse_location(recorded.path) if recorded is not None else None
    exact = before if before is not None and location.may_become(before) else _resolve(location)
    return dataclasses.replace(config, path=str(exact))


def _resolve(location: Location) -> Location:
    """Return the exact location that a location means now."""
    request = _request(location)
    if location.scheme == "hf":
        return location.at(huggingface.resolve(request, location.name, location.revision).sha)
    if location.scheme == "gs":
        return location.at(google_storage.resolve(request, location.name, choose_files))
    directory = kaggle.download(request, location.name, "model")
    return location.at(directory.name)


def _fetch(location: Location) -> Path:
    """Return the directory with the files of an exact location; download them if necessary."""
    request = _request(location)
    assert location.revision is not None

    def choose(names: Collection[str]) -> list[str]:
        check_files(request.setting, names)
        return choose_files(names)

    if location.scheme == "hf":
        return huggingface.download(request, location.name, location.revision, choose, _has_all)
    if location.scheme == "gs":
        return google_storage.download(request, location.name, location.revision, choose)
    directory = kaggle.download(request, f"{location.name}/{location.revision}", "model")
    check_files(request.setting, [path.name for path in directory.iterdir()])
    return directory


def _has_all(directory: Path) -> bool:
    """Return True if no file is missing. Other programs may have cached a model without its tokenizer."""
    return is_whole(directory) and (directory / "tokenizer.json").is_file()


def _request(location: Location) -> HubRequest:
    return HubRequest(
        f"{location.setting}={location}", f"set {location.setting} to a model directory on this disk", ModelError
    )


def _advice(path: str) -> str:
    """Return a suggestion for a path that does not exist."""
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", path):
        return f"; give a Hugging Face model directory on disk, or hf://{path} for a model on the hub"
    return "; give a Hugging Face model directory on disk"


def fingerprint_tokenizer(directory: Path) -> str | None:
    """Return a short hash of a directory's tokenizer, which decides token ids and counts; None without a tokenizer."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return digest.hexdigest()[:16]
