"""Callbacks and logs of TRL during a run: `TrainerCallback` objects, `state` and `state.log_history`."""

import logging
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_tunix.tracking.callbacks import Callback, TrainingState
from agent_tunix.tracking.metrics_file import read_rows
from agent_tunix.trl.config import GRPOConfig
from agent_tunix.trl.settings import BatchPlan

_LOGGER = logging.getLogger("agent_tunix.trl")

# Name in TRL → name here. Those of reward functions and their components are made from theirs.
_NAMES = {
    "loss": "policy/loss",
    "grad_norm": "policy/grad_norm",
    "completions/mean_length": "completions/length_mean",
    "completions/min_length": "completions/length_min",
    "completions/max_length": "completions/length_max",
    "completions/clipped_ratio": "completions/clipped_share",
    "completions/mean_terminated_length": "completions/ended_length_mean",
    "completions/min_terminated_length": "completions/ended_length_min",
    "completions/max_terminated_length": "completions/ended_length_max",
    "tools/call_frequency": "tools/calls_mean",
    "tools/failure_frequency": "tools/failure_share",
    "frac_reward_zero_std": "rewards/dead_groups",
    "entropy": "policy/entropy",
    "entropy_coef": "policy/entropy_coefficient",
    "step_time": "time/step_s",
}
_CLIPPED = {
    "clip_ratio/low_mean": "policy/clip_share_low",
    "clip_ratio/high_mean": "policy/clip_share_high",
    "clip_ratio/region_mean": "policy/clip_share",
}
# What TRL logs of the clipping, by `loss_type`; other losses have the names of `_CLIPPED`.
_CLIPPED_OF_LOSS = {"sapo": {}, "cispo": {"cispo_clip_ratio": "policy/clip_share_high"}}
_UNHEEDED = {"should_evaluate": "eval_steps", "should_save": "save_steps", "should_epoch_stop": "num_train_epochs"}
_UNCALLED = (
    *("on_init_end", "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end"),
    *("on_prediction_step", "on_predict", "on_push_begin"),
)


@dataclass
class LoggedState:
    """The state of the training, with the names of transformers' `TrainerState`; steps count updates."""

    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 0
    num_train_epochs: int = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    num_input_tokens_seen: int = 0
    is_hyper_param_search: bool = False
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True


@dataclass
class TrainerControl:
    """Requests of callbacks; `should_training_stop` and `should_log` are heeded."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False


class CallbackBridge(Callback):
    """The callback of a run that keeps a `LoggedState` and calls the callbacks of a trainer, in TRL's order.

    Args:
        args: Settings of the trainer.
        batches: BatchPlan of the run.
        callbacks: Objects with methods such as `on_log`.
        shared: Further arguments of every call.
        state: The state to keep.
    """

    def __init__(
        self,
        args: GRPOConfig,
        batches: BatchPlan,
        callbacks: Sequence[Any],
        shared: Mapping[str, Any],
        state: LoggedState,
    ) -> None:
        self._args, self._batches, self._callbacks, self._shared = args, batches, callbacks, shared
        self._state, self._control = state, TrainerControl()
        self._rows: list[Mapping[str, Any]] = []  # since the last log
        self._losses: list[float] = []
        self._evaluation: Mapping[str, Any] | None = None  # of the step that is not reported yet
        self._saved = self._in_step = False
        self._began = time.monotonic()
        self._completions = batches.size * (args.num_generations or 8)
        for callback in callbacks:
            _warn_of_uncalled(callback)

    def on_train_begin(self, state: TrainingState) -> None:
        """Begin."""
        self._state.max_steps = state.max_steps * self._batches.num_iterations
        self._state.num_train_epochs = math.ceil(state.max_steps / self._batches.per_epoch)
        self._reach(state.step)
        if state.step:  # of a run that resumes
            path = state.directory / "metrics.jsonl"
            rows = [row for row in read_rows(path) if row["step"] <= state.step] if path.is_file() else []
            self._state.num_input_tokens_seen = sum(row.get("completions/tokens", 0) for row in rows)
        self._call("on_train_begin", state)

    def on_step_begin(self, state: TrainingState) -> None:
        """Pass on, after the begin of an epoch."""
        self._in_step = True
        if state.step % self._batches.per_epoch == 0:
            self._call("on_epoch_begin", state)
        self._call("on_step_begin", state)

    def on_evaluate(self, state: TrainingState, metrics: Mapping[str, Any]) -> None:
        """Keep the figures, which TRL reports after those of the step."""
        if self._in_step or self._args.eval_on_start:
            self._evaluation = metrics
        if not self._in_step:
            self._report(state)

    def on_checkpoint(self, state: TrainingState) -> None:
        """Keep that there is a checkpoint, which TRL reports last."""
        self._saved = True
        if not self._in_step:
            self._report(state)

    def on_step(self, state: TrainingState, metrics: Mapping[str, Any]) -> None:
        """Report a step: its end, its figures, its evaluation and its checkpoint."""
        before = self._state.global_step
        self._reach(state.step)
        self._rows.append(metrics)
        self._state.num_input_tokens_seen += metrics.get("completions/tokens", 0)
        if metrics.get("policy/loss") is not None:
            self._losses.append(metrics["policy/loss"])
        self._call("on_step_end", state)
        if self._is_due(before) or self._control.should_log:
            figures = train_figures(self._rows, self._completions, self._args.loss_type)
            self._log(state, figures | {"num_tokens": self._state.num_input_tokens_seen})
            self._rows = []
        self._report(state)
        self._in_step = False
        if state.step % self._batches.per_epoch == 0:
            self._call("on_epoch_end", state)

    def on_train_end(self, state: TrainingState) -> None:
        """Log the totals, and end; an epoch that is not complete ends too."""
        if state.step % self._batches.per_epoch:
            self._call("on_epoch_end", state)
        seconds = time.monotonic() - self._began
        totals = {
            "train_runtime": seconds,
            "train_samples_per_second": self._completions * len(self._losses) / seconds,
            "train_steps_per_second": len(self._losses) * self._batches.num_iterations / seconds,
            "train_loss": sum(self._losses) / len(self._losses) if self._losses else None,
        }
        self._log(state, totals)
        self._call("on_train_end", state)

    def _reach(self, step: int) -> None:
        self._state.global_step = step * self._batches.num_iterations
        self._state.epoch = step / self._batches.per_epoch

    def _is_due(self, before: int) -> bool:
        step, strategy = self._state.global_step, self._args.logging_strategy
        if strategy == "no":
            return False
        if self._args.logging_first_step and before == 0:
            return True
        if strategy == "epoch":
            return step // self._batches.num_iterations % self._batches.per_epoch == 0
        every = self._args.logging_steps
        every = math.ceil(every * self._state.max_steps) if every < 1 else int(every)
        return step // every > before // every

    def _log(self, state: TrainingState, logs: dict[str, Any]) -> None:
        logs["epoch"] = self._state.epoch
        self._state.log_history.append({**logs, "step": self._state.global_step})
        self._control.should_log = False
        self._call("on_log", state, logs=logs)

    def _report(self, state: TrainingState) -> None:
        if self._evaluation is not None:
            figures, self._evaluation = evaluation_figures(self._evaluation), None
            self._log(state, dict(figures))
            self._call("on_evaluate", state, metrics=figures)
            self._keep_best(figures)
        if self._saved:
            self._saved = False
            self._call("on_save", state)

    def _keep_best(self, figures: Mapping[str, Any]) -> None:
        name = f"eval_{str(self._args.metric_for_best_model or 'reward').removeprefix('eval_')}"
        value, best = figures.get(name), self._state.best_metric
        sign = -1 if self._args.greater_is_better is False else 1
        if value is not None and (best is None or sign * value > sign * best):
            self._state.best_metric, self._state.best_global_step = value, self._state.global_step

    def _call(self, event: str, state: TrainingState, **figures: Any) -> None:
        for callback in self._callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                self._control = (
                    method(self._args, self._state, self._control, **self._shared, **figures) or self._control
                )
        if self._control.should_training_stop:
            state.stop("a callback set control.should_training_stop")
        for name, instead in _UNHEEDED.items():
            if getattr(self._control, name):
                setattr(self._control, name, False)
                _LOGGER.warning("control.%s of a callback has no effect here; set GRPOConfig.%s", name, instead)


def _warn_of_uncalled(callback: Any) -> None:
    """Warn of methods that transformers calls and this package does not; a base class has them all, empty."""
    methods = {name: getattr(type(callback), name, None) for name in _UNCALLED}
    own = [name for name, one in methods.items() if one and not one.__qualname__.startswith("TrainerCallback.")]
    if own:
        _LOGGER.warning("callback %s: %s is never called here", type(callback).__name__, ", ".join(own))


def train_figures(rows: Sequence[Mapping[str, Any]], count: int, loss_type: str = "dapo") -> dict[str, Any]:
    """Return the means of some steps under TRL's names, and the last learning rate; None for an unknown figure.

    Args:
        rows: The rows of the steps, of `metrics.jsonl`.
        count: Completions of a step, with which standard deviations become unbiased.
        loss_type: The field of `GRPOConfig`.
    """
    clipped = _CLIPPED_OF_LOSS.get(loss_type, _CLIPPED)
    names = {name: own for name, own in (_NAMES | clipped).items() if any(own in row for row in rows)}
    names |= {"kl": "policy/kl"} if any(row.get("policy/kl") is not None for row in rows) else {}
    names |= {"reward": "rewards/total/mean", "reward_std": "rewards/total/std"}
    parts = {own.split("/")[1] for row in rows for own in row if own.startswith("rewards/") and own.endswith("/weight")}
    names |= {own: own for part in parts for own in (f"rewards/{part}/mean", f"rewards/{part}/std")}
    names |= {own.split("/", 3)[3]: own for row in rows for own in row if re.match("rewards/[^/]*/logged/", own)}
    figures = {name: _mean([row.get(own) for row in rows]) for name, own in names.items()}
    unbiased = math.sqrt(count / max(count - 1, 1))
    figures |= {
        name: value * unbiased
        for name, value in figures.items()
        if name.endswith(("/std", "reward_std")) and value is not None
    } | {"learning_rate": rows[-1].get("policy/learning_rate")}
    # Of single completions only this is known: none is clipped if no token is.
    bounds = {"clip_ratio/low_min": "clip_ratio/low_mean", "clip_ratio/high_max": "clip_ratio/high_mean"}
    return figures | {name: 0.0 if figures[own] == 0.0 else None for name, own in bounds.items() if own in figures}


def evaluation_figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of an evaluation under TRL's names; others begin with `eval_` too."""
    renamed = {name.replace("eval/", "eval_", 1): value for name, value in metrics.items()}
    return {"eval_reward": renamed.get("eval_rewards/total/mean"), **renamed}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
