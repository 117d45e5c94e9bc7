"""The session of a run: its steps, from the start or the last checkpoint to the end, and everything around them.

The order within a step makes a resumed run equal to an uninterrupted one. The step's row reaches `metrics.jsonl` before
its checkpoint is written, and resuming removes the rows past the checkpoint. Background threads write rows, rollouts
and checkpoints in that order (`tracking/recorder.py`, `runs/weights/saving.py`). The run waits for them at its end.
`checkpointing.py` decides what a checkpoint holds, and restores the run from it.
"""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agent_tunix.config.harnesses import evaluates
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.engines.mismatch import MismatchLimit
from agent_tunix.errors import (
    ConfigError,
    DataError,
    EngineError,
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
from agent_tunix.startup import garbage
from agent_tunix.startup.profiling import Profiling, phase
from agent_tunix.startup.time_budget import TimeBudget, TimedPart
from agent_tunix.startup.timeline import spend
from agent_tunix.tracking import compare_ends, summary_table
from agent_tunix.tracking.callbacks import Callback, Callbacks
from agent_tunix.tracking.summary import unknown_figures
from agent_tunix.training.checkpointing import EVALUATION_S, RunCheckpoints, StartingPoint
from agent_tunix.training.components import TrainingComponents
from agent_tunix.training.opening import OpenedRun, record_start
from agent_tunix.training.resuming import continue_command, how_to_resume, is_due, stored_rows
from agent_tunix.visible_text import escape_hidden

if TYPE_CHECKING:
    from agent_tunix.evaluation.harness import HarnessEvaluator

_LOGGER = logging.getLogger("agent_tunix.run")
_STOPPED = (EngineError, NonFiniteUpdateError, RewardFailureRateError)


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
        self._opened = opened
        self._paths = opened.paths
        self._processes = opened.processes
        self._components = components
        self._by_pass_rate = components.by_pass_rate
        self._started = time.perf_counter()
        self._last_step = 0
        self.max_steps = components.batches.num_steps
        self._budget = TimeBudget(self._config.training.max_hours)
        self._out_of_time: str | None = None  # reason why no time is left for another step
        names = [component.name for component in self._mixture.components]
        self._evaluator = Evaluator(self._config, components.held_out, names, score, correct, self.max_steps, figures)
        self._harness = self._make_harness()
        self._evaluates = evaluates(self._config.evaluation)
        self.fingerprint = fingerprint(self._mixture)
        self._checkpoints = RunCheckpoints(method, opened, components, self._config, self.fingerprint, self._budget)
        self._start = StartingPoint()
        self.reporter: RunReporter = SilentReporter()
        self._reports: dict[str, Path] = {}
        profiled = replace(self._config, profile=self._config.profile and opened.processes.is_first)
        self._profiling = Profiling(profiled, opened.paths.profile, self.max_steps)
        self._best = BestSoFar(self._config.stopping)
        self._mismatch = MismatchLimit(self._config.engine)
        self._callbacks = Callbacks(callbacks, opened.paths.root, self.max_steps)
        self._has_callbacks = bool(callbacks)
        self._took_steps = False
        self._edited: set[Path] = set()  # files of the user whose edits were told

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
        self._checkpoints.expect_sizes()
        if not self._evaluates:
            self._budget.expect(TimedPart.EVALUATION, 0.0)
        self._start = self._checkpoints.restore(self._best)
        first = self._last_step = self._start.step
        self._processes.remember(how_to_resume(self._paths.root, first))
        if self._start.is_over:
            _LOGGER.info("the run has finished and no step is left, so its files and settings stay as they are")
            yield
            return
        with self._checkpoints.writing():
            with contextlib.ExitStack() as stack:
                self._processes.from_first(lambda: self._begin(stack))
                stack.enter_context(self._profiling)
                if warm_up is not None:
                    stack.enter_context(warm_up)
                self._call_back("on_train_begin", first)
                if first == 0 and self._evaluates:
                    row = self._evaluate(0)
                    self._record(0, row, judged=True)
                    self._call_on_evaluate(0, row)
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
                self._cancel_ahead()
                if self._checkpoints.saved_step < step - 1:
                    self._save(step - 1)
                    self._call_back("on_checkpoint", step - 1)
                return
            if self._out_of_time:
                self._end_early(step - 1)
                return
            self._stop_if_asked(step - 1)
            self._checkpoints.check()
            self._call_back("on_step_begin", step - 1)
            with self._profiling.step(step):
                yield step
            self._last_step = step
            if self._profiling.ends_after(step):
                # The profile ends when the background threads have written everything.
                self.reporter.barrier()()
                self._checkpoints.flush()
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
            EngineError: The engines do not sample, or not from the policy; a checkpoint was saved.
        """
        step = self._last_step
        if self._took_steps:
            garbage.sought_as_usual()
        try:
            with spend("further steps" if self._took_steps else "first step"), self._budget.measured(TimedPart.STEP):
                yield
        except (RewardFailureRateError, RewardError) as error:
            raise RewardFailureRateError(f"{error}\n{self._save_for_resuming(step, 'reward')}") from error
        except (DataError, EngineError) as error:
            if isinstance(error, EngineError):
                self._cancel_ahead()
            raise type(error)(f"{error}\n{self._save_for_resuming(step)}", code=error.code) from error
        self._took_steps = True

    def finish_step(self, step: int, outcome: StepOutcome) -> None:
        """Record a step. Evaluate and save the policy if that is due.

        Raises:
            NonFiniteUpdateError: An update was not finite; a checkpoint was saved.
            RewardFailureRateError: The reward failed in the evaluation; a checkpoint was saved.
            EngineError: What sampling and training disagree by is above its limit; a checkpoint was saved.
        """
        training = self._config.training
        self._tell_edits()
        is_last = step == self.max_steps
        row, result = outcome.row, outcome.result
        if self._by_pass_rate and result and result.pass_rates and (outcome.finite or outcome.updates_applied):
            row |= self._by_pass_rate.observe(step, result.pass_rates)
        if not outcome.finite:
            self.reporter.record(step, row, result)
            self._stop_not_finite(step, outcome)
        is_judged = is_last or is_due(step, training.eval_every_n_steps)
        evaluation = self._evaluate(step, row, result) if is_judged else NO_METRICS
        row |= evaluation
        self._out_of_time = self._find_time_is_up(step)
        if self._out_of_time:
            self._cancel_ahead()
        # The run that continues takes no such evaluation, so nothing that goes on may depend on it.
        extra = self._evaluate(step, row, result) if self._out_of_time and not is_judged else NO_METRICS
        is_best = self._record(step, row, result, extra, judged=is_judged)
        self._stop_if_mismatched(step, row)
        if is_best or is_last or self._out_of_time or is_due(step, training.save_interval_steps):
            self._save(step, has_extra=bool(extra))
        if is_best:
            self._checkpoints.mark_best(step)
        if evaluation or extra:
            self._call_on_evaluate(step, {**evaluation, **extra})
        if self._checkpoints.saved_step == step:
            self._call_back("on_checkpoint", step)
        self._call_back("on_step", step, {**row, **extra})

    def learning_rate(self) -> float:
        """Return the learning rate of the last update."""
        return self._components.learning_rate(max(self._components.updater.num_updates - 1, 0))

    def conclude(self) -> Summary:
        """Show the table, and return the evaluations before and after training."""
        last, seconds = self._last_step, time.perf_counter() - self._started

        def ends() -> list[dict[str, Any]]:
            rows = stored_rows(self._paths)
            if self._config.tracking.progress != "none":
                locations = self._list_paths() | self._reports
                table = summary_table(
                    *compare_ends(rows),
                    locations,
                    num_steps=last,
                    seconds=seconds,
                    resumed_after=self._start.step,
                    unknown=unknown_figures(rows, self._config.prompt.format),
                )
                print(escape_hidden(table))
            evaluations = [row for row in rows if any(name.startswith("eval/") for name in row)] or [{}]
            return [evaluations[0], evaluations[-1]]

        before, after = self._processes.from_first(ends)
        return Summary(before, after, self._paths)

    def _make_harness(self) -> "HarnessEvaluator | None":
        """Return the evaluator by other programs; None without any."""
        if not self._config.evaluation.harness:
            return None
        if self._processes.count > 1:
            raise ConfigError(
                "evaluation.harness requires a run of one process, which serves its policy, but this run has "
                f"{self._processes.count}; set evaluation.harness=null, and evaluate checkpoints by evaluate.py"
            )
        from agent_tunix.evaluation.harness import HarnessEvaluator  # it needs the packages of a server

        parts, stop = self._components, self._opened.stop
        return HarnessEvaluator(self._config, parts.sampler, parts.directory, lambda: stop.signal_number is not None)

    def _begin(self, stack: contextlib.ExitStack) -> None:
        """Record the start of the run and open its reporter.

        This happens after all checks, so that a refused resume leaves the files of the run unchanged.
        """
        self._opened.attempt.begin()
        context = describe_run(self._validated, self.max_steps)
        for row in stored_rows(self._paths):
            self._mismatch.observe(row)
            if self._harness:
                self._harness.remember(row)
        made_of = self._mixture, self.fingerprint, self._components
        if self._start.has_steps_left or not self._paths.config.exists():
            record_start(self._config, context, self._paths, self._method, *made_of, self._opened.continued)
        stack.push(self._report_stop)
        self.reporter = stack.enter_context(
            open_reporter(self._config, context, self._paths, self.max_steps, self._start.step or None)
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

    def _record(
        self,
        step: int,
        row: dict[str, Any],
        result: StepResult | None = None,
        extra: Mapping[str, Any] = NO_METRICS,
        *,
        judged: bool,
    ) -> bool:
        """Pass a row to the reporter and to early stopping.

        Only the reporter gets the extra metrics.

        Returns:
            True if the step is the best so far, by its own metrics if it is judged, or with the extra ones.
        """
        is_best_with_extra = bool(extra) and self._best.would_be(step, {**row, **extra})
        self.reporter.record(step, row, result, extra)
        return self._best.observe(step, self._agree_on(row), judged) or is_best_with_extra

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
        if not self._processes.is_first:
            return
        try:
            self._callbacks.call(event, step, *(() if row is None else (MappingProxyType(row),)))
        except BaseException:
            if self._processes.count == 1:  # all processes write a checkpoint together
                self._save(step)
            raise

    def _call_on_evaluate(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._call_back("on_evaluate", step, {name: v for name, v in metrics.items() if name.startswith("eval/")})

    def _reason_of_callbacks(self) -> str | None:
        return self._processes.from_first(lambda: self._callbacks.reason_to_stop) if self._has_callbacks else None

    def _evaluate(
        self, step: int, row: dict[str, Any] | None = None, result: StepResult | None = None
    ) -> dict[str, Any]:
        """Return the metrics of an evaluation after a step; none if the run does not evaluate.

        If the reward or an engine fails, the row is recorded without them before the checkpoint is saved.
        """
        if not self._evaluates:
            return {}
        with phase("evaluation"), spend("evaluation"):
            if ahead := self._components.ahead:
                ahead.settle()
            try:
                with self._budget.measured(TimedPart.EVALUATION):
                    metrics = self._evaluator.metrics(self._components.batch_sampler, step)
                    if self._harness:
                        metrics |= self._harness.metrics(self._paths.evaluation(step), required=step == 0)
                return metrics | {EVALUATION_S: self._budget.last(TimedPart.EVALUATION)}
            except (EngineError, RewardError) as error:
                if row is not None:
                    self._record(step, row, result, judged=False)
                if isinstance(error, EngineError):
                    self._cancel_ahead()
                text = f"{error}\n{self._save_for_resuming(step)}"
                if isinstance(error, EngineError):
                    raise EngineError(text, code=error.code) from error
                raise RewardFailureRateError(text) from error

    def _save(self, step: int, *, has_extra: bool = False) -> None:
        self._checkpoints.save(step, self.reporter, has_extra=has_extra)

    def _save_for_resuming(self, step: int, corrected: str = "") -> str:
        """Save a checkpoint of a step, wait until it is written, and return how to resume from it."""
        self._save(step)
        if step > 0:
            self._checkpoints.flush()
        return how_to_resume(self._paths.root, step, corrected)

    def _find_time_is_up(self, step: int) -> str | None:
        """Return the reason why the run has no time for the step after this one; None if it has."""
        if self._config.training.max_hours is None or step >= self.max_steps:
            return None
        return self._processes.from_first(self._budget.reason_to_stop)

    def _end_early(self, step: int) -> None:
        """Save, and say how a run without time for another step continues."""
        self._save(step)
        self._opened.attempt.stopped = f"stopped by training.max_hours after step {step} of {self.max_steps}"
        how = how_to_resume(self._paths.root, step)
        if step > 0:
            how += f"\nor continue it, or a copy of it, in a new directory:\n  {continue_command(self._paths.root)}"
        _LOGGER.info("the run stops after step %d of %d: %s. %s", step, self.max_steps, self._out_of_time, how)

    def _stop_if_asked(self, step: int) -> None:
        # A signal to any process stops all of them after the same step.
        signals = self._processes.gather(self._opened.stop.signal_number)
        number = next((signal for signal in signals if signal is not None), None)
        if number is not None and step < self.max_steps:
            self._cancel_ahead()
            raise Interrupted(f"stopped by signal {number} after step {step}. {self._save_for_resuming(step)}", number)

    def _cancel_ahead(self) -> None:
        # A run that must stop has no time to wait for the completions of later steps, or no engine that samples them.
        if ahead := self._components.ahead:
            ahead.cancel()

    def _stop_not_finite(self, step: int, outcome: StepOutcome) -> None:
        # If no update of this step was applied, the weights are those of the step before.
        reached = step if outcome.updates_applied else step - 1
        raise NonFiniteUpdateError(
            f"step {step}: the loss is {outcome.loss} and the gradient norm {outcome.grad_norm}; the weights were "
            "not updated with it. Lower optimizer.learning_rate, set model.dtype=float32, or check for extreme "
            f"rewards. {self._save_for_resuming(reached)}"
        )

    def _stop_if_mismatched(self, step: int, row: Mapping[str, Any]) -> None:
        if self._config.engine.name == "none":
            return
        if reason := self._processes.from_first(lambda: self._mismatch.observe(row)):
            raise EngineError(f"step {step}: {reason}. {self._save_for_resuming(step)}", code="engine_mismatch")

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
