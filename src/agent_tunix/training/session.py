"""The session of a run: its steps, from the start or the last checkpoint to the end, and everything around them.

The order within a step makes a resumed run equal to an uninterrupted one. The step's row reaches `metrics.jsonl` before
its checkpoint is written, and resuming removes the rows past the checkpoint. Background threads write rows, rollouts
and checkpoints in that order (`tracking/recorder.py`, `runs/weights/saving.py`). The run waits for them at its end.
"""

import contextlib
import copy
import dataclasses
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
from flax import nnx

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    Interrupted,
    NonFiniteUpdateError,
    RewardError,
    RewardFailureRateError,
)
from agent_tunix.evaluation.evaluate import Evaluator, HeldOutFigures
from agent_tunix.grpo.step import StepResult
from agent_tunix.rewards import fingerprint, sources
from agent_tunix.rewards.sample import ScoringFunction
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.early_stopping import BestSoFar
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.runs.reporter import NO_METRICS, RunReporter, SilentReporter, open_reporter, report
from agent_tunix.runs.watching import describe_run
from agent_tunix.runs.weights.checkpoints import Checkpoints, Restored, State, size_of
from agent_tunix.runs.weights.continuing import copy_history, naming_both
from agent_tunix.runs.weights.initial import describe_initial
from agent_tunix.runs.weights.record import CheckpointRecord, read_record, write_record
from agent_tunix.runs.weights.saving import CheckpointSaver
from agent_tunix.runs.weights.state import make_metadata, read_state, write_state
from agent_tunix.startup import garbage
from agent_tunix.startup.profiling import Profiling, phase
from agent_tunix.startup.time_budget import TimeBudget, TimedPart
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking import compare_ends, read_rows, summary_table
from agent_tunix.tracking.callbacks import Callback, Callbacks
from agent_tunix.tracking.metrics_file import cut_after, remove_metrics
from agent_tunix.tracking.summary import unknown_figures
from agent_tunix.training.components import TrainingComponents
from agent_tunix.training.opening import OpenedRun, record_start
from agent_tunix.training.resuming import (
    GRPO,
    check_resumable,
    check_reward,
    continue_command,
    is_due,
    judge_again,
    reading_metadata,
    refuse_to_cut,
    resume_command,
    tell_gaps,
)
from agent_tunix.visible_text import escape_hidden

_LOGGER = logging.getLogger("agent_tunix.run")
# Speed of a slow disk, until a checkpoint was written.
_SECONDS_PER_GB = 20.0
# Key of a checkpoint's metadata: its row has an evaluation only because `training.max_hours` ended the run there.
_EXTRA = "extra_evaluation"
_EVALUATION_S = "time/evaluation_s"
_STOPPED = (NonFiniteUpdateError, RewardFailureRateError)


@dataclass(frozen=True)
class Summary:
    """The result of a finished run."""

    before: dict[str, Any]  # metrics of the evaluation before training; empty if the run does not evaluate
    after: dict[str, Any]  # metrics of the evaluation after it
    paths: RunPaths


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step of any method."""

    row: dict[str, Any]
    finite: bool  # True if every update was finite
    updates_applied: int  # updates that changed the weights
    loss: float | None  # loss, for the message about an update that was not finite
    grad_norm: float | None  # norm of the gradient, for the same message
    result: StepResult | None = None  # completions and their scores; None in a supervised start

    @classmethod
    def of_grpo(cls, row: dict[str, Any], result: StepResult) -> "StepOutcome":
        """Return the outcome of a step of GRPO."""
        policy = result.policy
        return cls(row, result.finite, result.updates_applied, policy["loss"], policy["grad_norm"], result)


class RunSession:
    """Everything around the steps of a run: resuming, evaluations, metrics, checkpoints, the report.

    `open` resumes or starts the run, `steps` yields the steps to take, `finish_step` records each, and `conclude` shows
    the table.

    Args:
        method: The run's method, `grpo`, `sft` or `prefer`. A checkpoint of another method is not resumed.
        score: Function that scores completions of evaluations with the run's reward; None if no reward trains.
        correct: The same with the reward that `evaluation.correct` names; None if it names no other reward.
        callbacks: Code of the user, called around the steps; the same number in all processes.
        figures: Function that returns the method's own metrics of held-out rows; None without any.

    Attributes:
        reporter: Records metrics and stores rollouts; does nothing in processes other than the first.
    """

    def __init__(
        self,
        method: str,
        validated: ValidatedConfig,
        opened: OpenedRun,
        components: TrainingComponents,
        score: ScoringFunction | None = None,
        correct: ScoringFunction | None = None,
        callbacks: Sequence[Callback] = (),
        figures: HeldOutFigures | None = None,
    ) -> None:
        self._method = method
        self._validated = validated
        self._config = validated.config
        self._mixture = validated.mixture
        self._paths = opened.paths
        self._attempt = opened.attempt
        self._stop = opened.stop
        self._processes = opened.processes
        self._components = components
        self._by_pass_rate = components.by_pass_rate
        self._started = time.perf_counter()
        self._first_step = self._last_step = 0
        self.max_steps = components.batches.num_steps
        self._continued = opened.continued
        self._record_of_checkpoints = read_record(opened.continued or opened.paths)
        training = self._config.training
        self._checkpoints = Checkpoints(
            opened.paths.checkpoints,
            training.max_checkpoints_to_keep,
            opened.processes,
            self._record_of_checkpoints.directories if training.resume else (),
            max_bytes=None if training.max_checkpoints_gb is None else training.max_checkpoints_gb * 1e9,
        )
        self._budget = TimeBudget(training.max_hours)
        self._out_of_time: str | None = None  # reason why no time is left for another step
        names = [component.name for component in self._mixture.components]
        self._evaluator = Evaluator(self._config, components.held_out, names, score, correct, self.max_steps, figures)
        self._saved_step = 0
        self.fingerprint = fingerprint(self._mixture)
        self._metadata = make_metadata(
            self._config,
            self.fingerprint,
            components.prompting,
            components.model_digest,
            components.teacher_digest,
            self.max_steps,
        )
        self._metadata["initial"] = describe_initial(self._config)
        if method != GRPO:
            self._metadata["method"] = method
        self.reporter: RunReporter = SilentReporter()
        self._saver: CheckpointSaver
        self._reports: dict[str, Path] = {}
        profiled = dataclasses.replace(self._config, profile=self._config.profile and opened.processes.is_first)
        self._profiling = Profiling(profiled, opened.paths.profile, self.max_steps)
        self._best = BestSoFar(self._config.stopping)
        self._callbacks = Callbacks(callbacks, opened.paths.root, self.max_steps)
        self._has_callbacks = bool(callbacks)
        self._took_steps = False
        self._edited: set[Path] = set()  # files of the user whose edits were told
        self._steps_left = True  # False if the checkpoint that was restored is that of the last step

    @contextlib.contextmanager
    def open(self, warm_up: contextlib.AbstractContextManager[None] | None = None) -> Iterator[None]:
        """Resume the run or evaluate the policy before training. Close everything at the end.

        A finished run without steps left does not change.

        Args:
            warm_up: Context to enter before the first evaluation or step.

        Raises:
            CheckpointError: All checkpoints are damaged, or the checkpoint does not fit this run.
            ModelError: The checkpoint's adapter was trained on another model.
        """
        self._expect_sizes()
        with naming_both(self._continued, self._paths.root):
            first = self._first_step = self._last_step = self._resume()
        self._processes.remember(self._say_how_to_resume(first))
        if self._is_over():
            _LOGGER.info("the run has finished and no step is left, so its files and settings stay as they are")
            yield
            return
        with CheckpointSaver(self._checkpoints, phase) as self._saver:
            with contextlib.ExitStack() as stack:
                self._processes.from_first(lambda: self._begin(first, stack))
                stack.enter_context(self._profiling)
                if warm_up is not None:
                    stack.enter_context(warm_up)
                self._call_back("on_train_begin", first)
                if first == 0 and self._evaluator.is_on:
                    row = self._evaluate(0)
                    self._record(0, row, judged=True)
                    self._call_back("on_evaluate", 0, row)
                yield
            # The report is written while the last checkpoint is still being written in the background.
            self._processes.from_first(self._report)
        self._call_back("on_train_end", self._last_step)

    def steps(self) -> Iterator[int]:
        """Yield the steps to take, until the last, the metric of `stopping` no longer improves, or the time is up.

        Raises:
            Interrupted: A signal asked the run to stop; a checkpoint was saved.
        """
        self._out_of_time = self._find_time_is_up(self._last_step)
        for step in range(self._last_step + 1, self.max_steps + 1):
            if reason := self._best.reason_to_stop or self._reason_of_callbacks():
                _LOGGER.info("the run stops early, after step %d of %d: %s", step - 1, self.max_steps, reason)
                if self._saved_step < step - 1:
                    self._save(step - 1)
                    self._call_back("on_checkpoint", step - 1)
                return
            if self._out_of_time:
                self._end_early(step - 1)
                return
            self._stop_if_asked(step - 1)
            self._saver.check()
            self._call_back("on_step_begin", step - 1)
            with self._profiling.step(step):
                yield step
            self._last_step = step
            if self._profiling.ends_after(step):
                self._settle()
                self._profiling.close()

    def batch(self, step: int) -> PromptBatch:
        """Return the prompts of a step; raise DataError if streamed rows cannot be used."""
        return self._components.batches.batch(step)

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """Measure the time of a step. If its reward or its data fails, save a checkpoint of the step before.

        Raises:
            RewardFailureRateError: The reward failed; a checkpoint was saved.
            DataError: Streamed rows cannot be used; a checkpoint was saved.
        """
        step = self._last_step
        if self._took_steps:
            garbage.sought_as_usual()
        try:
            with spend("further steps" if self._took_steps else "first step"), self._budget.measured(TimedPart.STEP):
                yield
        except (RewardFailureRateError, RewardError) as error:
            self._save(step)
            raise RewardFailureRateError(f"{error}\n{self._how_to_resume(step)}") from error
        except DataError as error:
            self._save(step)
            raise DataError(f"{error}\n{self._how_to_resume(step)}", code=error.code) from error
        self._took_steps = True

    def finish_step(self, step: int, outcome: StepOutcome) -> None:
        """Record a step. Evaluate and save the policy if that is due.

        Raises:
            NonFiniteUpdateError: An update was not finite; a checkpoint was saved.
            RewardFailureRateError: The reward failed in the evaluation; a checkpoint was saved.
        """
        training = self._config.training
        self._tell_edits()
        is_last = step == self.max_steps
        row, result = outcome.row, outcome.result
        if self._by_pass_rate and result and result.pass_rates and (outcome.finite or outcome.updates_applied):
            row |= self._by_pass_rate.observe(step, result.pass_rates)
        if not outcome.finite:
            self.reporter.record(step, row, result)
            if outcome.updates_applied:  # the step changed the weights, so a resumed run continues after it
                self._mixture.observe(step, self._agree_on(row))
            self._stop_not_finite(step, outcome)
        evaluated = is_last or is_due(step, training.eval_every_n_steps)
        if evaluated:
            row |= self._evaluate(step, row, result)
        self._out_of_time = self._find_time_is_up(step)
        # The run that continues takes no such evaluation, so nothing that goes on may depend on it.
        extra = self._evaluate(step, row, result) if self._out_of_time and not evaluated else NO_METRICS
        is_best_so_far = bool(extra) and copy.deepcopy(self._best).observe(step, {**row, **extra}, judged=True)
        is_best = self._record(step, row, result, extra, judged=evaluated)
        if is_best or is_last or self._out_of_time or is_due(step, training.save_interval_steps):
            self._save(step, extra)
        if is_best or is_best_so_far:
            self._saver.mark_best(step)
        if (evaluated and self._evaluator.is_on) or extra:
            self._call_back("on_evaluate", step, {**row, **extra})
        if self._saved_step == step:
            self._call_back("on_checkpoint", step)
        self._call_back("on_step", step, {**row, **extra})

    def learning_rate(self) -> float:
        """Return the learning rate of the last update."""
        return self._components.learning_rate(max(self._components.updater.num_updates - 1, 0))

    def conclude(self) -> Summary:
        """Show the table, and return the evaluations before and after training."""
        last, seconds = self._last_step, time.perf_counter() - self._started

        def ends() -> list[dict[str, Any]]:
            rows = self._rows()
            if self._config.tracking.progress != "none":
                locations = self._list_paths() | self._reports
                table = summary_table(
                    *compare_ends(rows),
                    locations,
                    num_steps=last,
                    seconds=seconds,
                    resumed_after=self._first_step,
                    unknown=unknown_figures(rows, self._config.prompt.format),
                )
                print(escape_hidden(table))
            evaluations = [row for row in rows if any(name.startswith("eval/") for name in row)] or [{}]
            return [evaluations[0], evaluations[-1]]

        before, after = self._processes.from_first(ends)
        return Summary(before, after, self._paths)

    def _begin(self, first: int, stack: contextlib.ExitStack) -> None:
        """Record the start of the run and open its reporter.

        This happens after all checks, so that a refused resume leaves the files of the run unchanged.
        """
        self._attempt.begin()
        context = describe_run(self._validated, self.max_steps)
        made_of = self._mixture, self.fingerprint, self._components
        if self._steps_left or not self._paths.config.exists():
            record_start(self._config, context, self._paths, self._method, *made_of, self._continued)
        stack.push(self._report_stop)
        first_step = first if self._saved_step else None
        self.reporter = stack.enter_context(
            open_reporter(self._config, context, self._paths, self.max_steps, first_step)
        )

    def _report_stop(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        """Write the report of a run that stopped early, when the user needs it most.

        After a signal, little time may be left, so the report comes after everything else.
        """
        if isinstance(error, Interrupted):
            error.finish = self._report
        elif kind is not None and issubclass(kind, _STOPPED):
            self._report()

    def _report(self) -> None:
        with spend("report"), self._budget.measured(TimedPart.REPORT):
            self._reports = report(self._config, self._paths.root)

    def _tell_edits(self) -> None:
        """Say that a file of the user was edited. Workers that start later still get the code of before."""
        for file in sources.edited():
            if file not in self._edited and self._processes.is_first:
                _LOGGER.warning(
                    "%s was edited after the run loaded it; the run continues with the code that it began with, in all "
                    "workers. A new or resumed run uses the edited code",
                    file,
                )
            self._edited.add(file)

    def _settle(self) -> None:
        """Wait until the background threads have written everything."""
        self.reporter.barrier()()
        self._saver.flush()

    def _record(
        self,
        step: int,
        row: dict[str, Any],
        result: StepResult | None = None,
        extra: Mapping[str, Any] = NO_METRICS,
        *,
        judged: bool,
    ) -> bool:
        """Pass a row to the reporter, to component weights that follow a metric, and to early stopping.

        Only the reporter gets the extra metrics.

        Returns:
            True if the step is judged and is the best so far.
        """
        self.reporter.record(step, row, result, extra)
        row = self._agree_on(row)
        self._mixture.observe(step, row)
        return self._best.observe(step, row, judged)

    def _agree_on(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the first process's numbers of a row.

        Decisions that depend on them must be the same in all processes. But times differ between processes, and so may
        scores that hit a time limit.
        """
        if self._processes.count == 1:
            return row
        numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
        return self._processes.from_first(lambda: numbers)

    def _call_back(self, event: str, step: int, row: dict[str, Any] | None = None) -> None:
        """Call the user's callbacks in the first process. If one fails, save a checkpoint of the step first."""
        if not (self._has_callbacks and self._processes.is_first):
            return
        if event == "on_evaluate" and row is not None:
            row = {name: value for name, value in row.items() if name.startswith("eval/")}
        try:
            self._callbacks.call(event, step, *(() if row is None else (MappingProxyType(row),)))
        except BaseException:
            if self._processes.count == 1:  # all processes write a checkpoint together
                self._save(step)
            raise

    def _reason_of_callbacks(self) -> str | None:
        return self._processes.from_first(lambda: self._callbacks.reason_to_stop) if self._has_callbacks else None

    def _evaluate(
        self, step: int, row: dict[str, Any] | None = None, result: StepResult | None = None
    ) -> dict[str, Any]:
        """Return the metrics of an evaluation after a step; none if the run does not evaluate.

        If the reward fails, the row is recorded without them before the checkpoint is saved.
        """
        if not self._evaluator.is_on:
            return {}
        with phase("evaluation"), spend("evaluation"):
            try:
                with self._budget.measured(TimedPart.EVALUATION):
                    metrics = self._evaluator.metrics(self._components.batch_sampler, step)
                return metrics | {_EVALUATION_S: self._budget.last(TimedPart.EVALUATION)}
            except RewardError as error:
                if row is not None:
                    self._record(step, row, result, judged=False)
                    self._save(step)
                raise RewardFailureRateError(f"{error}\n{self._how_to_resume(step)}") from error

    def _resume(self) -> int:
        """Restore the latest checkpoint, and return its step; return 0 for a new run."""
        config, components = self._config, self._components
        if not config.training.resume:
            return 0
        restored = self._checkpoints.restore_latest(read_state(components.updater, components.moving_reference))
        self._processes.from_first(
            lambda: refuse_to_cut(
                self._record_of_checkpoints,
                restored.step if restored else 0,
                self._continued or self._paths,
                is_continued=self._continued is not None,
            )
        )
        if restored is None and self._continued:
            raise CheckpointError(
                f"there is no checkpoint in {self._continued.checkpoints}; start a new run without "
                "training.continue_from",
                code="no_checkpoint",
            )
        if restored is None:
            _LOGGER.info("nothing to resume in %s; starting from the beginning", self._paths.checkpoints)
            return 0
        with reading_metadata(restored):
            root = (self._continued or self._paths).root
            check_resumable(restored, self._metadata, config, components, self._method, root)
            if self._method == GRPO:
                check_reward(restored.metadata, self._metadata, config)
            self._mixture.load_state_dict(restored.metadata.get("mixture", {}))
            if self._by_pass_rate:
                self._by_pass_rate.load_state_dict(restored.metadata.get("pass_rates", {}), restored.step)
        write_state(components.updater, components.moving_reference, restored.state)
        if (continued := self._continued) is not None:
            self._processes.from_first(lambda: copy_history(continued, self._paths))
        rows = self._processes.from_first(lambda: self._kept_rows(restored))
        judge_again(self._best, rows, config, self.max_steps)
        self._budget.remember(TimedPart.EVALUATION, [row[_EVALUATION_S] for row in rows if row.get(_EVALUATION_S)])
        self._steps_left = restored.step < self.max_steps and self._best.reason_to_stop is None
        if not self._is_over():
            # The best may have no checkpoint, if other steps are judged than before.
            steps = self._processes.from_first(self._checkpoints.steps)
            if continued is not None:
                self._checkpoints.adopt(step for step in steps if step in (restored.step, self._best.step))
                self._record_of_checkpoints = CheckpointRecord(None, ())
            self._checkpoints.repair_best(self._best.step if self._best.step in steps else None)
            self._checkpoints.remove_after(restored.step)
        self._saved_step = restored.step
        _LOGGER.info("resumed from the checkpoint of step %d", restored.step)
        if continued is not None:
            _LOGGER.info("the run of %s continues in %s", continued.root, self._paths.root)
        return restored.step

    def _is_over(self) -> bool:
        """Return True if the run has finished and this attempt takes no further step."""
        return not self._steps_left and self._processes.from_first(lambda: self._attempt.was_finished)

    def _expect_sizes(self) -> None:
        """Tell the budget what writing takes, and refuse a limit that a single checkpoint exceeds."""
        limit, size_gb = self._config.training.max_checkpoints_gb, size_of(self._read_state()) / 1e9
        policy = jax.tree.leaves(nnx.state(self._components.updater.policy))
        self._budget.expect(TimedPart.CHECKPOINT, size_gb * _SECONDS_PER_GB)
        # An export reads the model and writes it.
        self._budget.expect(TimedPart.EXPORT, 2 * sum(array.nbytes for array in policy) / 1e9 * _SECONDS_PER_GB)
        if not self._evaluator.is_on:
            self._budget.expect(TimedPart.EVALUATION, 0.0)
        if limit is not None and size_gb > limit:
            raise ConfigError(
                f"training.max_checkpoints_gb must hold a checkpoint of this run, which takes {size_gb:.2g} GB, but is "
                f"{limit:g}; set it to {3 * size_gb:.2g} for the last, the best and the next, or train an adapter",
                code="checkpoint_too_large",
            )

    def _kept_rows(self, restored: Restored) -> list[dict[str, Any]]:
        """Return the rows that a run resumed from a checkpoint keeps, and warn of missing rows.

        The evaluation at the end of a run that stopped is removed if the run would not have made it otherwise.
        """
        step, interval = restored.step, self._config.training.eval_every_n_steps
        cut_after(self._paths.metrics, step)
        if restored.metadata.get(_EXTRA) and step < self.max_steps and not is_due(step, interval):
            remove_metrics(self._paths.metrics, step, ("eval/", _EVALUATION_S))
        tell_gaps(self._paths.metrics, step, first=0 if self._config.evaluation.num_samples else 1)
        return self._rows()

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl; none if somebody has removed it."""
        return read_rows(self._paths.metrics) if self._paths.metrics.exists() else []

    def _save(self, step: int, extra: Mapping[str, Any] = NO_METRICS) -> None:
        """Begin to write the checkpoint of a step, unless it has one. Rows and rollouts are written before it.

        Args:
            step: The step.
            extra: Metrics of its row that a run without `training.max_hours` would not have.
        """
        if step > self._saved_step:
            with phase("checkpoint"), spend("checkpoints"):
                data = self._components.batches.fingerprint(step)
                metadata = {**self._metadata, "data": data, "mixture": self._mixture.state_dict()}
                if self._by_pass_rate:
                    metadata["pass_rates"] = self._by_pass_rate.state_dict()
                if extra:
                    metadata[_EXTRA] = True
                self._saver.save(
                    step,
                    self._read_state(),
                    metadata,
                    after=self.reporter.barrier(),
                    measured=self._budget.measured(TimedPart.CHECKPOINT),
                    then=lambda: self._record_checkpoint(step),
                )
            self._saved_step = step
            self._processes.remember(self._say_how_to_resume(step))

    def _record_checkpoint(self, step: int) -> None:
        if self._processes.is_first:
            write_record(self._paths, step, self._record_of_checkpoints)

    def _read_state(self) -> State:
        return read_state(self._components.updater, self._components.moving_reference)

    def _find_time_is_up(self, step: int) -> str | None:
        """Return the reason why the run has no time for the step after this one; None if it has."""
        if self._config.training.max_hours is None or step >= self.max_steps:
            return None
        return self._processes.from_first(self._budget.reason_to_stop)

    def _end_early(self, step: int) -> None:
        """Save, and say how a run without time for another step continues."""
        self._save(step)
        self._attempt.stopped = f"stopped by training.max_hours after step {step} of {self.max_steps}"
        how = self._say_how_to_resume(step)
        if step > 0:
            how += f"\nor continue it, or a copy of it, in a new directory:\n  {continue_command(self._paths.root)}"
        _LOGGER.info("the run stops after step %d of %d: %s. %s", step, self.max_steps, self._out_of_time, how)

    def _stop_if_asked(self, step: int) -> None:
        # A signal to any process stops all of them after the same step.
        signals = self._processes.gather(self._stop.signal_number)
        number = next((signal for signal in signals if signal is not None), None)
        if number is not None and step < self.max_steps:
            self._save(step)
            raise Interrupted(f"stopped by signal {number} after step {step}. {self._how_to_resume(step)}", number)

    def _stop_not_finite(self, step: int, outcome: StepOutcome) -> None:
        # If no update of this step was applied, the weights are those of the step before.
        reached = step if outcome.updates_applied else step - 1
        self._save(reached)
        raise NonFiniteUpdateError(
            f"step {step}: the loss is {outcome.loss} and the gradient norm {outcome.grad_norm}; the weights were "
            "not updated with it. Lower optimizer.learning_rate, set model.dtype=float32, or check for extreme "
            f"rewards. {self._how_to_resume(reached)}"
        )

    def _how_to_resume(self, step: int) -> str:
        if step > 0:
            self._saver.flush()  # the message says that the checkpoint is saved
        return self._say_how_to_resume(step)

    def _say_how_to_resume(self, step: int) -> str:
        if step == 0:
            return f"No step was completed, so start again with:\n  {resume_command(self._paths.root)}"
        return f"The checkpoint of step {step} is saved; resume with:\n  {resume_command(self._paths.root)}"

    def _list_paths(self) -> dict[str, Path | str]:
        paths: dict[str, Path | str] = {
            "metrics": self._paths.metrics,
            "log": self._paths.log,
            "checkpoints": self._paths.checkpoints,
        }
        if self._config.tracking.tensorboard:
            paths["tensorboard"] = self._paths.tensorboard
        if self._paths.rollouts.is_dir():
            paths["rollouts"] = self._paths.rollouts
        if self._profiling.path is not None:
            paths["profile"] = f"{self._profiling.path} (open at ui.perfetto.dev)"
        return paths | self.reporter.summary()
