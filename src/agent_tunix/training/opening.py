"""The start of every run: settle the configuration, claim the directory, and record the run's environment.

The first of several processes claims, locks and describes the directory. All processes use the configuration that it
settled.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import absl.logging
import jax

from agent_tunix.config.compose import from_yaml, from_yaml_text, to_yaml
from agent_tunix.config.optimizers import filled
from agent_tunix.config.schema import Config
from agent_tunix.data.pinning import pin_data
from agent_tunix.distributed import Processes, here
from agent_tunix.errors import ConfigError, LostProcessError, RunDirectoryError
from agent_tunix.policy.files.directory import fingerprint_tokenizer, pin_model
from agent_tunix.policy.files.teacher import pin_teacher
from agent_tunix.rewards import Fingerprint, Mixture
from agent_tunix.runs import directory as run_directory
from agent_tunix.runs import uploaded_rewards
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.stopping import StopRequest
from agent_tunix.runs.trust import record_run
from agent_tunix.runs.weights.continuing import find_continued
from agent_tunix.runs.weights.initial import describe_initial, pin_initial
from agent_tunix.startup import timeline
from agent_tunix.startup.devices import explained_memory
from agent_tunix.tracking import RunLog
from agent_tunix.tracking.outcome import RunAttempt, record_failure, recorded_outcome
from agent_tunix.tracking.own_code import KEY as OWN_CODE
from agent_tunix.tracking.own_code import describe_own_code, warn_of_changes
from agent_tunix.training.components import TrainingComponents
from agent_tunix.training.resuming import describe_changes
from agent_tunix.workbench.diagnosis import RunContext

_LOGGER = logging.getLogger("agent_tunix.run")


@dataclass(frozen=True)
class OpenedRun:
    """A run whose directory is claimed, before its parts are loaded."""

    validated: ValidatedConfig  # the configuration, with pinned revisions of a hub's models and data, and the reward
    paths: RunPaths  # Paths of the run. No other run writes there.
    attempt: RunAttempt
    stop: StopRequest  # signals that ask the run to stop
    processes: Processes
    continued: RunPaths | None = None  # the run whose history this one continues, which is only read


@contextlib.contextmanager
def open_run(validated: ValidatedConfig, root: Path, overrides: Sequence[str]) -> Iterator[OpenedRun]:
    """Claim and lock a directory, open its log, record how the run ends, and handle signals.

    Args:
        validated: A configuration that passed `preflight`, and its reward.
        root: Directory of the run.
        overrides: Overrides of the command line, which are stored with the outcome of the run.

    Raises:
        RunDirectoryError, CheckpointError, DataError, ModelError: The run cannot open; the message says what to do.
    """
    processes = here()
    with contextlib.ExitStack() as stack:
        stack.enter_context(processes.together(lambda text: _tell_of_loss(processes, root, overrides, text)))
        # A directory named by the time of day has another name in each process.
        own, root = root, Path(processes.from_first(lambda: str(root)))
        _leave_empty(own, root)
        continued = find_continued(validated.config, root)
        history = continued.root if continued else root
        config = _from_first(processes, validated.config, lambda: settle(validated.config, history))
        processes.from_first(lambda: _enter(stack, run_directory.hold(_claimed(config, root), config.training.lock)))
        paths = run_directory.locate(config, root)
        _check_shared(processes, root)
        quieten_libraries()
        attempt = stack.enter_context(recorded_outcome(root, overrides)) if processes.is_first else RunAttempt()
        stack.enter_context(explained_memory())
        # Signal handlers come before the log, because a program that sees the log may send a signal.
        stop = stack.enter_context(StopRequest())
        log = paths.log if processes.is_first else paths.log_of(processes.index)
        stack.enter_context(RunLog(log, config.training.log_level, console=processes.is_first))
        stack.enter_context(processes.naming_losses())
        if processes.is_first:
            stack.enter_context(timeline.recorded(paths.timings, lambda: attempt.begun))
        if continued:
            config = replace(config, training=replace(config.training, resume=True))
        config = _from_first(processes, config, lambda: pin(config, continued or paths))
        if processes.count > 1:
            devices = f"{jax.local_device_count()} of {jax.device_count()} devices"
            _LOGGER.info("process %d of %d, with %s", processes.index, processes.count, devices)
        yield OpenedRun(replace(validated, config=config), paths, attempt, stop, processes, continued)


def _from_first(processes: Processes, own: Config, make: Callable[[], Config]) -> Config:
    """Return the configuration that the first process makes, with this process's own `distributed` keys."""
    if processes.count == 1:
        return make()
    text = from_yaml_text(processes.from_first(lambda: to_yaml(make())))
    return replace(text, distributed=own.distributed)


def _claimed(config: Config, root: Path) -> Path:
    return run_directory.claim(config, root).root


def _enter(stack: contextlib.ExitStack, context: contextlib.AbstractContextManager[None]) -> None:
    stack.enter_context(context)


def _leave_empty(own: Path, root: Path) -> None:
    """Remove the empty directory that Hydra created for this process alone."""
    if own != root:
        with contextlib.suppress(OSError):
            own.rmdir()


def _check_shared(processes: Processes, root: Path) -> None:
    """Refuse a directory that is not shared by all processes, because all of them write checkpoints.

    Raises:
        RunDirectoryError: Some processes do not see the directory; the message names them.
    """
    if processes.count == 1:
        return
    token = root / ".shared"
    processes.from_first(lambda: token.touch())
    answers = processes.gather(token.exists())
    if processes.is_first:
        token.unlink(missing_ok=True)
    if not all(answers):
        others = ", ".join(str(index) for index, sees in enumerate(answers) if not sees)
        raise RunDirectoryError(
            f"{root} must be the same directory in every process, but files of process 0 are not visible in process "
            f"{others}; choose a directory on a shared disk with hydra.run.dir=DIR",
            code="processes_differ",
        )


def _tell_of_loss(processes: Processes, root: Path, overrides: Sequence[str], text: str) -> bool:
    """Log and record the failure of a run whose process ends without an exception; return True if the log shows it."""
    _LOGGER.error("%s", text)
    if processes.is_first:
        record_failure(root, LostProcessError(text.partition(": ")[2]), overrides)
    return processes.is_first  # the log of the others is only in a file


def settle(config: Config, root: Path) -> Config:
    """Return the configuration that the run stores.

    It has absolute paths, the step of the initial checkpoint, and all defaults of optimizer and scheduler.
    """
    config = pin_initial(run_directory.with_absolute_places(config), root)
    return replace(config, optimizer=filled(config.optimizer), scheduler=filled(config.scheduler))


def pin(config: Config, paths: RunPaths) -> Config:
    """Return the configuration with pinned revisions of a hub's models and data.

    A resumed run keeps the revisions that it recorded, and the longest prompt that it measured.
    """
    earlier = _recorded(paths)
    if earlier is None and (paths.config.exists() or any(paths.checkpoints.glob("step_*"))):
        _LOGGER.warning(
            "%s is %s and is replaced by the settings of this command; the newest revisions of a hub's model and data "
            "are used",
            paths.config,
            "damaged" if paths.config.exists() else "missing",
        )
    if earlier is not None and config.generation.max_prompt_length is None:
        length = earlier.generation.max_prompt_length
        config = replace(config, generation=replace(config.generation, max_prompt_length=length))
    model = pin_model(config.model, earlier.model if earlier is not None else None)
    return pin_data(pin_teacher(replace(config, model=model), earlier), earlier)


def _recorded(paths: RunPaths) -> Config | None:
    """Return the configuration that a run stored; None if there is none, or a power cut has damaged it."""
    try:
        return from_yaml(paths.config) if paths.config.exists() else None
    except ConfigError:
        return None


def quieten_libraries() -> None:
    """Raise the log level of absl, which Tunix uses, to error, and that of JAX to warning."""
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
    continued: RunPaths | None = None,
) -> None:
    """Write config.yaml and environment.json, copy uploaded rewards, and record the run as the user's own.

    Args:
        config: Configuration of the run.
        context: Facts about the run that its diagnosis needs.
        paths: Paths of the run.
        method: The run's method, `grpo`, `sft` or `prefer`.
        mixture: The reward.
        reward: Fingerprint of the reward.
        components: The parts of the run.
        continued: Paths of the run that this one continues; None if there is none.
    """
    earlier = _recorded(continued or paths)
    if earlier is not None and (changes := describe_changes(earlier, config)):
        _LOGGER.warning(
            "the configuration differs from the one this run was started with; %s is rewritten:\n  %s",
            paths.config,
            "\n  ".join(changes),
        )
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
    own_code = describe_own_code(config, mixture)
    warn_of_changes(paths.root, own_code)
    environment |= {OWN_CODE: own_code, uploaded_rewards.KEY: uploaded_rewards.pin_uploaded(mixture, paths.root)}
    if components.teacher is not None:
        environment["teacher"] = {
            "path": config.grpo.teacher,
            "directory": None if components.teacher_directory is None else str(components.teacher_directory),
            "digest": components.teacher_digest,
        }
    if components.first_prompt is not None:
        prompt = components.first_prompt
        environment["first_prompt"] = {
            "row": prompt.row,
            "tools": list(prompt.tools),
            "text": prompt.text,
            "num_tokens": len(prompt.tokens),
        }
    environment |= {"method": method, "init_checkpoint": describe_initial(config)}
    run_directory.write_json(paths.environment, environment)
    record_run(paths.root)
