"""The programs of evaluation harnesses: their command lines, their processes, and the figures that they write."""

import contextlib
import json
import math
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_tunix.config.harnesses import HarnessTask
from agent_tunix.environments.agents.commands import variables
from agent_tunix.execution.workers.keeper import kept

_LOG = "log.txt"
_SHOWN_LINES = 10
# A first request may wait for programs that are compiled.
_TIMEOUT_S = 3600
_CHAT = "local-chat-completions"


class FailedTask(Exception):
    """A task that ended without figures; the message is the reason."""


@dataclass(frozen=True)
class HarnessServer:
    """The server that the programs call."""

    url: str  # ends in /v1
    key: str
    model: str  # name of the policy
    max_context: int  # tokens of a prompt and its reply
    num_places: int  # requests that are answered at a time
    tokenizer: Path  # directory of the tokenizer and its chat template
    has_template: bool  # True if there is one


def command_of(task: HarnessTask, served: HarnessServer, directory: Path, limit: int | None) -> list[str]:
    """Return the command line of a task, which writes its results into a directory."""
    if task.harness == "inspect":
        options = ["eval", task.task, "--model", f"openai-api/policy/{served.model}", "--display", "plain"]
        options += ["--max-connections", str(served.num_places), "--log-format", "json", "--log-dir", str(directory)]
    else:
        arguments = json.dumps(_model_arguments(served, chats=_CHAT in " ".join(task.options)))
        options = ["--model", "local-completions", "--model_args", arguments, "--tasks", task.task, "--log_samples"]
        options += ["--output_path", str(directory), *(["--apply_chat_template"] if served.has_template else [])]
    return [task.find_program(), *options, *([] if limit is None else ["--limit", str(limit)]), *task.options]


def _model_arguments(served: HarnessServer, *, chats: bool) -> dict[str, Any]:
    """Return the arguments of a model of lm_eval, which sends messages or token ids.

    Tasks that compare log-probabilities need token ids.
    """
    arguments = {"model": served.model, "num_concurrent": served.num_places, "max_length": served.max_context}
    arguments |= {"timeout": _TIMEOUT_S, "base_url": f"{served.url}/{'chat/' if chats else ''}completions"}
    return arguments if chats else {**arguments, "tokenizer_backend": "huggingface", "tokenizer": str(served.tokenizer)}


@contextlib.contextmanager
def running(command: Sequence[str], served: HarnessServer, directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command, and end it and all that it started with the context, or with this process."""
    environment = {
        **os.environ,
        **variables(served.url, served.key),
        "POLICY_BASE_URL": served.url,
        "POLICY_API_KEY": served.key,
        "JAX_PLATFORMS": "cpu",  # the devices are the run's
    }
    with (directory / _LOG).open("wb") as log:
        process = subprocess.Popen(
            kept(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the run, which ends them afterwards
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def read_figures(task: HarnessTask, status: int, directory: Path) -> dict[str, float | None]:
    """Return `<task>/<metric>` of a task that has ended; None for a figure that is no number.

    Raises:
        FailedTask: It failed, or wrote no figures.
    """
    try:
        figures = (
            (_lm_eval_figures if task.harness == "lm_eval" else _inspect_figures)(directory) if status == 0 else {}
        )
        reason = f"it ended with status {status}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        figures, reason = {}, f"its results cannot be read: {error!r}"
    if not figures:
        lines = (directory / _LOG).read_text(errors="replace").splitlines()[-_SHOWN_LINES:]
        raise FailedTask("\n".join((f"{reason}; its log {directory / _LOG} ends with:", *lines)))
    return {
        name: float(value) if isinstance(value, int | float) and math.isfinite(value) else None
        for name, value in figures.items()
    }


def _lm_eval_figures(directory: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for path in directory.rglob("results_*.json"):
        for task, values in json.loads(path.read_text())["results"].items():
            for key, value in values.items():
                metric, comma, answer_filter = key.partition(",")
                if comma:
                    figures[f"{task}/{metric}" + ("" if answer_filter == "none" else f"/{answer_filter}")] = value
    return figures


def _inspect_figures(directory: Path) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for path in directory.glob("*.json"):
        log: Mapping[str, Any] = json.loads(path.read_text())
        if log["status"] != "success":
            raise ValueError(f"{path.name} says {log['status']}: {(log.get('error') or {}).get('message', '')}")
        scores = log["results"]["scores"]
        for score in scores:
            # One task may have several scorers, and several ways to join the scores of a sample's epochs.
            parts = [score["name"], score.get("reducer")] if len(scores) > 1 else []
            place = "/".join([log["eval"]["task"], *filter(None, parts)])
            figures |= {f"{place}/{metric}": value["value"] for metric, value in score["metrics"].items()}
    return figures
