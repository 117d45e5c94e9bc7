"""Import of the user's own policy loss and advantage estimator, which a configuration names.

`grpo.loss` and `grpo.advantage_scaling` take a built-in name, a name that a module of `grpo.modules` registers, a
dotted path, or `file.py:function`.
"""

from pathlib import Path
from types import ModuleType
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import ConfigError
from agent_tunix.own_functions import OWN_LOSSES, POLICY_LOSSES, OwnFunctions
from agent_tunix.rewards import loading
from agent_tunix.rewards.advantages import OWN_ESTIMATORS, SCALINGS
from agent_tunix.rewards.finding import nearest
from agent_tunix.runs.code_parts import CodePart, find_code_parts
from agent_tunix.startup import devices


def register_own_algorithm(config: Config, working_directory: Path, *, with_loss: bool = True) -> None:
    """Import the user's own loss and estimator, if the configuration names any, so that they are found by name.

    Args:
        config: The configuration.
        working_directory: Base directory of relative paths and of the user's own modules.
        with_loss: False for the estimator alone.

    Raises:
        ConfigError: A name, file or function does not exist; the message gives the closest match.
        RewardError: A file or module failed to import.
    """
    own = _own_specs(config, with_loss)
    if not own:
        return
    devices.prepare(config.distributed)  # the user's file may import JAX, which reads these settings then
    for module in config.grpo.modules:
        _import("grpo.modules", module, working_directory)
    tables: dict[str, OwnFunctions[Any]] = {"grpo.loss": OWN_LOSSES, "grpo.advantage_scaling": OWN_ESTIMATORS}
    for key, spec in own.items():
        if "." in spec:
            tables[key].add(spec, _function(key, spec, working_directory))
        tables[key].get(spec)


def algorithm_parts(config: Config, working_directory: Path, *, with_loss: bool = True) -> list[CodePart]:
    """Return the code that `register_own_algorithm` imports for the same arguments."""
    own = _own_specs(config, with_loss)
    return find_code_parts(
        {key: spec for key, spec in own.items() if "." in spec},
        modules=config.grpo.modules if own else (),
        working_directory=working_directory,
    )


def _own_specs(config: Config, with_loss: bool) -> dict[str, str]:
    own = {}
    if with_loss and config.grpo.loss not in POLICY_LOSSES:
        own["grpo.loss"] = config.grpo.loss
    if config.grpo.advantage_scaling not in SCALINGS:
        own["grpo.advantage_scaling"] = config.grpo.advantage_scaling
    return own


def _function(key: str, spec: str, working_directory: Path) -> Any:
    path, _, name = spec.rpartition(":" if ".py:" in spec else ".")
    module = _import(key, path, working_directory)
    found = getattr(module, name, None)
    if not callable(found):
        names = loading.rewards_of(module)
        raise ConfigError(
            f"{key}={spec} must name a function, but {path} has no function {name!r}{nearest(name, names)} {path} "
            f"has: {', '.join(names) or 'none'}",
            code="invalid_function",
        )
    return found


def _import(key: str, spec: str, working_directory: Path) -> ModuleType:
    """Import a file or module."""
    file = working_directory / (spec if spec.endswith(".py") else f"{spec}.py")
    if file.is_file():
        return loading.load_file(file, working_directory)
    loading.add_to_import_path(working_directory, last=True)
    module = None
    if not spec.endswith(".py"):
        module = loading.load_module(f"agent_tunix.{spec}") or loading.load_module(spec)
    if module is None:
        raise ConfigError(
            f"{key} requires {spec}, but there is no such file or module in {working_directory} or on the import path; "
            "correct the path",
            code="invalid_function",
        )
    return module
