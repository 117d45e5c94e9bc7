"""`model.from_run`: a run that starts from the result of another one. Importing this module loads no JAX.

The key stands for what it takes from the other run, and config.yaml stores that in its place: the model and its
adapter, `training.init_checkpoint`, the prompts, and the stop tokens. An adapter is continued, not merged; `agent-tunix
export` merges one. Keys that the user sets win, and those that differ from the other run are told.

Only data is taken from the other run. Its rewards, environments, data sources and commands are not, so a run of others
needs no trust.
"""

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from typing import Any

from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.schema import Config, ModelConfig, PromptConfig
from agent_tunix.errors import ConfigError
from agent_tunix.runs.weights.initial import find_initial

_LOGGER = logging.getLogger("agent_tunix.run")
_KEY = "model.from_run"
# Keys of `model` that depend on the devices, not on the weights.
_OWN = ("mesh_shape", "remat", "from_run")
_TAKEN = (
    *(("model", field.name) for field in dataclasses.fields(ModelConfig) if field.name not in _OWN),
    *(("prompt", field.name) for field in dataclasses.fields(PromptConfig)),
    ("generation", "eos_tokens"),
    ("generation", "stop_strings"),
)


def resolve_start(config: Config, overrides: Sequence[str]) -> Config:
    """Return the configuration with what `model.from_run` stands for. Without the key, nothing changes.

    Args:
        config: The composed configuration.
        overrides: Overrides of the command line. A key counts as set by the user if they name it, or the file of its
            prompt, or if they give it another value than the default, as a model's file or an experiment may.

    Raises:
        ConfigError: The key does not name a run, or `training.init_checkpoint` is set too.
    """
    given = config.model.from_run
    if given is None:
        return config
    if config.training.init_checkpoint is not None:
        raise ConfigError(
            f"{_KEY} starts with the weights of that run, so training.init_checkpoint must be null, not "
            f"{config.training.init_checkpoint}; remove one of them"
        )
    run, step = find_initial(given, _KEY)
    changes: dict[str, dict[str, Any]] = {"model": {"from_run": None}, "prompt": {}, "generation": {}}
    conflicts = []
    own = set(_own_keys(config, overrides))
    for group, name in _TAKEN:
        theirs, ours = (getattr(getattr(one, group), name) for one in (run.config, config))
        if (group, name) not in own:
            changes[group][name] = theirs
        elif ours != theirs:
            conflicts.append(f"{group}.{name}")
    if conflicts:
        _LOGGER.warning("%s=%s: your own values differ from that run's: %s", _KEY, given, ", ".join(conflicts))
    initial = str(run.root) if step is None else f"{run.root}:{step}"
    changes["training"] = {"init_checkpoint": initial}
    groups = {group: dataclasses.replace(getattr(config, group), **values) for group, values in changes.items()}
    return dataclasses.replace(config, **groups)


def compose_start(overrides: Sequence[str]) -> Config:
    """Return the configuration that a command would train with, composed from its overrides.

    Raises:
        ConfigError: Hydra refuses an override, or `resolve_start` does.
    """
    return resolve_start(compose_overrides(overrides), overrides)


def _own_keys(config: Config, overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys that the user has set, as group and name."""
    named = {override.partition("=")[0].lstrip("+~") for override in overrides}
    # A file of `prompt` is chosen as a whole. One of `model` leaves adapter and types at their defaults.
    whole = named & {"prompt"}
    default = compose_overrides([])
    for group, name in _TAKEN:
        is_named = any(f"{key}.".startswith(f"{group}.{name}.") for key in named)
        if (
            is_named
            or group in whole
            or getattr(getattr(config, group), name) != getattr(getattr(default, group), name)
        ):
            yield group, name
