"""Programs of others that evaluate the policy: lm-evaluation-harness and inspect_ai."""

import importlib.util
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from agent_tunix.config.schema import EvaluationConfig
from agent_tunix.errors import ConfigError

# Programs by name, and the packages that have them.
PROGRAMS = {"lm_eval": "lm_eval[api]", "inspect": "inspect_ai"}
# What a program calls is served by these, whose extra it does not bring.
_SERVER = ("fastapi", "uvicorn")
_FORM = "lm_eval:TASK or inspect:TASK, with options after a space, such as lm_eval:gsm8k --num_fewshot 5"


@dataclass(frozen=True)
class HarnessTask:
    """A task of a harness, from an item of `evaluation.harness`."""

    harness: str  # key of `PROGRAMS`
    task: str  # name, file, or file@name, as the program takes it
    options: tuple[str, ...] = ()  # further options of the program, which come last and therefore take precedence

    def find_program(self) -> str:
        """Return the path of the program, from PATH or beside Python's.

        Raises:
            ConfigError: The program is not installed, or a package is missing by which this process serves its policy.
        """
        if missing := [name for name in _SERVER if importlib.util.find_spec(name) is None]:
            raise ConfigError(
                f"evaluation.harness={self.harness}:{self.task} requires the packages of a server, but "
                f"{' and '.join(missing)} cannot be imported; pip install 'agent_tunix[service]'",
                code="missing_package",
            )
        places = os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
        program = shutil.which(self.harness, path=places)
        if program is None:
            raise ConfigError(
                f"evaluation.harness={self.harness}:{self.task} requires the program {self.harness}, which is neither "
                f"in PATH nor beside {sys.executable}; pip install 'agent_tunix[harness]', or install "
                f"{PROGRAMS[self.harness]} in an environment of its own and put the program in PATH",
                code="missing_package",
            )
        return program


def harness_tasks(evaluation: EvaluationConfig) -> list[HarnessTask]:
    """Return the tasks that `evaluation.harness` names; raise ConfigError for other texts, or a task named twice."""
    given = evaluation.harness
    items = [] if given is None else given if isinstance(given, list | tuple) else [given]
    tasks = [_read_task(item) for item in items]
    names = [f"{task.harness}:{task.task}" for task in tasks]
    if len(names) != len(set(names)):
        raise ConfigError(f"evaluation.harness must name each task once, but names {', '.join(names)}")
    return tasks


def evaluates(evaluation: EvaluationConfig) -> bool:
    """Return True if a run evaluates its policy."""
    return evaluation.num_samples > 0 or bool(evaluation.harness)


def _read_task(item: object) -> HarnessTask:
    try:
        words = shlex.split(item) if isinstance(item, str) else []
    except ValueError:  # a quote that is not closed
        words = []
    harness, _, task = words[0].partition(":") if words else ("", "", "")
    if harness not in PROGRAMS or not task:
        raise ConfigError(f"evaluation.harness must be {_FORM}, or a list of these, not {item!r}")
    return HarnessTask(harness, task, tuple(words[1:]))
