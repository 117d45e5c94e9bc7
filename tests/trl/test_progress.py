"""Callbacks, `state` and `log_history` of a trainer, from the events of a run."""

from pathlib import Path
from typing import Any

import pytest

from agent_tunix.tracking.callbacks import TrainingState
from agent_tunix.trl.config import GRPOConfig
from agent_tunix.trl.progress import CallbackBridge, LoggedState, evaluation_figures, train_figures
from agent_tunix.trl.settings import plan_batches

METRICS = {"policy/loss": 0.5, "policy/learning_rate": 1e-3, "rewards/total/mean": 1.0, "rewards/total/std": 0.5}
EVALUATION = {"eval/rewards/total/mean": 0.75, "eval/rewards/tags/mean": 0.5}


class Recorder:
    """Writes down the events that it is called with, in TRL's signature."""

    def __init__(self, stops_at: int | None = None) -> None:
        self.events: list[str] = []
        self.stops_at = stops_at

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)

        def note(args: Any, state: Any, control: Any, model: Any = None, **figures: Any) -> None:
            self.events.append(f"{event.removeprefix('on_')} {state.global_step}")
            control.should_training_stop = state.global_step == self.stops_at

        return note


def run(recorder: Recorder, steps: int = 4, **fields: Any) -> LoggedState:
    """Report a run that evaluates before step 1 and with step 2, and writes a checkpoint with it."""
    args = GRPOConfig("out", max_steps=steps, **fields)
    state, own = LoggedState(), TrainingState(Path("run"), steps)
    progress = CallbackBridge(args, plan_batches(args, 8), [recorder], {"model": None}, state)
    progress.on_train_begin(own)
    progress.on_evaluate(own, EVALUATION)
    for step in range(1, steps + 1):
        progress.on_step_begin(own)
        own.step = step
        if step == 2:
            progress.on_evaluate(own, EVALUATION)
            progress.on_checkpoint(own)
        progress.on_step(own, METRICS)
        if own.reason_to_stop:
            break
    progress.on_train_end(own)
    return state


def test_events_come_in_the_order_of_trl() -> None:
    recorder = Recorder()
    run(recorder, steps=2, logging_steps=2)
    assert recorder.events == [
        *("train_begin 0", "epoch_begin 0", "step_begin 0", "step_end 1", "step_begin 1", "step_end 2"),
        *("log 2", "log 2", "evaluate 2", "save 2", "epoch_end 2", "log 2", "train_end 2"),
    ]


def test_figures_have_the_names_of_trl() -> None:
    row = METRICS | {
        "completions/ended_length_mean": None,
        "policy/clip_share_low": 0.0,
        "policy/clip_share_high": 0.25,
        "policy/kl": None,
        "rewards/correct/logged/exact": 0.5,
    }
    figures = train_figures([row, row], 4)
    assert figures["completions/mean_terminated_length"] is None
    assert (figures["clip_ratio/low_min"], figures["clip_ratio/high_max"]) == (0.0, None)
    assert figures["exact"] == 0.5
    assert "kl" not in figures
    assert "cispo_clip_ratio" in train_figures([row], 4, "cispo")
    assert not [name for name in train_figures([row], 4, "sapo") if name.startswith("clip")]


def test_each_epoch_begins_and_ends() -> None:
    recorder = Recorder()
    run(recorder, steps=3, per_device_train_batch_size=32)
    epochs = ["epoch_begin 0", "epoch_end 2", "epoch_begin 2", "epoch_end 3"]
    assert [event for event in recorder.events if event.startswith("epoch")] == epochs


def test_a_method_that_is_never_called_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Optimizing(Recorder):
        def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    run(Optimizing())
    assert [record.getMessage() for record in caplog.records] == [
        "callback Optimizing: on_optimizer_step is never called here"
    ]


def test_a_callback_stops_the_run() -> None:
    recorder = Recorder(stops_at=3)
    assert run(recorder, steps=9).global_step == 3


def test_the_evaluation_before_training_is_logged_if_asked_for() -> None:
    state = run(Recorder(), eval_on_start=True)
    assert [row["step"] for row in state.log_history if "eval_reward" in row] == [0, 2]


@pytest.mark.parametrize(
    ("fields", "steps"),
    [
        ({"logging_steps": 2}, [2, 4]),
        ({"logging_steps": 3, "logging_first_step": True}, [1, 3]),
        ({"logging_steps": 0.25}, [1, 2, 3, 4]),
        ({"logging_strategy": "no"}, []),
        ({"logging_strategy": "epoch", "per_device_train_batch_size": 16}, [4]),
    ],
)
def test_figures_are_logged_when_trl_does(fields: dict[str, Any], steps: list[int]) -> None:
    assert [row["step"] for row in run(Recorder(), **fields).log_history if "reward" in row] == steps


def test_the_last_row_has_the_totals() -> None:
    last = run(Recorder()).log_history[-1]
    assert last["train_loss"] == 0.5
    assert {"train_runtime", "train_samples_per_second", "train_steps_per_second", "epoch", "step"} <= last.keys()


def test_the_best_evaluation_is_kept() -> None:
    state = run(Recorder(), load_best_model_at_end=True, metric_for_best_model="eval_rewards/tags/mean")
    assert (state.best_metric, state.best_global_step) == (0.5, 2)


def test_figures_are_means_under_the_names_of_trl() -> None:
    second = {**METRICS, "policy/loss": 1.5, "policy/learning_rate": 2e-3, "rewards/tags/weight": 1.0}
    figures = train_figures([{**METRICS, "rewards/tags/mean": None}, second | {"rewards/tags/mean": 0.25}], count=1)
    assert (figures["loss"], figures["learning_rate"], figures["reward"]) == (1.0, 2e-3, 1.0)
    assert figures["rewards/tags/mean"] == 0.25
    assert "kl" not in figures


def test_standard_deviations_are_unbiased_as_in_trl() -> None:
    assert train_figures([METRICS], count=2)["reward_std"] == pytest.approx(0.5 * 2**0.5)


def test_shares_of_groups_are_no_standard_deviations() -> None:
    assert train_figures([{**METRICS, "rewards/dead_groups": 1.0}], count=2)["frac_reward_zero_std"] == 1.0


def test_figures_of_evaluations_begin_with_eval() -> None:
    assert evaluation_figures(EVALUATION)["eval_reward"] == 0.75
    assert evaluation_figures(EVALUATION)["eval_rewards/tags/mean"] == 0.5
