"""How every run opens: settle the configuration, claim the directory, and write down what began.

Of several processes the first one claims, holds and describes the directory; what it settled is what all of them take.
"""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import absl.logging
import jax

from agent_tunix.config.compose import from_yaml, from_yaml_text, to_yaml
from agent_tunix.config.optimizers import filled
from agent_tunix.config.schema import Config, DistributedConfig, RewardGroupConfig
from agent_tunix.data.pinning import pin_data
from agent_tunix.distributed import Processes, here
from agent_tunix.errors import LostProcessError, RunDirectoryError
from agent_tunix.policy.files.directory import fingerprint_tokenizer, pin_model
from agent_tunix.rewards import Fingerprint, Mixture
from agent_tunix.runs import directory as run_directory
from agent_tunix.runs import uploaded_rewards
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.stopping import StopRequest
from agent_tunix.runs.trust import sign_run
from agent_tunix.runs.weights.initial import describe_initial, pin_initial
from agent_tunix.startup import timeline
from agent_tunix.tracking import RunLog
from agent_tunix.tracking.outcome import RunAttempt, record_failure, recorded_outcome
from agent_tunix.training.components import TrainingComponents
from agent_tunix.workbench.diagnosis import RunContext

_LOGGER = logging.getLogger("agent_tunix.run")


@dataclass(frozen=True)
class OpenedRun:
    """A run that may write, before anything is loaded.

    Attributes:
        validated: What was asked for; its configuration says which state of a hub's model and data it means.
        paths: Where everything lies; nobody else writes there.
        attempt: Whose end is written down.
        stop: Whether a signal asked to stop.
        processes: Those of the run.
    """

    validated: ValidatedConfig
    paths: RunPaths
    attempt: RunAttempt
    stop: StopRequest
    processes: Processes


@contextlib.contextmanager
def open_run(validated: ValidatedConfig, root: Path, overrides: Sequence[str]) -> Iterator[OpenedRun]:
    """Claim a directory and hold it, with the log open, how the run ends noted, and signals heard.

    Args:
        validated: A configuration that passed `preflight`, and its reward.
        root: The run's directory.
        overrides: What was asked for on the command line; kept beside how the run ended.

    Raises:
        RunDirectoryError, CheckpointError, DataError, ModelError: What was required, what arrived and what to do.
    """
    processes = here()
    with contextlib.ExitStack() as stack:
        stack.enter_context(processes.together(lambda text: _tell_of_loss(processes, root, overrides, text)))
        # A place named by the time of day is another one in each process.
        own, root = root, Path(processes.from_first(lambda: str(root)))
        _leave_empty(own, root)
        config = _from_first(processes, validated.config, lambda: settle(validated.config, root))
        processes.from_first(lambda: _enter(stack, run_directory.hold(_claimed(config, root))))
        paths = run_directory.locate(config, root)
        _check_shared(processes, root)
        quieten_libraries()
        attempt = stack.enter_context(recorded_outcome(root, overrides)) if processes.is_first else RunAttempt()
        # Before the log, which tells who waits for it that a run is there to be stopped.
        stop = stack.enter_context(StopRequest())
        log = paths.log if processes.is_first else paths.log_of(processes.index)
        stack.enter_context(RunLog(log, config.training.log_level, console=processes.is_first))
        stack.enter_context(processes.naming_losses())
        if processes.is_first:
            stack.enter_context(timeline.recorded(paths.timings))
        config = _from_first(processes, config, lambda: pin(config, paths))
        if processes.count > 1:
            devices = f"{jax.local_device_count()} of {jax.device_count()} devices"
            _LOGGER.info("this is process %d of %d, with %s", processes.index, processes.count, devices)
        yield OpenedRun(replace(validated, config=config), paths, attempt, stop, processes)


def _from_first(processes: Processes, own: Config, make: Callable[[], Config]) -> Config:
    """The configuration that the first process makes, with the keys that say which process this is."""
    if processes.count == 1:
        return make()
    made = from_yaml_text(processes.from_first(lambda: to_yaml(make())))
    return replace(made, distributed=own.distributed)


def _claimed(config: Config, root: Path) -> Path:
    return run_directory.claim(config, root).root


def _enter(stack: contextlib.ExitStack, context: contextlib.AbstractContextManager[None]) -> None:
    stack.enter_context(context)


def _leave_empty(own: Path, root: Path) -> None:
    """Take away the directory that Hydra made for this process alone."""
    if own != root:
        with contextlib.suppress(OSError):
            own.rmdir()


def _check_shared(processes: Processes, root: Path) -> None:
    """Refuse a directory that is not the same in all processes: a checkpoint is written by all of them.

    Raises:
        RunDirectoryError: With the processes that do not see it.
    """
    if processes.count == 1:
        return
    token = root / ".shared"
    processes.from_first(lambda: token.touch())
    seen = processes.gather(token.exists())
    if processes.is_first:
        token.unlink(missing_ok=True)
    if not all(seen):
        others = ", ".join(str(index) for index, sees in enumerate(seen) if not sees)
        raise RunDirectoryError(
            f"{root} must be the same directory in every process, but what process 0 writes there is not seen by"
            f" process {others}; choose one on a shared disk with hydra.run.dir=DIR",
            code="directory_not_shared",
        )


def _tell_of_loss(processes: Processes, root: Path, overrides: Sequence[str], text: str) -> None:
    """Leave word of the end of a process that ends without an exception."""
    _LOGGER.error("%s", text)
    if processes.is_first:
        record_failure(root, LostProcessError(text.partition(": ")[2]), overrides)


def settle(config: Config, root: Path) -> Config:
    """The configuration as the run keeps it: what depends on the moment or on the working directory is written out."""
    config = pin_initial(run_directory.with_absolute_places(config), root)
    return replace(config, optimizer=filled(config.optimizer), scheduler=filled(config.scheduler))


def pin(config: Config, paths: RunPaths) -> Config:
    """The configuration that says which state of a hub's model and data it means: that of the run it goes on with."""
    recorded = from_yaml(paths.config) if paths.config.exists() else None
    model = pin_model(config.model, recorded.model if recorded is not None else None)
    return pin_data(replace(config, model=model), recorded)


def quieten_libraries() -> None:
    """Leave out what Tunix and JAX say of themselves below a warning, or of no consequence here."""
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.getLogger("jax").setLevel(logging.WARNING)


def record_start(
    config: Config,
    context: RunContext,
    paths: RunPaths,
    method: str,
    mixture: Mixture,
    reward: Fingerprint,
    components: TrainingComponents,
) -> None:
    """Write down the configuration, and what the run is made of."""
    if paths.config.exists() and _compared(from_yaml(paths.config)) != _compared(config):
        _LOGGER.warning("the configuration is not the one this run was started with; %s is renewed", paths.config)
    run_directory.write_text(paths.config, to_yaml(config))
    devices = [str(device) for device in jax.devices()]
    directory = components.directory
    model = {"path": config.model.path, "directory": str(directory), "digest": components.model_digest}
    environment = run_directory.describe_environment(
        mixture.describe(),
        reward.to_data(),
        model,
        fingerprint_tokenizer(directory),
        devices,
        context.to_data(),
    )
    environment |= {uploaded_rewards.KEY: uploaded_rewards.pin_uploaded(mixture, paths.root)}
    environment |= {"method": method, "init_checkpoint": describe_initial(config)}
    run_directory.write_json(paths.environment, environment)
    sign_run(paths.root, config, Path.cwd())


def _compared(config: Config) -> str:
    """What must be as it was when a run is resumed.

    Where the reward's files lie takes no part: seen from another directory they have other names. What is in them is
    compared by their fingerprint.
    """
    training = dataclasses.replace(config.training, resume=True, reward_function=None)
    rewards = dataclasses.replace(config.rewards, modules=[])
    # A run may go on with other processes than it began with.
    return to_yaml(
        dataclasses.replace(
            config, training=training, rewards=rewards, reward=RewardGroupConfig(), distributed=DistributedConfig()
        )
    )
