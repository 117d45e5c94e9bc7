"""Runs with `training.max_hours`: they end within it, with all that a finished run has."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.evaluation.evaluate import Evaluator
from agent_tunix.runs.preflight import ValidatedConfig, preflight
from agent_tunix.runs.time_budget import TimeBudget, TimedPart
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.tracking.outcome import RunStatus, read_outcome
from agent_tunix.training import session as session_module
from agent_tunix.training.components import TrainingComponents, build_components
from agent_tunix.training.opening import open_run
from agent_tunix.training.resuming import GRPO
from agent_tunix.training.session import RunSession, StepOutcome
from tests.training.support import small_run

STEPS = 320


class Clock:
    """A clock that only the test advances, and the durations of what the session does."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self._random = random.Random(seed)
        self._scale = {
            TimedPart.STEP: self._random.uniform(1, 100),
            TimedPart.EVALUATION: self._random.uniform(1, 300),
            TimedPart.REPORT: 2.0,
        }

    def spend(self, part: TimedPart) -> None:
        """Let a part take between half and twice its usual time."""
        self.now += self._scale[part] * self._random.uniform(0.5, 2)

    def budget_s(self) -> float:
        """Return the seconds of a budget for the start of a process, some steps and an end."""
        steps = self._random.randint(10, 50)
        return 200 + steps * self._scale[TimedPart.STEP] + 8 * self._scale[TimedPart.EVALUATION]


@pytest.fixture(scope="module")
def parts() -> tuple[ValidatedConfig, TrainingComponents]:
    overrides = ("training.num_batches=16", "training.num_epochs=20", "training.eval_every_n_steps=7")
    validated = preflight(small_run(*overrides, "training.save_interval_steps=0", "tracking.report=true"), Path.cwd())
    return validated, build_components(validated.config)


def take_steps(
    clock: Clock, validated: ValidatedConfig, components: TrainingComponents, root: Path, monkeypatch: Any
) -> int:
    """Run a session whose steps, evaluations and report only let the clock go on; return the last step."""

    def evaluate(*_: Any) -> dict[str, Any]:
        clock.spend(TimedPart.EVALUATION)
        return {"eval/accuracy": 0.5, "eval/num_problems": 16}

    def report(*_: Any) -> dict[str, Path]:
        clock.spend(TimedPart.REPORT)
        return {}

    monkeypatch.setattr(Evaluator, "metrics", evaluate)
    monkeypatch.setattr(session_module, "report", report)
    monkeypatch.setattr(session_module, "TimeBudget", lambda hours: TimeBudget(hours, lambda: clock.now))
    step = 0
    with open_run(validated, root, ()) as opened:
        session = RunSession(GRPO, opened.validated, opened, components)
        with session.open():
            for step in session.steps():
                with session.learning():
                    clock.spend(TimedPart.STEP)
                session.finish_step(step, StepOutcome({"time/step_s": 1.0}, True, 1, 0.0, 0.0))
        session.conclude()
    return step


@pytest.mark.parametrize("seed", range(20))
def test_a_run_ends_within_its_hours_with_all_that_a_finished_one_has(
    seed: int,
    parts: tuple[ValidatedConfig, TrainingComponents],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, (validated, components) = Clock(seed), parts
    clock.now, budget_s = 30.0, clock.budget_s()
    validated.config.training.max_hours = budget_s / 3600
    last = take_steps(clock, validated, components, tmp_path / "run", monkeypatch)
    assert 0.4 * budget_s < clock.now <= budget_s
    assert 0 < last < STEPS
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == last
    assert rows[-1]["eval/accuracy"] == 0.5
    assert Checkpoints(tmp_path / "run" / "checkpoints", 1).steps() == [last]
    outcome = read_outcome(tmp_path / "run")
    assert outcome.status is RunStatus.STOPPED
    assert outcome.detail == f"stopped by training.max_hours after step {last} of {STEPS}"
    assert "training.continue_from=" in (tmp_path / "run" / "train.log").read_text()


def test_a_budget_that_is_over_before_the_first_step_ends_the_run_without_one(
    parts: tuple[ValidatedConfig, TrainingComponents], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, (validated, components) = Clock(0), parts
    clock.now, validated.config.training.max_hours = 3600.0, 1.0
    assert take_steps(clock, validated, components, tmp_path / "run", monkeypatch) == 0
    assert read_outcome(tmp_path / "run").status is RunStatus.STOPPED


def test_a_budget_that_lasts_changes_nothing(
    parts: tuple[ValidatedConfig, TrainingComponents], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, (validated, components) = Clock(0), parts
    validated.config.training.max_hours = 1e6
    assert take_steps(clock, validated, components, tmp_path / "run", monkeypatch) == STEPS
    assert read_outcome(tmp_path / "run").status is RunStatus.FINISHED


# An hour, of which the end of the process takes a hundredth, and nothing but steps takes anything else.
REST_S = 3600.0 - 36.0


def budget_at(age_s: float) -> TimeBudget:
    budget = TimeBudget(1.0, lambda: age_s)
    for part in set(TimedPart) - {TimedPart.STEP, TimedPart.END}:
        budget.expect(part, 0.0)
    return budget


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (
            [600, 10],
            25,
        ),  # the first step compiles; after one more measurement, that much and half as much is in reserve
        ([600, 10, 12], 21),
        ([600, *[10.0] * 50], 11),
        ([600], 1500),
        ([], 360),
    ],
)
def test_the_longest_time_so_far_and_a_reserve_are_expected(times: list[float], expected: float) -> None:
    for age_s, stops in ((REST_S - expected - 0.01, False), (REST_S - expected + 0.01, True)):
        budget = budget_at(age_s)
        budget.remember(TimedPart.STEP, times)
        assert (budget.reason_to_stop() is not None) is stops


def test_without_a_limit_there_is_always_time() -> None:
    assert TimeBudget(None, lambda: 1e9).reason_to_stop() is None
