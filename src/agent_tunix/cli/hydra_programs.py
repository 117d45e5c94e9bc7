"""The programs that take Hydra overrides: `train`, `sft`, `prefer` and `evaluate`.

Each makes all cheap checks before JAX is imported, and turns the package's errors into a message and an exit status: 2
for errors that the user can fix before a run, 1 for a run that stopped, 128 + n after signal n.
"""

import atexit
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from agent_tunix.cli.comparing import describe_sweep
from agent_tunix.cli.hydra_errors import describe, exit_now, exit_status, explain, fail
from agent_tunix.cli.printing import echo
from agent_tunix.config import compose
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.config.working_directory import find_own_conf, load_env_file
from agent_tunix.errors import AgentTunixError, Interrupted
from agent_tunix.startup import garbage, timeline
from agent_tunix.startup.interruption import ends_at_once
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking.outcome import record_failure
from agent_tunix.training.launch import Method, launch
from agent_tunix.visible_text import SafeLogRecord

# Exit status if the reader of the output has ended, as shells report SIGPIPE.
_OUTPUT_CLOSED = 141
_FULL_ERROR = "HYDRA_FULL_ERROR"
_RUN_INTERRUPTED = (
    "Interrupted and stopped immediately; resume from the last checkpoint, if there is one, with training.resume=true"
)
_WHEN_INTERRUPTED = {
    "train": _RUN_INTERRUPTED,
    "sft": _RUN_INTERRUPTED,
    "prefer": _RUN_INTERRUPTED,
    "evaluate": "Interrupted; the evaluation is not complete. Run the same command again",
}


def train(overrides: Sequence[str] | None = None) -> None:
    """Train with the given overrides, or those of the command line."""
    with _program("train", overrides):
        _by_hydra("config")(_train)()


def sft(overrides: Sequence[str] | None = None) -> None:
    """Train on targets with the given overrides, or those of the command line."""
    with _program("sft", overrides):
        _by_hydra("config")(_sft)()


def prefer(overrides: Sequence[str] | None = None) -> None:
    """Train on pairs of responses with the given overrides, or those of the command line."""
    with _program("prefer", overrides):
        _by_hydra("config")(_prefer)()


def evaluate(overrides: Sequence[str] | None = None) -> None:
    """Evaluate with the given overrides, or those of the command line."""
    with _program("evaluate", overrides):
        _by_hydra("evaluate")(_evaluate)()


@dataclasses.dataclass
class _Program:
    """State of a program that its jobs share: one job, or those of a sweep."""

    before: dict[str, float]  # seconds by phase before the first job
    began: float
    wants_trace: bool
    sweep: Path | None = None


_PROGRAM: ContextVar[_Program] = ContextVar("program")


@contextlib.contextmanager
def _program(command: str, overrides: Sequence[str] | None) -> Iterator[None]:
    """Prepare for Hydra, and explain its errors and those of the jobs."""
    program = _Program({"imports": timeline.age_of_process()}, time.perf_counter(), os.environ.get(_FULL_ERROR) == "1")
    _PROGRAM.set(program)
    if overrides is not None:
        sys.argv = [f"agent-tunix {command}", *overrides]
    sys.argv[1:] = compose.spell_out(sys.argv[1:])
    logging.setLogRecordFactory(SafeLogRecord)  # JAX and absl add handlers of their own
    compose.register_schema()
    find_own_conf()
    # Makes Hydra raise its errors. The handler below explains them without a traceback.
    os.environ[_FULL_ERROR] = "1"
    interrupted = False
    try:
        with ends_at_once(_WHEN_INTERRUPTED[command]), _exit_if_output_is_closed(), garbage.rarely_sought():
            yield
        # Skip the last garbage collection, which takes a second. After a failure it must run: objects that the
        # traceback holds must be freed before JAX is.
        atexit.register(gc.freeze)
    except (AgentTunixError, HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError) as error:
        if program.wants_trace:
            raise
        if isinstance(error, AgentTunixError):
            sys.exit(exit_status(error))
        echo(explain(error, EvaluateConfig if command == "evaluate" else Config), err=True)
        sys.exit(2)
    except KeyboardInterrupt:  # raised in a thread other than the main one, or by code of the user
        echo(_WHEN_INTERRUPTED[command], err=True)
        interrupted = True
    finally:
        if not program.wants_trace:
            del os.environ[_FULL_ERROR]
        if program.sweep and command == "train" and (table := describe_sweep(program.sweep)):
            echo(f"\n{table}")
    if interrupted:
        exit_now(128 + signal.SIGINT)


@contextlib.contextmanager
def _exit_if_output_is_closed() -> Iterator[None]:
    """Exit without a message if the reader of the output, such as `head`, has ended."""
    try:
        try:
            yield
        except SystemExit as ended:  # Hydra's after `--help`
            if not ended.code:
                sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:
        # At exit Python writes the rest of the output. Without this, that would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exit_now(_OUTPUT_CLOSED)


def _by_hydra(config_name: str) -> Callable[[Callable[[DictConfig], None]], Callable[[], None]]:
    return hydra.main(version_base="1.3", config_path=str(compose.find_conf_directory()), config_name=config_name)


@contextlib.contextmanager
def _job() -> Iterator[None]:
    """Time a job, and turn its errors into messages. An error in one job of a sweep does not end the other jobs."""
    # A launcher may run the job in a process of its own, where `_PROGRAM` is not set.
    program, job = _PROGRAM.get(None) or _Program({}, time.perf_counter(), wants_trace=False), HydraConfig.get()
    if program.before:
        program.before["configuration"] = time.perf_counter() - program.began
    in_sweep = job.mode == RunMode.MULTIRUN
    if in_sweep:  # the command that the job prints to resume it has only the job's own arguments
        sys.argv[1:] = job.overrides.task
        program.sweep = Path(job.sweep.dir)
    try:
        with _exit_if_output_is_closed(), timeline.begin(program.before):
            program.before.clear()  # only the first job of a sweep reports it
            yield
    except Exception as error:
        root = Path(job.runtime.output_dir)
        if in_sweep and not (root / "config.yaml").exists():  # it failed before the run was created
            record_failure(root, error, job.overrides.task)
        if program.wants_trace:
            raise
        if not isinstance(error, AgentTunixError):  # a defect of ours
            echo(traceback.format_exc(), err=True)
            exit_now(1)
        if not in_sweep or isinstance(error, Interrupted):
            fail(error)
        echo(f"job {job.job.num} of the sweep, {' '.join(job.overrides.task)}, failed:", err=True)
        echo(describe(error), err=True)
        raise  # the sweep continues, and ends with this error


@_job()
def _train(cfg: DictConfig) -> None:
    _launch(cfg, "grpo")


@_job()
def _sft(cfg: DictConfig) -> None:
    _launch(cfg, "sft")


@_job()
def _prefer(cfg: DictConfig) -> None:
    _launch(cfg, "prefer")


def _launch(cfg: DictConfig, method: Method) -> None:
    load_env_file()
    job = HydraConfig.get()
    with spend("checks"):
        config = compose.to_typed(cfg)
    launch(config, Path(job.runtime.output_dir), job.overrides.task, method=method)


@_job()
def _evaluate(cfg: DictConfig) -> None:
    from agent_tunix.evaluation.checkpoint import run_evaluation

    load_env_file()
    run_evaluation(compose.to_evaluate(cfg)).show()
