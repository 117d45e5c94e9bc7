"""Checkpoints of a run: what its steps save, and how a resumed or continued run is restored from the newest one.

The rows after the restored checkpoint are removed from `metrics.jsonl`, and later checkpoints from their directory,
because the run takes these steps again. A finished run without steps left is restored too, so that its table can be
shown, but its files stay as they are.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from agent_tunix.config.harnesses import evaluates
from agent_tunix.config.schema import Config
from agent_tunix.errors import CheckpointError, ConfigError
from agent_tunix.rewards import Fingerprint
from agent_tunix.runs.early_stopping import BestSoFar
from agent_tunix.runs.reporter import RunReporter
from agent_tunix.runs.weights.base_model import METADATA_KEY
from agent_tunix.runs.weights.checkpoints import Checkpoints, Restored, State, size_of
from agent_tunix.runs.weights.continuing import copy_history, naming_both
from agent_tunix.runs.weights.initial import describe_initial
from agent_tunix.runs.weights.record import CheckpointRecord, read_record, write_record
from agent_tunix.runs.weights.saving import CheckpointSaver
from agent_tunix.runs.weights.state import make_metadata, read_state, write_state
from agent_tunix.startup.profiling import phase
from agent_tunix.startup.time_budget import TimeBudget, TimedPart
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking.metrics_file import cut_after, remove_metrics
from agent_tunix.training.components import TrainingComponents
from agent_tunix.training.opening import OpenedRun
from agent_tunix.training.resuming import (
    GRPO,
    check_resumable,
    check_reward,
    how_to_resume,
    is_due,
    judge_again,
    reading_metadata,
    refuse_to_cut,
    stored_rows,
    tell_gaps,
)

_LOGGER = logging.getLogger("agent_tunix.run")
EVALUATION_S = "time/evaluation_s"  # Metric with the duration of an evaluation.
# Speed of a slow disk, until a checkpoint was written.
_SECONDS_PER_GB = 20.0
# Key of a checkpoint's metadata: its row has an evaluation only because `training.max_hours` ended the run there.
_EXTRA = "extra_evaluation"


@dataclass(frozen=True)
class StartingPoint:
    """The point at which an attempt of a run starts; by default, that of a new run."""

    step: int = 0  # step of the restored checkpoint; 0 for a new run
    has_steps_left: bool = True
    is_over: bool = False  # True if the run has finished before and no step is left


class RunCheckpoints:
    """The checkpoints of a run, from which it is restored, and which its steps save.

    Args:
        method: The run's method, `grpo`, `sft` or `prefer`. A checkpoint of another method is not restored.
        opened: The run.
        components: The parts of the run. Restoring changes their weights and states.
        config: Configuration of the run.
        reward: Fingerprint of the reward.
        budget: The run's time budget.

    Attributes:
        saved_step: Step of the newest checkpoint; 0 before the first.
    """

    def __init__(
        self,
        method: str,
        opened: OpenedRun,
        components: TrainingComponents,
        config: Config,
        reward: Fingerprint,
        budget: TimeBudget,
    ) -> None:
        self._method = method
        self._paths = opened.paths
        self._continued = opened.continued
        self._attempt = opened.attempt
        self._processes = opened.processes
        self._components = components
        self._config = config
        self._budget = budget
        self._max_steps = components.batches.num_steps
        self._record = read_record(opened.continued or opened.paths)
        training = config.training
        self._checkpoints = Checkpoints(
            opened.paths.checkpoints,
            training.max_checkpoints_to_keep,
            opened.processes,
            self._record.directories if training.resume else (),
            max_bytes=None if training.max_checkpoints_gb is None else training.max_checkpoints_gb * 1e9,
        )
        digests = components.prompting, components.model_digest, components.teacher_digest
        self._metadata = make_metadata(config, reward, *digests, self._max_steps)
        self._metadata["initial"] = describe_initial(config)
        if method != GRPO:
            self._metadata["method"] = method
        self._saver: CheckpointSaver
        self.saved_step = 0

    def expect_sizes(self) -> None:
        """Tell the budget what writing takes, and refuse a limit that a single checkpoint exceeds.

        Raises:
            ConfigError: A checkpoint is larger than `training.max_checkpoints_gb`.
        """
        limit, size_gb = self._config.training.max_checkpoints_gb, size_of(self._read_state()) / 1e9
        policy = jax.tree.leaves(nnx.state(self._components.updater.policy))
        self._budget.expect(TimedPart.CHECKPOINT, size_gb * _SECONDS_PER_GB)
        # An export reads the model and writes it.
        self._budget.expect(TimedPart.EXPORT, 2 * sum(array.nbytes for array in policy) / 1e9 * _SECONDS_PER_GB)
        if limit is not None and size_gb > limit:
            raise ConfigError(
                f"training.max_checkpoints_gb must hold a checkpoint of this run, which takes {size_gb:.2g} GB, but is "
                f"{limit:g}; set it to {3 * size_gb:.2g} for the last, the best and the next, or train an adapter",
                code="checkpoint_too_large",
            )

    def restore(self, best: BestSoFar) -> StartingPoint:
        """Restore the run from its newest intact checkpoint, if it resumes or continues and has one.

        Args:
            best: Early stopping, which judges the rows of the restored steps again.

        Raises:
            CheckpointError: All checkpoints are damaged, or the checkpoint does not fit this run.
            ModelError: The checkpoint's adapter was trained on another model.
            RunDirectoryError: The history of the run that this one continues could not be copied.
        """
        if not self._config.training.resume:
            return StartingPoint()
        with naming_both(self._continued, self._paths.root):
            restored = self._read_latest()
            if restored is None:
                _LOGGER.info("nothing to resume in %s; starting from the beginning", self._paths.checkpoints)
                return StartingPoint()
            self._load(restored)
            self._restore_rows(restored, best)
            has_steps_left = restored.step < self._max_steps and best.reason_to_stop is None
            is_over = not has_steps_left and self._processes.from_first(lambda: self._attempt.was_finished)
            if not is_over:
                self._take_over(restored.step, best.step)
        self.saved_step = restored.step
        _LOGGER.info("resumed from the checkpoint of step %d", restored.step)
        if self._continued is not None:
            _LOGGER.info("the run of %s continues in %s", self._continued.root, self._paths.root)
        return StartingPoint(restored.step, has_steps_left, is_over)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Write checkpoints in the background within this context, and wait for the last one at its end."""
        with CheckpointSaver(self._checkpoints, phase) as self._saver:
            yield

    def save(self, step: int, reporter: RunReporter, *, has_extra: bool = False) -> None:
        """Begin to write the checkpoint of a step, unless it has one.

        Args:
            step: The step.
            reporter: The run's reporter, which writes rows and rollouts first.
            has_extra: True if the step's row has metrics that a run without `training.max_hours` would not have.
        """
        if step <= self.saved_step:
            return
        with phase("checkpoint"), spend("checkpoints"):
            data = self._components.batches.fingerprint(step)
            metadata = {**self._metadata, "data": data}
            if self._components.by_pass_rate:
                metadata["pass_rates"] = self._components.by_pass_rate.state_dict()
            if has_extra:
                metadata[_EXTRA] = True
            self._saver.save(
                step,
                self._read_state(),
                metadata,
                after=reporter.barrier(),
                measured=self._budget.measured(TimedPart.CHECKPOINT),
                then=lambda: self._record_newest(step),
                files=self._files(step),
            )
        self.saved_step = step
        self._processes.remember(how_to_resume(self._paths.root, step))

    def mark_best(self, step: int) -> None:
        """Mark the checkpoint of a step as the best, after it is written."""
        self._saver.mark_best(step)

    def check(self) -> None:
        """Raise the error of a checkpoint that could not be written."""
        self._saver.check()

    def flush(self) -> None:
        """Wait until all checkpoints are written."""
        self._saver.flush()

    def _files(self, step: int) -> Callable[[], Mapping[str, bytes]] | None:
        """Return what reads the further files of the checkpoint of a step; None if it has none."""
        if ahead := self._components.ahead:
            return ahead.files(step)
        buffer = self._components.buffer
        return buffer.files(self._kept_groups_are_made_of()) if buffer else None

    def _kept_groups_are_made_of(self) -> object:
        """Return the settings with which kept groups can be replayed."""
        config, metadata = self._config, self._metadata
        names = ("num_generations", "prompts", "reward", METADATA_KEY)
        return [metadata[name] for name in names], config.generation, config.environment, config.grpo.filter_by

    def _read_latest(self) -> Restored | None:
        """Return the newest intact checkpoint; None if a run that resumes has none."""
        history = self._continued or self._paths
        restored = self._checkpoints.restore_latest(self._read_state())
        step = restored.step if restored else 0
        is_continued = self._continued is not None
        self._processes.from_first(lambda: refuse_to_cut(self._record, step, history, is_continued=is_continued))
        if restored is None and self._continued:
            raise CheckpointError(
                f"there is no checkpoint in {self._continued.checkpoints}; start a new run without "
                "training.continue_from",
                code="no_checkpoint",
            )
        return restored

    def _load(self, restored: Restored) -> None:
        """Check that a checkpoint fits this run, and load its weights and the states in its metadata."""
        config, components = self._config, self._components
        with reading_metadata(restored):
            root = (self._continued or self._paths).root
            check_resumable(restored, self._metadata, config, components, self._method, root)
            if self._method == GRPO:
                check_reward(restored.metadata, self._metadata, config)
            if components.by_pass_rate:
                components.by_pass_rate.load_state_dict(restored.metadata.get("pass_rates", {}), restored.step)
            if components.ahead:
                components.ahead.load(restored.directory, restored.step)
            if components.buffer:
                components.buffer.load(restored.directory, self._kept_groups_are_made_of())
        write_state(components.updater, components.moving_reference, restored.state)

    def _restore_rows(self, restored: Restored, best: BestSoFar) -> None:
        """Keep the rows up to a checkpoint, and tell early stopping and the budget what they say."""
        if (continued := self._continued) is not None:
            self._processes.from_first(lambda: copy_history(continued, self._paths))
        rows = self._processes.from_first(lambda: self._cut_rows(restored))
        judge_again(best, rows, self._config, self._max_steps)
        self._budget.remember(TimedPart.EVALUATION, [row[EVALUATION_S] for row in rows if row.get(EVALUATION_S)])

    def _cut_rows(self, restored: Restored) -> list[dict[str, Any]]:
        """Remove the rows after a checkpoint, warn of missing ones, and return the others.

        The evaluation at the end of a run that stopped is removed if the run would not have made it otherwise.
        """
        step, interval = restored.step, self._config.training.eval_every_n_steps
        cut_after(self._paths.metrics, step)
        if restored.metadata.get(_EXTRA) and step < self._max_steps and not is_due(step, interval):
            remove_metrics(self._paths.metrics, step, ("eval/", EVALUATION_S))
        tell_gaps(self._paths.metrics, step, first=0 if evaluates(self._config.evaluation) else 1)
        return stored_rows(self._paths)

    def _take_over(self, restored_step: int, best_step: int | None) -> None:
        """Copy the checkpoints of a run that this one continues, mark the best, and remove those of later steps."""
        # The best may have no checkpoint, if other steps are judged than before.
        steps = self._processes.from_first(self._checkpoints.steps)
        if self._continued is not None:
            self._checkpoints.adopt(step for step in steps if step in (restored_step, best_step))
            self._record = CheckpointRecord(None, ())
        self._checkpoints.repair_best(best_step if best_step in steps else None)
        self._checkpoints.remove_after(restored_step)

    def _record_newest(self, step: int) -> None:
        if self._processes.is_first:
            write_record(self._paths, step, self._record)

    def _read_state(self) -> State:
        return read_state(self._components.updater, self._components.moving_reference)
