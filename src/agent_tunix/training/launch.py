"""The start of a run from its configuration, shared by the commands and `agent_tunix.api`.

All cheap checks come before JAX is imported. Importing this module does not load JAX.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent_tunix.config import compose
from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.errors import ConfigError
from agent_tunix.startup import garbage
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking.callbacks import Callback

if TYPE_CHECKING:
    from agent_tunix.training.session import Summary

Method = Literal["grpo", "sft", "prefer"]


def launch(
    config: Config,
    root: Path,
    overrides: Sequence[str] = (),
    *,
    method: Method = "grpo",
    callbacks: Sequence[Callback] = (),
    in_python: bool = False,
) -> "Summary":
    """Check a configuration, load JAX, and train.

    Args:
        config: The composed configuration.
        root: Directory of the run.
        overrides: Overrides of the configuration, which are stored with the outcome of the run.
        method: `grpo`, `sft` for a supervised start, or `prefer` for preference tuning.
        callbacks: Code of the user, called around the steps.
        in_python: True if messages should name calls in Python, not commands.

    Raises:
        AgentTunixError: The run cannot start, or it stopped; the message says what to do.
    """
    with spend("imports"):
        from agent_tunix.engines.devices import SAMPLING_DEVICES, reserve_devices
        from agent_tunix.runs.preflight import preflight
        from agent_tunix.runs.reward_setup import begin_verifiers
        from agent_tunix.runs.weights.continuing import earlier_directory
        from agent_tunix.runs.weights.starting_run import resolve_start
        from agent_tunix.startup import devices
        from agent_tunix.training.preferences.from_rollouts import write_pairs
        from agent_tunix.training.preferences.pairs import check_preferences
        from agent_tunix.training.targets import check_supervised

    with spend("checks"):
        config = resolve_start(config, overrides)
        earlier = earlier_directory(config, root)
        if method != "grpo" and config.engine.name != "none":
            raise ConfigError(
                f"engine must be none in {method}, which samples in this process, but it is {config.engine.name}; set "
                "engine=none"
            )
        if method == "prefer":
            config = write_pairs(config, root, earlier)
        checked = preflight(config, Path.cwd(), earlier, trains_reward=method == "grpo")
        if method != "grpo":
            checked = (check_supervised if method == "sft" else check_preferences)(checked)
    if method == "grpo":
        begin_verifiers(checked.mixture, config.rewards.execution)  # start them while JAX is imported
    sampling_devices = SAMPLING_DEVICES.set(reserve_devices(config) if method == "grpo" else ())
    devices.prepare(config.distributed)
    _join(config)
    with spend("imports"):
        devices.require(config.distributed)

        from agent_tunix.training import resuming, sft, train

    garbage.never_sought_in_imports()
    run = {"grpo": train.train, "sft": sft.train_supervised, "prefer": sft.train_preferences}[method]
    token = resuming.IN_PYTHON.set(in_python)
    try:
        return run(checked, root, overrides, callbacks)
    finally:
        resuming.IN_PYTHON.reset(token)
        SAMPLING_DEVICES.reset(sampling_devices)


def _join(config: Config) -> None:
    """Connect the processes of the run if there are several."""
    if config.distributed.mode == "none":
        return
    with spend("processes"):
        from agent_tunix.distributed import join

        join(config.distributed, compose.to_yaml(dataclasses.replace(config, distributed=DistributedConfig())))
