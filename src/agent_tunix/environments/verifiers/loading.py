"""Loading of environments of verifiers."""

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agent_tunix.environments.randomness import GlobalRandomness
from agent_tunix.environments.verifiers.installed import InstalledEnvironment, Rows
from agent_tunix.errors import AgentTunixError, InvalidEnvironmentError, UnknownEnvironmentError
from agent_tunix.rewards.faults import describe_fault

_TASKSETS = "verifiers.v1.tasksets"


def read_rows(name: str, args: Mapping[str, Any], directory: Path, limit: int) -> Rows:
    """Return the rows of an environment, equal in each run; see `load_environment` and `InstalledEnvironment.rows`."""
    return _read_once(name, json.dumps(dict(args), sort_keys=True), directory, limit)


@functools.lru_cache(maxsize=4)
def _read_once(name: str, args: str, directory: Path, limit: int) -> Rows:
    with GlobalRandomness(0).active():
        return load_environment(name, json.loads(args), directory).rows(limit)


def load_environment(name: str, args: Mapping[str, Any], directory: Path) -> InstalledEnvironment:
    """Import an environment and construct it.

    Args:
        name: Name of its package, as verifiers takes it: `owner/` before it and `@version` after it do not matter.
        args: Arguments of `load_environment`; of a taskset, its configuration and that of its `Env`.
        directory: Directory whose modules can be imported too.

    Raises:
        UnknownEnvironmentError: No such package is installed.
        InvalidEnvironmentError: verifiers is not installed, the environment cannot be loaded, or it cannot be served.
    """
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
        # Servers of tools are other processes.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(directory)]))
    if importlib.util.find_spec("verifiers") is None:
        raise InvalidEnvironmentError(
            f"verifiers:{name} requires the package verifiers; run `pip install verifiers`", code="missing_package"
        )
    module_name = name.rpartition("/")[2].partition("@")[0].replace("-", "_")
    with _loading(name):
        module = importlib.import_module(_find_module(name, module_name))
        if hasattr(module, "load_environment"):
            from agent_tunix.environments.verifiers.rubrics import RubricEnvironment

            return RubricEnvironment(name.partition("@")[0], args)
        from agent_tunix.environments.verifiers.tasksets import TasksetEnvironment

        return TasksetEnvironment(name, args)


def _find_module(name: str, module: str) -> str:
    if importlib.util.find_spec(module) is not None:
        return module
    with contextlib.suppress(ModuleNotFoundError):  # verifiers below 0.3 has no such package
        if importlib.util.find_spec(f"{_TASKSETS}.{module}") is not None:
            return f"{_TASKSETS}.{module}"
    raise UnknownEnvironmentError(
        f"verifiers:{name} requires the installed package {module}, but there is none; install it (for example "
        f"`prime env install {name}`), or put {module}.py into the working directory"
    )


@contextlib.contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn faults into errors, and keep environments from replacing the signal handlers of this process."""
    original = signal.signal
    signal.signal = lambda signalnum, handler: signal.getsignal(signalnum)
    try:
        yield
    except AgentTunixError:
        raise
    except (Exception, SystemExit) as error:  # code of others may raise anything
        fault = describe_fault(error)
        is_old = "module 'verifiers' has no attribute" in fault or "from 'verifiers'" in fault
        advice = '; environments with `load_environment` need `pip install "verifiers<0.4"`' if is_old else ""
        raise InvalidEnvironmentError(
            f"verifiers:{name} cannot be loaded: {fault}{advice}", code="environment_import_failed"
        ) from error
    finally:
        signal.signal = original
