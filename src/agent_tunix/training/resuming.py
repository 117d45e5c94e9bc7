"""Going on with a run: what refuses, what is told, and by which command."""

import logging
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError
from agent_tunix.runs.early_stopping import BestSoFar
from agent_tunix.runs.weights.base_model import METADATA_KEY, check_base
from agent_tunix.runs.weights.checkpoints import Restored
from agent_tunix.runs.weights.state import changed_since, reward_changed_since
from agent_tunix.tracking import missing_steps
from agent_tunix.training.components import TrainingComponents

_LOGGER = logging.getLogger("agent_tunix.run")
GRPO = "grpo"  # The method of a checkpoint that names none.
# By which command a run of each method is begun and gone on with.
_COMMANDS = {GRPO: "agent-tunix train", "sft": "agent-tunix sft"}


def resume_command(root: Path) -> str:
    """The command line that goes on with this run."""
    arguments = [a for a in sys.argv[1:] if not a.startswith(("hydra.run.dir=", "training.resume="))]
    program = ["python", sys.argv[0]] if sys.argv[0].endswith(".py") else Path(sys.argv[0]).name.split()
    return shlex.join([*program, *arguments, f"hydra.run.dir={root}", "training.resume=true"])


def check_resumable(
    restored: Restored, now: dict[str, Any], config: Config, components: TrainingComponents, method: str, root: Path
) -> None:
    """Tell what has changed since a checkpoint, reward apart, and refuse what would make going on mean nothing.

    Args:
        restored: What was read.
        now: What a checkpoint of this run would say of it, as `make_metadata` gives it.
        config: The run's.
        components: What it trains, and on which rows.
        method: How it learns.
        root: The run's directory.

    Raises:
        CheckpointError: It is a run of another method, of another model, of other rows or of another reference policy.
    """
    before = restored.metadata
    if (found := before.get("method", GRPO)) != method:
        raise CheckpointError(
            f"{root} is a run of `{_COMMANDS[found]}`; go on with it by that command, or begin"
            " another run with its weights by training.init_checkpoint",
            code="other_method",
        )
    check_base(config, components.directory, before.get(METADATA_KEY), components.model_digest, weights_matter=True)
    for line in changed_since(before, now):
        _LOGGER.warning("since the checkpoint was written, %s", line)
    if before["data"] != components.batches.fingerprint(restored.step):
        raise CheckpointError(
            "the training rows are not those that the checkpoint was trained on, so the data position means"
            f" nothing; {_how_to_restore_rows(before, config)}, or start a new run",
            code="rows_changed",
        )
    if before.get("reference_sync_steps", 0) > 0 and components.moving_reference is None:
        raise CheckpointError(
            "the checkpoint's reference policy is not what training began with, which this run would take instead;"
            f" resume with grpo.reference_sync_steps={before['reference_sync_steps']} and grpo.beta"
            f" above 0, or start a new run",
            code="reference_moved",
        )


def _how_to_restore_rows(metadata: dict[str, Any], config: Config) -> str:
    before, seed = metadata["seed"], config.seed
    fraction = config.training.train_fraction
    if before == seed or fraction == 1.0:
        return "restore the data"
    return (
        f"training.train_fraction={fraction:g} splits the rows by the seed, which was {before} and is {seed}:"
        f" go on with seed={before}"
    )


def check_reward(before: dict[str, Any], now: dict[str, Any], config: Config) -> None:
    """Tell, or refuse, a reward that is not the checkpoint's.

    Args:
        before: What the checkpoint says of its run.
        now: What one of this run would say.
        config: The run's; `rewards.on_change` decides.

    Raises:
        CheckpointError: It has changed, and that is refused.
    """
    changed = reward_changed_since(before, now)
    if changed and config.rewards.on_change == "refuse":
        raise CheckpointError(
            "the reward is not the one that the checkpoint was trained on:\n  "
            + "\n  ".join(changed)
            + "\nRestore it, or go on with rewards.on_change=warn.",
            code="reward_changed",
        )
    for line in changed:
        _LOGGER.warning("the reward has changed since the checkpoint was written: %s", line)


def tell_gaps(metrics: Path, step: int) -> None:
    """Warn of the rows that `metrics.jsonl` lacks of the steps before a checkpoint."""
    if missing := missing_steps(metrics, step):
        _LOGGER.warning(
            "%s lacks the rows of steps that the checkpoint of step %d comes after: %s. Training goes on without"
            " them; what is drawn from that file will have gaps",
            metrics,
            step,
            _name_ranges(missing),
        )


def judge_again(best: BestSoFar, rows: Iterable[dict[str, Any]], config: Config, max_steps: int) -> None:
    """Judge the rows that a resumed run keeps, as the run before it did."""
    interval = config.training.eval_every_n_steps
    for row in rows:
        step = row["step"]
        best.observe(step, row, judged=step in (0, max_steps) or is_due(step, interval))


def is_due(step: int, interval: int) -> bool:
    """Whether what happens every so many steps, 0 for never, happens after this one."""
    return interval > 0 and step % interval == 0


def _name_ranges(steps: list[int]) -> str:
    """Rising whole numbers with runs drawn together: `0, 3 to 7`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][-1] == step - 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    return ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
