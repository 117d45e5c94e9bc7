"""Functions that read an `Architecture` from a `config.json`, one for each family; loads no JAX.

A missing key gets the default of the family's configuration class in transformers if files of the family rely on it:
Gemma 3's files leave out most keys, while Llama's and Qwen's contain every size. A feature that the decoder lacks
raises an error that names its key in the file. It is never ignored.
"""

import re
from collections.abc import Callable
from pathlib import Path

from agent_tunix.errors import ModelError
from agent_tunix.policy.architecture import Architecture
from agent_tunix.policy.families.gemma import read_gemma2, read_gemma3, read_gemma3_text, read_gemma4, read_gemma4_text
from agent_tunix.policy.families.llama import read_llama, read_smollm3
from agent_tunix.policy.families.olmo import read_olmo3
from agent_tunix.policy.families.qwen import read_qwen2, read_qwen3, read_qwen3_5, read_qwen3_5_text, read_qwen3_moe
from agent_tunix.policy.files.config_file import ConfigFile


def read_architecture(directory: Path) -> Architecture:
    """Return the architecture that the `config.json` of a directory describes.

    Raises:
        ModelError: The file is not JSON, a required key is missing or invalid, or the family or a feature is not
            supported.
    """
    return parse_architecture(ConfigFile.read(directory / "config.json"))


def parse_architecture(config: ConfigFile) -> Architecture:
    """Return the architecture that the values of a `config.json` describe.

    Raises:
        ModelError: See `read_architecture`.
    """
    model_type = config.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        raise ModelError(
            f"{config.path}: model_type must be one of {', '.join(FAMILIES)}, not {model_type!r}",
            code="unsupported_model",
        )
    return family(config)


_OTHER_NAMES = {
    "gemma3text": "gemma3",
    "gemma4text": "gemma4",
    **dict.fromkeys(("llama3", "llama31", "llama32", "llama33"), "llama"),
    "olmo31": "olmo3",
    "qwen25": "qwen2",
    **dict.fromkeys(("qwen35", "qwen35text"), "qwen3_5"),
    "qwen3moe": "qwen3_moe",
}


def family_of(name: str) -> str:
    """Return the family of a name from a user or a `config.json`: `qwen2` for `Qwen2.5`, `gemma3` for `gemma3_text`."""
    plain = re.sub(r"[-_. ]", "", name.lower())
    return _OTHER_NAMES.get(plain, plain)


FAMILIES: dict[str, Callable[[ConfigFile], Architecture]] = {
    "gemma2": read_gemma2,
    "gemma3": read_gemma3,
    "gemma3_text": read_gemma3_text,
    "gemma4": read_gemma4,
    "gemma4_text": read_gemma4_text,
    "llama": read_llama,
    "olmo3": read_olmo3,
    "qwen2": read_qwen2,
    "qwen3": read_qwen3,
    "qwen3_5": read_qwen3_5,
    "qwen3_5_text": read_qwen3_5_text,
    "qwen3_moe": read_qwen3_moe,
    "smollm3": read_smollm3,
}
