"""The programs that take Hydra overrides: `train`, `sft` and `evaluate`.

Each makes all cheap checks before JAX is imported, and turns the package's errors into a message and an exit status: 2
for errors that the user can fix before a run, 1 for a run that stopped, 128 + n after signal n.
"""

import atexit
import contextlib
import gc
import logging
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from agent_tunix.cli.comparing import describe_sweep
from agent_tunix.cli.printing import echo
from agent_tunix.config import compose
from agent_tunix.config.checks import suggest_key
from agent_tunix.config.schema import Config, DistributedConfig, EvaluateConfig
from agent_tunix.errors import (
    AgentTunixError,
    CheckpointError,
    ConfigError,
    Interrupted,
    LostProcessError,
    NonFiniteUpdateError,
    RewardFailureRateError,
    RunDirectoryError,
)
from agent_tunix.runs.directory import require_no_link
from agent_tunix.startup import garbage, timeline
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking.outcome import record_failure
from agent_tunix.visible_text import SafeLogRecord

_STOPPED = (RewardFailureRateError, NonFiniteUpdateError, CheckpointError, LostProcessError)
# Exit status if the reader of the output has ended, as shells report SIGPIPE.
_OUTPUT_CLOSED = 141
_FULL_ERROR = "HYDRA_FULL_ERROR"
# A `.env` may set keys only. A downloaded directory may contain one, and other variables decide whose code runs or
# where keys are sent.
_KEYS = re.compile(r".*_(KEY|TOKEN|SECRET|PASSWORD|USERNAME)|WANDB_(ENTITY|MODE|PROJECT)")


def train(overrides: Sequence[str] | None = None) -> None:
    """Train with the given overrides, or those of the command line."""
    _run(_train, "config", "train", overrides)


def sft(overrides: Sequence[str] | None = None) -> None:
    """Train on targets with the given overrides, or those of the command line."""
    _run(_sft, "config", "sft", overrides)


def evaluate(overrides: Sequence[str] | None = None) -> None:
    """Evaluate with the given overrides, or those of the command line."""
    _run(_evaluate, "evaluate", "evaluate", overrides)


def own_conf() -> Path | None:
    """Return the user's own `conf/` in the working directory, or None if there is none."""
    own = Path.cwd() / "conf"
    return own if own.is_dir() and own.resolve() != compose.find_conf_directory() else None


class OwnConf(SearchPathPlugin):
    """Hydra plugin that adds the working directory's `conf/` after ours, so that it adds choices and replaces none."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add the directory if it exists."""
        if (own := own_conf()) is not None:
            search_path.append("working directory", f"file://{own}")


def find_own_conf() -> None:
    """Add the `conf/` of the working directory to everything that Hydra composes."""
    Plugins.instance().register(OwnConf)


class NoLinksInSweep(Callback):
    """Callback that refuses a sweep in a directory with links: Hydra writes there before any run is checked."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the directory and what lies in it. Exits, because Hydra makes an error of a callback a warning."""
        directory = Path(config.hydra.sweep.dir)
        try:
            for path in (directory, *(directory.iterdir() if directory.is_dir() else ())):
                require_no_link(path)
        except RunDirectoryError as error:
            _fail(error)


def _run(task: Callable[[DictConfig], None], config_name: str, command: str, overrides: Sequence[str] | None) -> None:
    before, began = {"imports": timeline.age_of_process()}, time.perf_counter()
    if overrides is not None:
        sys.argv = [f"agent-tunix {command}", *overrides]
    logging.setLogRecordFactory(SafeLogRecord)  # JAX and absl add handlers of their own
    compose.register_schema()
    find_own_conf()
    wants_trace = os.environ.get(_FULL_ERROR) == "1"
    # Makes Hydra raise its errors, which are explained below without a traceback.
    os.environ[_FULL_ERROR] = "1"

    sweep: list[Path] = []

    def guarded(cfg: DictConfig) -> None:
        if before:
            before["configuration"] = time.perf_counter() - began
        job = HydraConfig.get()
        in_sweep = job.mode == RunMode.MULTIRUN
        if in_sweep:  # only the job's own arguments: it prints how to resume
            sys.argv[1:] = job.overrides.task
            sweep[:] = [Path(job.sweep.dir)]
        try:
            with timeline.begin(before):
                before.clear()  # only the first job of a sweep reports it
                task(cfg)
        except BrokenPipeError:  # the reader of the output, such as `head`, has ended
            _exit(_OUTPUT_CLOSED)
        except Exception as error:
            root = Path(job.runtime.output_dir)
            if in_sweep and not (root / "config.yaml").exists():  # it failed before the run was created
                record_failure(root, error, job.overrides.task)
            if wants_trace:
                raise
            if not isinstance(error, AgentTunixError):  # a defect of ours
                echo(traceback.format_exc(), err=True)
                _exit(1)
            if not in_sweep or isinstance(error, Interrupted):
                _fail(error)
            echo(f"job {job.job.num} of the sweep, {' '.join(job.overrides.task)}, failed:", err=True)
            echo(_describe(error), err=True)
            raise  # the sweep continues, and ends with this error

    conf = str(compose.find_conf_directory())
    interrupted = False
    try:
        with garbage.rarely_sought():
            hydra.main(version_base="1.3", config_path=conf, config_name=config_name)(guarded)()
        # The last garbage collection takes a second. After a failure it must run: objects that the traceback holds must
        # be freed before JAX is.
        atexit.register(gc.freeze)
    except (AgentTunixError, HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        if wants_trace:
            raise
        if isinstance(error, AgentTunixError):
            sys.exit(_status(error))
        echo(_explain(error, EvaluateConfig if command == "evaluate" else Config), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        # Interrupted before the run handles signals, or for the second time.
        echo(
            "Interrupted and stopped immediately; resume from the last checkpoint, if there is one, with "
            "training.resume=true",
            err=True,
        )
        interrupted = True
    finally:
        if not wants_trace:
            del os.environ[_FULL_ERROR]
        if sweep and command == "train" and (table := describe_sweep(sweep[0])):
            echo(f"\n{table}")
    if interrupted:
        _exit(128 + signal.SIGINT)


def _fail(error: AgentTunixError) -> NoReturn:
    echo(_describe(error), err=True)
    _exit(_status(error))


def _exit(status: int) -> NoReturn:
    """Exit; with several processes, skip JAX's shutdown, which contacts processes that may be gone."""
    processes = sys.modules.get("agent_tunix.distributed")
    if processes is not None and processes.here().count > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    if (jax := sys.modules.get("jax")) is not None:
        # A dispatched computation, such as the reference's pass over a step that failed, crashes a process that exits.
        with contextlib.suppress(RuntimeError):  # of a device that failed
            jax.block_until_ready(jax.live_arrays())
    sys.exit(status)


def _describe(error: AgentTunixError) -> str:
    return f"{type(error).__name__}: {error}"


def _status(error: AgentTunixError) -> int:
    if isinstance(error, Interrupted):
        return 128 + error.signal_number
    return 1 if isinstance(error, _STOPPED) else 2


def _explain(error: Exception, schema: type) -> str:
    """Return the message of Hydra's error; for an unknown key, the key that was probably meant."""
    lines = [str(error)]
    if isinstance(error.__cause__, OmegaConfBaseException):
        lines.append(str(error.__cause__))
    text = "\n".join(lines)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{text}\nHydra could not create the run's directory; choose another with hydra.run.dir=DIR"
    if unknown := re.search(
        r"(?:Could not override|Could not delete from config\.|Error merging override) '?\+*([\w.]+)", text
    ):
        # Hydra suggests appending the key with `+`, but the check of the configuration refuses that.
        if nearest := suggest_key(unknown[1], schema):
            return f"ConfigError: there is no key {unknown[1]}{nearest}"
        if "To append to your config" in text:
            return f"ConfigError: there is no key {unknown[1]}; list all keys with --cfg job"
    if no_choice := re.search(
        r"Could not find '(\w+)/(\S+)'\s+Available options in '\w+':((?:\s+\S+)+?)\s+Config search", text
    ):
        group, given, choices = no_choice.groups()
        return f"ConfigError: {group} must be one of {', '.join(choices.split())}, not {given!r}"
    if wrong := re.search(
        r"Error merging override '?\+*([\w.]+)=.*\nValue ('.*') of type '\w+' could not be converted to (\w+)", text
    ):
        key, value, kind = wrong.groups()
        return f"ConfigError: {key} must be of the type {kind.lower()}, not {value}"
    return text


def _train(cfg: DictConfig) -> None:
    with spend("imports"):
        from agent_tunix.runs.preflight import preflight
        from agent_tunix.runs.reward_setup import begin_verifiers
        from agent_tunix.runs.trust import check_directory
        from agent_tunix.startup import devices

    _load_environment()
    job = HydraConfig.get()
    root = Path(job.runtime.output_dir)
    with spend("checks"):
        config = compose.to_typed(cfg)
        check_directory(root, config)
        checked = preflight(config, Path.cwd(), root if config.training.resume else None)
    begin_verifiers(checked.mixture, config.rewards.execution)  # start them while JAX is imported
    devices.prepare(config.distributed)
    _join(config)
    with spend("imports"):
        devices.require(config.distributed)

        from agent_tunix.training.train import train as train_grpo

    garbage.never_sought_in_imports()
    train_grpo(checked, root, job.overrides.task)


def _sft(cfg: DictConfig) -> None:
    from agent_tunix.runs.preflight import preflight
    from agent_tunix.runs.trust import check_directory
    from agent_tunix.startup import devices
    from agent_tunix.training.targets import check_supervised

    _load_environment()
    job = HydraConfig.get()
    root = Path(job.runtime.output_dir)
    with spend("checks"):
        config = compose.to_typed(cfg)
        check_directory(root, config)
        checked = check_supervised(preflight(config, Path.cwd(), root if config.training.resume else None))
    devices.prepare(checked.config.distributed)
    _join(checked.config)
    with spend("imports"):
        devices.require(checked.config.distributed)

        from agent_tunix.training import sft

    sft.train_supervised(checked, root, job.overrides.task)


def _evaluate(cfg: DictConfig) -> None:
    from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
    from agent_tunix.evaluation.request import read_request
    from agent_tunix.startup import devices

    _load_environment()
    request = read_request(compose.to_evaluate(cfg))
    devices.prepare(request.subject.run.config.distributed)
    devices.require(request.subject.run.config.distributed)
    evaluate_checkpoint(request)


def _join(config: Config) -> None:
    """Connect the processes of the run if there are several."""
    if config.distributed.mode == "none":
        return
    with spend("processes"):
        from agent_tunix.distributed import join

        join(config.distributed, compose.to_yaml(replace(config, distributed=DistributedConfig())))


def _load_environment() -> None:
    """Set the variables of `.env` in the working directory that the environment does not set.

    Raises:
        ConfigError: The file cannot be read, or sets variables other than keys.
    """
    if Path(".env").is_file():
        from dotenv import dotenv_values

        try:
            found = dotenv_values(Path(".env"), interpolate=False)
        except (UnicodeDecodeError, OSError) as error:
            raise ConfigError(
                f".env must contain lines NAME=VALUE in UTF-8, but: {error}; correct or move it",
                code="invalid_env_file",
            ) from error
        if refused := sorted(name for name in found if not _KEYS.fullmatch(name)):
            raise ConfigError(
                ".env may only set variables that end in _KEY, _TOKEN, _SECRET, _PASSWORD or _USERNAME, but sets "
                f"{', '.join(refused)}; remove it there, and export it in your shell if you need it",
                code="refused_in_env",
            )
        for name, value in found.items():
            if value is not None:
                os.environ.setdefault(name, value)
