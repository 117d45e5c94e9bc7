"""A supervised start, from top to bottom: the run of `session.py` with another way to learn from a batch of prompts.

`agent-tunix sft` trains on what should follow each prompt before a reward says anything: on the same rows, prompts,
model, optimiser and schedule. Checkpoints, resuming, evaluations, metrics and trackers are those of every run. A run of
GRPO begins with its weights by `training.init_checkpoint=RUN`.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.config.checks import micro_batch_size
from agent_tunix.errors import DataError
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.training.components import TrainingComponents, build_components
from agent_tunix.training.opening import OpenedRun, open_run
from agent_tunix.training.session import RunSession, StepOutcome, Summary
from agent_tunix.training.supervised import SupervisedTrainer

_LOGGER = logging.getLogger("agent_tunix.run")


def train_supervised(checked: ValidatedConfig, root: Path, overrides: Sequence[str] = ()) -> Summary:
    """Run a supervised start as configured.

    Args:
        checked: A configuration that passed `preflight` and `check_supervised`.
        root: The run's directory.
        overrides: What was asked for on the command line; kept beside how the run ended.

    Raises:
        RunDirectoryError, DataError, ModelError, CheckpointError: What was required, what arrived and what to do.
        NonFiniteUpdateError, Interrupted: The run stopped early; a checkpoint was saved.
    """
    with open_run(checked, root, overrides) as opened:
        _LOGGER.info("a supervised start; no reward trains")
        components = build_components(opened.checked.config, num_rows=micro_batch_size(opened.checked.config))
        return SupervisedSession(replace(opened.checked, config=components.config), opened, components).complete()


class SupervisedSession(RunSession):
    """The session of a supervised start."""

    method = "sft"

    def __init__(self, checked: ValidatedConfig, opened: OpenedRun, components: TrainingComponents) -> None:
        """Build the trainer."""
        super().__init__(checked, opened, components)
        self._trainer = SupervisedTrainer(checked.config, components.sampler, components.updater)
        self._told = False

    def _learn(self, step: int) -> StepOutcome:
        try:
            result = self._trainer.take_step(step, self._batch(step))
        except DataError as error:
            self._save(step - 1)
            raise DataError(f"{error}\n{self._how_to_resume(step - 1)}", code=error.code) from error
        if result.left_out and not self._told:
            self._told = True
            _LOGGER.warning(
                "step %d: %d rows have nothing to learn from, and later ones may not either (sft/left_out counts them):"
                " %s",
                step,
                len(result.left_out),
                result.left_out[0],
            )
        row: dict[str, Any] = {
            "sft/loss": result.loss,
            "sft/token_accuracy": result.token_accuracy,
            "sft/num_tokens": result.num_tokens,
            "sft/left_out": len(result.left_out),
            "policy/grad_norm": result.grad_norm,
            **{f"policy/{name}": value for name, value in result.norms.items()},
            "policy/learning_rate": self._learning_rate(),
            "policy/updates": result.updates_applied,
            "time/step_s": result.seconds,
            "throughput/tokens_per_s": result.num_tokens / result.seconds,
        }
        return StepOutcome(row, result.finite, result.updates_applied, result.loss, result.grad_norm)

    def _check_reward(self, metadata: dict[str, Any]) -> None:
        """No reward trains, so none can have changed."""
