"""The end of a Hydra program: the message and the exit status of an error."""

import contextlib
import os
import sys
from typing import NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from agent_tunix.cli.printing import echo
from agent_tunix.config.override_errors import explain_override
from agent_tunix.errors import (
    AgentTunixError,
    CheckpointError,
    EngineError,
    Interrupted,
    LostProcessError,
    NonFiniteUpdateError,
    RewardFailureRateError,
)

_STOPPED = (RewardFailureRateError, NonFiniteUpdateError, EngineError, CheckpointError, LostProcessError)


def fail(error: AgentTunixError) -> NoReturn:
    """Print an error of ours and exit."""
    echo(describe(error), err=True)
    if isinstance(error, Interrupted):
        error.finish()
    exit_now(exit_status(error))


def exit_now(status: int) -> NoReturn:
    """Exit; with several processes, skip JAX's shutdown, which contacts processes that may be gone."""
    processes = sys.modules.get("agent_tunix.distributed")
    if processes is not None and processes.here().count > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    if (jax := sys.modules.get("jax")) is not None:
        # A process crashes if it exits while JAX computes, for example the reference's pass over a failed step.
        with contextlib.suppress(RuntimeError):  # of a device that failed
            jax.block_until_ready(jax.live_arrays())
    sys.exit(status)


def describe(error: AgentTunixError) -> str:
    """Return the message of an error of ours."""
    return f"{type(error).__name__}: {error}"


def exit_status(error: AgentTunixError) -> int:
    """Return 2 for an error to correct before a run, 1 for a run that stopped, 128 + n after signal n."""
    if isinstance(error, Interrupted):
        return 128 + error.signal_number
    return 1 if isinstance(error, _STOPPED) else 2


def explain(error: Exception, schema: type) -> str:
    """Return the message of Hydra's error; for an unknown key, the key that was probably meant."""
    lines = [str(error)]
    if isinstance(error.__cause__, OmegaConfBaseException):
        lines.append(str(error.__cause__))
    text = "\n".join(lines)
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{text}\nHydra could not create the run's directory; choose another with hydra.run.dir=DIR"
    if reason := explain_override(error, text, schema):
        return f"ConfigError: {reason}"
    return text
