"""How every run opens: settle the configuration, claim the directory, and write down what began."""

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import absl.logging
import jax

from agent_tunix.config.compose import from_yaml, to_yaml
from agent_tunix.config.optimizers import filled
from agent_tunix.config.schema import Config, RewardConfig
from agent_tunix.data.pinning import pin_data
from agent_tunix.policy.directory import fingerprint_tokenizer, pin_model
from agent_tunix.rewards import Mixture, fingerprint
from agent_tunix.rewards.diagnosis import RunContext
from agent_tunix.tracking import RunLog
from agent_tunix.tracking.outcome import Attempt, recorded_outcome
from agent_tunix.training import run_directory, timeline, uploaded_rewards
from agent_tunix.training.building import Material
from agent_tunix.training.initial import describe_initial, pin_initial
from agent_tunix.training.preflight import Checked
from agent_tunix.training.run_directory import RunDirectory
from agent_tunix.training.stopping import StopRequest

_LOGGER = logging.getLogger("agent_tunix.run")


@dataclass(frozen=True)
class Opened:
    """A run that may write, before anything is loaded.

    Attributes:
        checked: What was asked for; its configuration says which state of a hub's model and data it means.
        places: Where everything lies; nobody else writes there.
        attempt: Whose end is written down.
        stop: Whether a signal asked to stop.
    """

    checked: Checked
    places: RunDirectory
    attempt: Attempt
    stop: StopRequest


@contextlib.contextmanager
def open_run(checked: Checked, root: Path, overrides: Sequence[str]) -> Iterator[Opened]:
    """Claim a directory and hold it, with the log open, how the run ends noted, and signals heard.

    Args:
        checked: A configuration that passed `preflight`, and its reward.
        root: The run's directory.
        overrides: What was asked for on the command line; kept beside how the run ended.

    Raises:
        RunDirectoryError, CheckpointError, DataError, ModelError: What was required, what arrived and what to do.
    """
    config = settle(checked.config, root)
    places = run_directory.claim(config, root)
    quieten_libraries()
    with (
        run_directory.hold(root),
        recorded_outcome(root, overrides) as attempt,
        RunLog(places.log, config.training.log_level),
        StopRequest() as stop,
        timeline.recorded(places.timings),
    ):
        yield Opened(replace(checked, config=pin(config, places)), places, attempt, stop)


def settle(config: Config, root: Path) -> Config:
    """The configuration as the run keeps it: what depends on the moment or on the working directory is written out."""
    config = pin_initial(run_directory.with_absolute_places(config), root)
    return replace(config, optimizer=filled(config.optimizer), scheduler=filled(config.scheduler))


def pin(config: Config, places: RunDirectory) -> Config:
    """The configuration that says which state of a hub's model and data it means: that of the run it goes on with."""
    recorded = from_yaml(places.config) if places.config.exists() else None
    model = pin_model(config.model, recorded.model if recorded is not None else None)
    return pin_data(replace(config, model=model), recorded)


def quieten_libraries() -> None:
    """Leave out what Tunix and JAX say of themselves below a warning, or of no consequence here."""
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.getLogger("jax").setLevel(logging.WARNING)


def record_start(
    config: Config, mixture: Mixture, context: RunContext, places: RunDirectory, method: str, material: Material
) -> None:
    """Write down the configuration, and what the run is made of."""
    if places.config.exists() and _compared(from_yaml(places.config)) != _compared(config):
        _LOGGER.warning("the configuration is not the one this run was started with; %s is renewed", places.config)
    run_directory.write_text(places.config, to_yaml(config))
    devices = [str(device) for device in jax.devices()]
    directory = material.directory
    model = {"path": config.model.path, "directory": str(directory), "digest": material.model_digest}
    environment = run_directory.describe_environment(
        mixture.describe(),
        fingerprint(mixture).to_data(),
        model,
        fingerprint_tokenizer(directory),
        devices,
        context.to_data(),
    )
    environment |= {uploaded_rewards.KEY: uploaded_rewards.pin_uploaded(mixture, places.root)}
    environment |= {"method": method, "init_checkpoint": describe_initial(config)}
    run_directory.write_json(places.environment, environment)


def _compared(config: Config) -> str:
    """What must be as it was when a run is resumed.

    Where the reward's files lie takes no part: seen from another directory they have other names. What is in them is
    compared by their fingerprint.
    """
    training = dataclasses.replace(config.training, resume=True, reward_function=None)
    rewards = dataclasses.replace(config.rewards, modules=[])
    return to_yaml(dataclasses.replace(config, training=training, rewards=rewards, reward=RewardConfig()))
