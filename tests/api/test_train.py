"""Runs that are started from Python."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import agent_tunix
from agent_tunix.api.frames import to_frame
from agent_tunix.errors import ConfigError, RunDirectoryError
from agent_tunix.training.resuming import IN_PYTHON, resume_command
from tests.raising import raises
from tests.small_run import NUM_STEPS, SMALL_RUN

ROWS = [{"question": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(16)]


def shortness(response: str) -> float:
    return -len(response) / 100


class Log(agent_tunix.Callback):
    """Writes down what it is called with, and asks the run to stop after a step."""

    def __init__(self, last_step: int) -> None:
        self.last_step = last_step
        self.calls: list[tuple[str, int]] = []
        self.rewards: list[float] = []

    def on_train_begin(self, state: agent_tunix.TrainingState) -> None:
        self.calls.append(("begin", state.step))

    def on_evaluate(self, state: agent_tunix.TrainingState, metrics: Mapping[str, Any]) -> None:
        assert all(name.startswith("eval/") for name in metrics)
        self.calls.append(("evaluate", state.step))

    def on_checkpoint(self, state: agent_tunix.TrainingState) -> None:
        self.calls.append(("checkpoint", state.step))

    def on_step(self, state: agent_tunix.TrainingState, metrics: Mapping[str, Any]) -> None:
        self.calls.append(("step", state.step))
        self.rewards.append(metrics["rewards/total/mean"])
        if state.step == self.last_step:
            state.stop("enough")

    def on_train_end(self, state: agent_tunix.TrainingState) -> None:
        self.calls.append(("end", state.step))


@pytest.fixture(scope="module")
def log() -> Log:
    return Log(last_step=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, log: Log) -> agent_tunix.Run:
    directory = tmp_path_factory.mktemp("api") / "run"
    return agent_tunix.train(
        *SMALL_RUN, reward=shortness, data=ROWS, evaluation_data=ROWS[:4], directory=directory, callbacks=[log]
    )


@pytest.mark.slow
def test_callbacks_see_the_run_and_stop_it(run: agent_tunix.Run, log: Log) -> None:
    assert NUM_STEPS > 2
    assert log.calls == [
        ("begin", 0), ("evaluate", 0), ("step", 1), ("step", 2), ("checkpoint", 2), ("end", 2),
    ]  # fmt: skip
    assert list(run.metrics["rewards/total/mean"])[1:] == log.rewards


@pytest.mark.slow
def test_a_function_and_rows_are_names_and_files_of_the_configuration(run: agent_tunix.Run) -> None:
    assert run.config.training.reward_function == "shortness"
    assert Path(str(run.config.data.path)).is_relative_to(run.directory)
    assert Path(str(run.config.training.test_data_dir)).is_relative_to(run.directory)


@pytest.mark.slow
def test_a_taken_directory_keeps_its_rows(run: agent_tunix.Run) -> None:
    file = Path(str(run.config.data.path))
    before = file.read_bytes()
    with raises(RunDirectoryError, "directory_taken"):
        agent_tunix.train(*SMALL_RUN, data=ROWS[:2], directory=run.directory)
    assert file.read_bytes() == before


def test_an_unknown_key_is_an_exception() -> None:
    with raises(ConfigError, "invalid_override"):
        agent_tunix.train("training.batchsize=2")


@pytest.mark.parametrize(
    ("overrides", "callbacks"), [([["training.batch_size=2"]], []), ([], [print]), ([], [Log]), ([], Log(1))]
)
def test_arguments_of_other_types_are_refused_before_anything_is_written(
    overrides: Any, callbacks: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError):
        agent_tunix.train(*overrides, callbacks=callbacks, directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_frame_without_rows_has_columns() -> None:
    assert list(to_frame([], ["name", "severity"])) == ["name", "severity"]
    assert list(to_frame([{"step": 1}], ["step", "total"])["total"]) == [None]


def test_a_corrected_function_is_passed_again(tmp_path: Path) -> None:
    assert "reward=" not in resume_command(tmp_path, "reward")
    token = IN_PYTHON.set(True)
    try:
        assert resume_command(tmp_path).endswith(".resume()")
        assert ".resume(reward=" in resume_command(tmp_path, "reward")
    finally:
        IN_PYTHON.reset(token)


def test_a_setting_that_generate_does_not_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    with raises(ConfigError, "invalid_request", "'n'", "num_generations"):
        agent_tunix.open_run(tmp_path).generate("How many?", n=3)
    with raises(ConfigError, "invalid_request", "int"):
        agent_tunix.open_run(tmp_path).generate(3)  # type: ignore[arg-type]
