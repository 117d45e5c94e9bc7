"""The settings of a run's prompts in an export, with which others ask the model as in training."""

import dataclasses
from pathlib import Path

from agent_tunix.config.compose import from_yaml, to_yaml
from agent_tunix.config.schema import Config, PromptConfig

_FILE = "agent_tunix.yaml"
_KEYS = (
    # An export has the chat template in a file of its own. A path here could name any file of the user.
    *(f"prompt.{field.name}" for field in dataclasses.fields(PromptConfig) if field.name != "chat_template"),
    *("generation.max_generation_steps", "generation.eos_tokens", "generation.stop_strings", "data.prompt_column"),
)


def write_prompts(config: Config, directory: Path) -> None:
    """Write the settings to a file of the directory."""
    (directory / _FILE).write_text(to_yaml(config, _KEYS), encoding="utf-8")


def find_prompts(directory: Path) -> Path | None:
    """Return the file with the settings, or None for a directory that is no export."""
    path = directory / _FILE
    return path if path.is_file() else None


def with_prompts(config: Config, path: Path) -> Config:
    """Return the configuration with the settings of a file, which somebody else may have written.

    Raises:
        ConfigError: The file is damaged.
    """
    stored = from_yaml(path)
    for key in _KEYS:
        group, _, name = key.partition(".")
        values = {name: getattr(getattr(stored, group), name)}
        config = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **values)})
    return config
