"""Resuming a run: the checks, the warnings and the command line."""

import contextlib
import dataclasses
import logging
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from agent_tunix.config.compose import from_yaml_text, to_yaml
from agent_tunix.config.schema import Config, DistributedConfig, RewardGroupConfig
from agent_tunix.errors import AgentTunixError, CheckpointError
from agent_tunix.overrides import assign
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.early_stopping import BestSoFar
from agent_tunix.runs.weights.base_model import METADATA_KEY, check_base
from agent_tunix.runs.weights.checkpoints import Restored
from agent_tunix.runs.weights.record import CheckpointRecord
from agent_tunix.runs.weights.state import (
    changed_since,
    initial_changed_since,
    reward_changed_since,
    teacher_changed_since,
)
from agent_tunix.tracking import missing_steps, read_rows
from agent_tunix.tracking.run_table import flatten
from agent_tunix.training.components import TrainingComponents

_LOGGER = logging.getLogger("agent_tunix.run")
GRPO = "grpo"  # The method of a checkpoint that names none.
# Method → the command that starts and resumes a run.
_COMMANDS = {GRPO: "agent-tunix train", "sft": "agent-tunix sft", "prefer": "agent-tunix prefer"}
# Limits of the warning about changed settings.
_MOST_CHANGES, _LONGEST_VALUE = 8, 120


# True in a run that Python code started, not a command.
IN_PYTHON: ContextVar[bool] = ContextVar("in_python", default=False)


def resume_command(root: Path, corrected: str = "") -> str:
    """Return the command line that resumes this run, or the call in Python.

    Args:
        root: Directory of the run.
        corrected: Argument of `Run.resume` for what has to be corrected first, such as `reward`; "" for none. A cell
            that is run again changes nothing in a run until its function is passed again.
    """
    if IN_PYTHON.get():
        again = f", or .resume({corrected}=FUNCTION) with a function that you have corrected" if corrected else ""
        return f"agent_tunix.open_run({str(root)!r}).resume(){again}"
    return shlex.join([*_own_command(), assign("hydra.run.dir", str(root)), "training.resume=true"])


def continue_command(root: Path) -> str:
    """Return the command line that continues this run in a new directory, or the call in Python."""
    if IN_PYTHON.get():
        return f"agent_tunix.train(..., {assign('training.continue_from', str(root))!r})"
    return shlex.join([*_own_command(), assign("training.continue_from", str(root))])


def how_to_resume(root: Path, step: int, corrected: str = "") -> str:
    """Return the sentence that says how a run goes on from the checkpoint of a step; 0 if it completed none."""
    if step == 0:
        return f"No step was completed, so start again with:\n  {resume_command(root, corrected)}"
    return f"The checkpoint of step {step} is saved; resume with:\n  {resume_command(root, corrected)}"


def _own_command() -> list[str]:
    """Return the words of this program's command line, without those that say where and from what it goes on."""
    left_out = ("hydra.run.dir=", "training.resume=", "training.continue_from=")
    arguments = [a for a in sys.argv[1:] if not a.startswith(left_out)]
    program = ["python", sys.argv[0]] if sys.argv[0].endswith(".py") else Path(sys.argv[0]).name.split()
    return [*program, *arguments]


@contextlib.contextmanager
def reading_metadata(restored: Restored) -> Iterator[None]:
    """Raise CheckpointError if the block cannot use the metadata of a checkpoint, which somebody else may have made."""
    try:
        yield
    except AgentTunixError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"metadata.json of the checkpoint of step {restored.step} must be as a run wrote it, but is not "
            f"({type(error).__name__}: {error}); remove that checkpoint",
            code="checkpoint_damaged",
        ) from error


def check_resumable(
    restored: Restored, now: dict[str, Any], config: Config, components: TrainingComponents, method: str, root: Path
) -> None:
    """Warn of settings that have changed since a checkpoint, and refuse changes that make it meaningless to resume.

    `check_reward` does the same for the reward.

    Args:
        restored: The checkpoint.
        now: Metadata of this run, from `make_metadata`.
        config: Configuration of the run.
        components: The parts of the run.
        method: The run's method, `grpo`, `sft` or `prefer`.
        root: Directory of the run.

    Raises:
        CheckpointError: The checkpoint has another method, other training rows, another reference policy or another
            teacher.
        ModelError: The checkpoint's adapter was trained on another model.
    """
    before = restored.metadata
    if (earlier_method := before.get("method", GRPO)) != method:
        raise CheckpointError(
            f"{root} is a run of `{_COMMANDS[earlier_method]}`; resume it with that command, or start a new run from "
            "its weights with training.init_checkpoint",
            code="checkpoint_mismatch",
        )
    check_base(config, components.directory, before.get(METADATA_KEY), components.model_digest, weights_matter=True)
    for line in changed_since(before, now):
        _LOGGER.warning("changed since the checkpoint was written: %s", line)
    if before["data"] != components.batches.fingerprint(restored.step):
        raise CheckpointError(
            "resuming requires the training rows of the checkpoint, but they have changed, so its position in the "
            f"data is invalid; {_how_to_restore_rows(before, config)}, or start a new run",
            code="checkpoint_mismatch",
        )
    if before.get("reference_sync_steps", 0) > 0 and components.moving_reference is None:
        raise CheckpointError(
            "resuming requires the checkpoint's reference policy, but this run would use the initial policy; resume "
            f"with grpo.reference_sync_steps={before['reference_sync_steps']} and grpo.beta above 0, or start a new "
            "run",
            code="checkpoint_mismatch",
        )
    is_fixed = components.reference is not None and components.moving_reference is None
    if is_fixed and (initial_change := initial_changed_since(before, now)):
        raise CheckpointError(
            "resuming requires the checkpoint's reference policy, which has the weights of training.init_checkpoint, "
            f"but {initial_change}; set training.init_checkpoint or model.from_run to that run, or start a new run",
            code="checkpoint_mismatch",
        )
    if teacher_change := teacher_changed_since(before, now):
        raise CheckpointError(
            f"resuming requires the teacher of the checkpoint, but {'; '.join(teacher_change)}; restore it, or start "
            f"a new run with training.init_checkpoint={root}",
            code="checkpoint_mismatch",
        )


def _how_to_restore_rows(metadata: dict[str, Any], config: Config) -> str:
    before, seed = metadata["seed"], config.seed
    fraction = config.training.train_fraction
    if before == seed or fraction == 1.0:
        return "restore the data"
    return (
        f"training.train_fraction={fraction:g} splits the rows by the seed, which was {before} and is now {seed}: "
        f"resume with seed={before}"
    )


def refuse_to_cut(record: CheckpointRecord, step: int, paths: RunPaths, *, is_continued: bool = False) -> None:
    """Refuse to go on from an earlier step than that of a checkpoint that the run has where it cannot be found now.

    Its disk may not be mounted. Going on would remove the rows and rollouts of the steps after it.

    Args:
        record: The newest checkpoint that the run completed.
        step: Step of the checkpoint to resume from; 0 without one.
        paths: Paths of the run, with its present directory of checkpoints.
        is_continued: True if another run continues it, whose `training.checkpoint_dir` says nothing about this one.

    Raises:
        CheckpointError: The directory of the newest checkpoint holds no checkpoints now.
    """
    elsewhere = record.directories[0]
    is_first = record.step is None and elsewhere == paths.checkpoints  # no checkpoint has been completed
    if is_first or any(elsewhere.glob("step_*")):
        return
    rows = stored_rows(paths)
    newest = max((row["step"] for row in rows), default=0) if record.step is None else record.step
    if step >= newest or (record.step is None and step > 0):
        return
    newest_there = f"the newest one is of step {step}" if step else "there are none"
    here = "" if elsewhere == paths.checkpoints else f" In {paths.checkpoints}, {newest_there}."
    found = "or set training.checkpoint_dir to the directory that has the checkpoints"
    if is_continued:
        found = "for example by a link to the directory that has the checkpoints"
    raise CheckpointError(
        f"the run reached step {newest} with its checkpoints in {elsewhere}, where they cannot be found now.{here} "
        f"Going on would remove the metrics and rollouts of later steps. Restore {elsewhere}, {found}; "
        "to train those steps again, start a new run in another directory",
        code="no_checkpoint",
    )


def check_reward(before: dict[str, Any], now: dict[str, Any], config: Config) -> None:
    """Warn of a reward that has changed since a checkpoint, or refuse it, as `rewards.on_change` says.

    Args:
        before: Metadata of the checkpoint.
        now: Metadata of this run.
        config: Configuration of the run.

    Raises:
        CheckpointError: The reward has changed, and `rewards.on_change` is `refuse`.
    """
    change = reward_changed_since(before, now)
    if change and config.rewards.on_change == "refuse":
        raise CheckpointError(
            "the reward differs from the one that the checkpoint was trained with:\n  "
            + "\n  ".join(change)
            + "\nRestore it, or resume with rewards.on_change=warn.",
            code="reward_changed",
        )
    for line in change:
        _LOGGER.warning("the reward has changed since the checkpoint was written: %s", line)


def describe_changes(earlier: Config, config: Config) -> list[str]:
    """Return a warning's lines: one for each of the first settings that differ, then the number of the others.

    Args:
        earlier: The configuration in config.yaml.
        config: The configuration of this attempt.
    """
    before, now = _compared(earlier), _compared(from_yaml_text(to_yaml(config)))
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    lines = [f"{name} was {_show(before.get(name))} and is now {_show(now.get(name))}" for name in names]
    hidden = len(lines) - _MOST_CHANGES
    return [*lines[:_MOST_CHANGES], f"and {hidden} more"] if hidden > 0 else lines


def _show(value: str | None) -> str:
    if value is None:
        return "not set"
    return value if len(value) <= _LONGEST_VALUE else f"{value[: _LONGEST_VALUE - 1]}…"


def _compared(config: Config) -> dict[str, str]:
    """Return the settings whose change in a resumed run gives a warning, by their keys.

    Paths of the reward's files are left out, because they differ with the working directory. Fingerprints compare the
    content of these files.
    """
    training = dataclasses.replace(
        config.training, resume=True, reward_function=None, continue_from=None, max_hours=None, max_checkpoints_gb=None
    )
    rewards = dataclasses.replace(config.rewards, modules=[])
    # A run may resume with other processes than it started with.
    comparable = dataclasses.replace(
        config, training=training, rewards=rewards, reward=RewardGroupConfig(), distributed=DistributedConfig()
    )
    return {name: repr(value) for name, value in flatten(vars(comparable)) if value != {}}


def tell_gaps(metrics: Path, step: int, first: int) -> None:
    """Warn of steps from the first up to a checkpoint whose rows `metrics.jsonl` lacks."""
    if gaps := [one for one in missing_steps(metrics, step) if one >= first]:
        _LOGGER.warning(
            "%s lacks rows of steps before the checkpoint of step %d: %s. Training continues without them; plots of "
            "that file have gaps",
            metrics,
            step,
            _name_ranges(gaps),
        )


def stored_rows(paths: RunPaths) -> list[dict[str, Any]]:
    """Return the rows of `metrics.jsonl`; none if the file is missing."""
    return read_rows(paths.metrics) if paths.metrics.exists() else []


def judge_again(best: BestSoFar, rows: Iterable[dict[str, Any]], config: Config, max_steps: int) -> None:
    """Judge the rows that a resumed run keeps, as the original run did."""
    interval = config.training.eval_every_n_steps
    for row in rows:
        step = row["step"]
        best.observe(step, row, judged=step in (0, max_steps) or is_due(step, interval))


def is_due(step: int, interval: int) -> bool:
    """Return True if an event that happens every `interval` steps (0: never) is due after this step."""
    return interval > 0 and step % interval == 0


def _name_ranges(steps: list[int]) -> str:
    """Return ascending numbers as text, with runs of consecutive numbers joined: `0, 3 to 7`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][-1] == step - 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
