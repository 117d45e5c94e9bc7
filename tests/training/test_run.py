"""Whole runs of the tiny model: what they leave behind, how they stop, and that resuming loses nothing.

The fixture `finished` is the unbroken run of four steps that most tests read or compare with.
"""

import copy
import json
import math
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.compose import compose_overrides, from_yaml
from agent_tunix.config.schema import Config, EvaluateConfig, RolloutsConfig
from agent_tunix.errors import (
    CheckpointError,
    ConfigError,
    NonFiniteUpdateError,
    RewardFailureRateError,
    RunDirectoryError,
)
from agent_tunix.evaluation.checkpoint import evaluate_checkpoint
from agent_tunix.evaluation.request import EvaluationRequest, read_request
from agent_tunix.overrides import assign
from agent_tunix.rewards import resolve_reward
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.trust import is_own_run
from agent_tunix.runs.weights.checkpoints import Checkpoints
from agent_tunix.tracking import StoredRun
from agent_tunix.tracking.rollouts import RolloutReader, RolloutWriter
from agent_tunix.training.resuming import describe_changes, tell_gaps
from agent_tunix.training.train import train
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.raising import raises
from tests.small_run import NUM_STEPS, SMALL_RUN
from tests.training.support import FINISHED, copy_run, train_config

# Runs the command `train`, and raises a signal in the main thread at the first call of a method of the trainer or the
# updater, or at the call for a step.
SIGNALLED = """
import signal, sys
from agent_tunix.cli import hydra_programs
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.grpo.updater import PolicyUpdater
name, step, number, *overrides = sys.argv[1:]
owner = GrpoTrainer if hasattr(GrpoTrainer, name) else PolicyUpdater
method = getattr(owner, name)
def signalled(self, *args):
    if step in ("first", str(args[0])):
        signal.raise_signal(int(number))
    return method(self, *args)
setattr(owner, name, signalled)
hydra_programs.train(overrides)
"""


def run_until_signal(root: Path, method: str, step: int | str, number: signal.Signals) -> tuple[int, str]:
    """Start a run like `finished` in a process of its own; return its exit status and its stderr."""
    overrides = [*SMALL_RUN, *FINISHED, "tracking.progress=none", assign("hydra.run.dir", str(root))]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, method, str(step), str(int(number)), *overrides],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=root.parent,
    )
    return done.returncode, done.stderr


def assert_same_run(expected: Path, found: Path) -> None:
    """All metrics but times, and all stored completions."""
    assert first_difference(read_rows(expected), read_rows(found)) is None
    assert first_rollout_difference(expected, found) is None


@pytest.fixture
def config(finished: Path) -> Config:
    return copy.deepcopy(from_yaml(finished / "config.yaml"))


def all_rows(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


def resume(root: Path, config: Config) -> str:
    """Go on with a run in this process; return what that added to its log."""
    before = (root / "train.log").read_text()
    config.training.resume = True
    train(preflight(config, root.parent), root)
    return (root / "train.log").read_text().removeprefix(before)


def test_a_killed_run_resumed_equals_an_unbroken_one(finished: Path, config: Config, tmp_path: Path) -> None:
    """The first test of this file, so that it pays for the fixture `finished`."""
    status, errors = run_until_signal(tmp_path / "run", "take_step", 4, signal.SIGKILL)
    assert status == -signal.SIGKILL, errors
    (tmp_path / "run").rename(tmp_path / "moved")
    assert not is_own_run(tmp_path / "moved")
    resume(tmp_path / "moved", config)
    assert_same_run(finished, tmp_path / "moved")
    assert is_own_run(tmp_path / "moved")


# What a run leaves behind.


def test_there_is_a_row_for_each_step_and_accuracy_where_it_is_due(finished: Path) -> None:
    first, *rows = all_rows(finished)
    assert [row["step"] for row in (first, *rows)] == [0, 1, 2, 3, 4]
    assert ["rewards/total/mean" in row for row in (first, *rows)] == [False, *[True] * NUM_STEPS]
    accuracies = {row["step"]: row["eval/accuracy"] for row in (first, *rows) if "eval/accuracy" in row}
    assert accuracies.keys() == {0, 2, 4}
    assert all(0 <= accuracy <= 1 for accuracy in accuracies.values())


def test_a_run_leaves_its_configuration_its_environment_and_its_log(finished: Path) -> None:
    assert from_yaml(finished / "config.yaml").training.num_batches == NUM_STEPS
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["versions"]["google-tunix"] == "0.1.7"
    assert "math_reward" in environment["reward"]
    assert "math_reward" in (finished / "train.log").read_text()
    names = {path.name for path in finished.iterdir() if not path.name.startswith(".")}
    assert sorted(names - {"findings.jsonl"}) == [  # Written with the first finding, of which such a run may have none.
        "checkpoints",
        "checkpoints.json",
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "rollouts",
        "status.json",
        "timings.json",
        "train.log",
    ]
    assert [path.name for path in finished.parent.iterdir()] == ["run"]
    assert is_own_run(finished)


def test_every_completion_of_every_step_is_stored(finished: Path) -> None:
    rollouts = StoredRun(finished).rollouts
    assert [file.name for file in sorted((finished / "rollouts").iterdir())] == [
        "step_000001-000002.parquet",  # with each checkpoint
        "step_000003-000004.parquet",
    ]
    assert rollouts.steps() == [1, 2, 3, 4]
    for stored, row in zip(rollouts.iterate(), all_rows(finished)[1:], strict=True):
        lengths = [sample.num_tokens for sample in stored.samples]
        assert [sample.rollout_id for sample in stored.samples] == [
            f"{stored.step}_{prompt}_{generation}" for prompt in range(4) for generation in range(4)
        ]
        assert np.mean(lengths) == row["completions/length_mean"]
        assert np.mean([score.value for score in stored.scores]) == pytest.approx(row["rewards/total/mean"])
        assert all(len(sample.tokens) == sample.num_tokens for sample in stored.samples)
        assert (stored.logprobs < 0).all()
        assert row["rollouts/dropped"] == 0


def test_stored_completions_give_their_totals_and_advantages_again_to_the_bit(finished: Path) -> None:
    run = StoredRun(finished)
    mixture = resolve_reward(run.config.training.reward_function, working_directory=finished)
    for stored in run.rollouts.iterate():
        again = mixture.score(stored.samples)
        assert [score.value for score in again] == [score.value for score in stored.scores]
        settings = stored.settings
        advantages = mixture.advantages(again, settings.num_generations, settings.advantage_scaling)
        assert np.array_equal(advantages.astype(np.float32), stored.advantages)
        assert settings.fingerprint == run.fingerprint["hash"]


def test_a_directory_that_holds_a_run_is_refused(finished: Path, config: Config) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    with raises(RunDirectoryError, "directory_taken", "training.resume=true"):
        train_config(config, finished)
    assert (finished / "metrics.jsonl").read_bytes() == before


def test_checkpoints_of_another_run_are_refused(finished: Path, config: Config, tmp_path: Path) -> None:
    config.training.checkpoint_dir = str(finished / "checkpoints")
    with raises(RunDirectoryError, "directory_taken"):
        train_config(config, tmp_path / "run")


def request(run: Path, **asked: Any) -> EvaluationRequest:
    return read_request(EvaluateConfig(checkpoint_dir=str(run), **asked))


def test_the_directory_of_a_run_or_of_its_checkpoints_names_the_run(finished: Path, tmp_path: Path) -> None:
    assert request(finished).root == request(finished / "checkpoints").root == finished
    with raises(ConfigError, "invalid_run_config"):
        request(tmp_path)


# The same run again.


@pytest.mark.slow
def test_the_same_seed_gives_the_same_metrics_whatever_is_logged_beside(
    finished: Path, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.training.log_rewards = True
    config.training.log_level = "debug"
    config.training.save_reward_analysis = True
    config.tracking.report = True
    config.tracking.progress = "plain"
    rows = train_config(config, tmp_path / "run")
    assert first_difference(read_rows(finished), rows) is None
    log = (tmp_path / "run" / "train.log").read_text()
    for step in range(1, NUM_STEPS + 1):
        assert len(re.findall(rf"^ *{step}_\d+_\d+  ", log, re.MULTILINE)) == 16  # every completion
    assert re.search(r"DEBUG.*1_0_0: scored", log)
    analysis = json.loads((tmp_path / "run" / "reward_analysis.json").read_text())
    assert analysis["covers"] == {"steps": NUM_STEPS, "completions": NUM_STEPS * 16, "share_stored": 1.0}
    assert (tmp_path / "run" / "report.html").stat().st_size > 50_000
    printed = capsys.readouterr().out
    assert re.search(r"accuracy +\d+\.\d % +\d+\.\d %", printed)
    assert str(tmp_path / "run" / "metrics.jsonl") in printed.replace("\n", "")


# Tells completions apart in one step alone, and otherwise only by rounding.
ONLY_AT_STEP_TWO = """
def reward(response, step):
    return float(len(response)) if step == 2 else (0.1 + 0.2 if len(response) % 2 else 0.3)
"""


@pytest.mark.slow
def test_steps_without_an_advantage_are_skipped_and_resumed_bit_for_bit(config: Config, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ONLY_AT_STEP_TWO)
    config.training.reward_function = str(tmp_path / "mine.py")
    config.training.micro_batch_size = 2
    config.grpo.num_iterations = 2
    config.training.save_interval_steps = 1
    config.training.max_checkpoints_to_keep = 4
    config.training.eval_every_n_steps = 0
    config.evaluation.num_samples = 0
    rows = train_config(config, tmp_path / "run")
    assert [row["policy/updates"] for row in rows] == [0, 2, 0, 0]
    assert [row["policy/updates_skipped"] for row in rows] == [2, 0, 2, 2]
    assert [row["rewards/dead_groups"] for row in rows] == [1.0, rows[1]["rewards/dead_groups"], 1.0, 1.0]
    assert rows[0]["policy/update_norm"] is None
    assert rows[2]["policy/kl"] > 0
    resumed = copy_run(tmp_path / "run", tmp_path / "resumed", without=4)
    shutil.rmtree(resumed / "checkpoints" / "step_000003")
    resume(resumed, config)
    assert_same_run(tmp_path / "run", resumed)


# Resuming.


@pytest.mark.slow
def test_resuming_starts_afresh_and_knows_a_reward_by_another_path(config: Config, tmp_path: Path) -> None:
    """A row that a killed run left before its first checkpoint is replaced."""
    here, there, root = tmp_path / "here", tmp_path / "there", tmp_path / "run"
    for directory in (here, there, root):
        directory.mkdir()
    (here / "mine.py").write_text("def long(response):\n    return float(len(response))\n")
    (root / "metrics.jsonl").write_text('{"step": 0, "eval/accuracy": 0.9}\n{"step": 1, "rewa')
    (root / "train.log").touch()
    config.training.resume = True
    config.training.num_batches = 2
    config.training.reward_function = "mine.py:long"
    train(preflight(config, here), root)
    rows = read_rows(root)
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert rows[0]["eval/accuracy"] != 0.9
    config.training.reward_function = "../here/mine.py:long"
    before = (root / "train.log").read_text()
    train(preflight(config, there), root)
    log = (root / "train.log").read_text().removeprefix(before)
    assert "resumed from the checkpoint of step 2" in log
    assert "WARNING" not in log
    assert read_rows(root) == rows


@pytest.mark.slow
def test_resuming_falls_back_from_a_damaged_checkpoint(finished: Path, config: Config, tmp_path: Path) -> None:
    """A file of rollouts has steps from both sides of the checkpoint, as if the kill had come before that was saved."""
    root = copy_run(finished, tmp_path / "run")
    for file in (root / "rollouts").iterdir():
        file.unlink()
    first, *others = RolloutReader(finished / "rollouts").iterate()
    for part in ([first], others):
        with RolloutWriter(root / "rollouts", RolloutsConfig(), seed=0) as writer:
            for stored in part:
                writer.write(stored)
    assert first_rollout_difference(finished, root) is None
    (root / "checkpoints" / "step_000004" / "manifest.json").write_text("")
    assert "trying the previous one" in resume(root, config)
    assert_same_run(finished, root)
    assert Checkpoints(root / "checkpoints", 2).steps() == [2, 4]
    assert sorted(path.name for path in (root / "rollouts").iterdir()) == [
        "step_000001-000001.parquet",
        "step_000002-000002.parquet",
        "step_000003-000004.parquet",
    ]


@pytest.mark.slow
def test_resuming_tells_of_lost_rows_and_of_other_settings(finished: Path, config: Config, tmp_path: Path) -> None:
    root = copy_run(finished, tmp_path / "run")
    lines = (root / "metrics.jsonl").read_text().splitlines(keepends=True)
    (root / "metrics.jsonl").write_text(lines[1] + lines[4])
    config.seed = 5
    config.prompt.system = "Give the answer between <answer> and </answer>."
    log = resume(root, config)
    assert "lacks rows of steps before the checkpoint of step 4: 0, 2 to 3." in log
    assert "seed was 0 and is now 5" in log
    assert "the prompts have other tokens than before" in log
    assert (root / "metrics.jsonl").read_text() == lines[1] + lines[4]


def test_a_run_without_evaluations_has_no_row_before_its_first_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n')
    tell_gaps(tmp_path / "metrics.jsonl", 2, first=1)
    assert caplog.records == []
    tell_gaps(tmp_path / "metrics.jsonl", 2, first=0)
    assert "before the checkpoint of step 2: 0." in caplog.text


def test_a_finished_run_without_steps_left_stays_as_it_is(finished: Path, config: Config, tmp_path: Path) -> None:
    root = copy_run(finished, tmp_path / "run")
    config.grpo.beta = 0.5
    assert "no step is left" in resume(root, config)
    for file in filter(Path.is_file, root.rglob("*")):
        if file.name != "train.log":
            assert file.read_bytes() == (finished / file.relative_to(root)).read_bytes(), file


def test_changed_settings_are_named_up_to_eight() -> None:
    changed = Config()
    changed.grpo.beta, changed.rewards.args = 0.5, {"close": {"limit": 1}}
    assert describe_changes(changed, changed) == []
    assert set(describe_changes(Config(), changed)) == {
        f"grpo.beta was {Config().grpo.beta} and is now 0.5",
        "rewards.args.close.limit was not set and is now 1",
    }
    changed.rewards.args = {f"reward_{number}": {"limit": 1} for number in range(9)}
    assert describe_changes(Config(), changed)[8:] == ["and 2 more"]


@pytest.mark.slow
def test_resuming_on_other_rows_leaves_the_run_finished(finished: Path, config: Config, tmp_path: Path) -> None:
    root = copy_run(finished, tmp_path / "run")
    before = (root / "status.json").read_bytes()
    config.training.resume = True
    config.seed, config.training.train_fraction = 5, 0.5
    with raises(CheckpointError, "checkpoint_mismatch", "resume with seed=0"):
        train_config(config, root)
    assert (root / "status.json").read_bytes() == before


# Stopping.


@pytest.mark.slow
def test_sigint_saves_and_prints_a_command_that_loses_nothing(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "Größe 1"
    status, errors = run_until_signal(root, "take_step", 3, signal.SIGINT)
    assert status == 130, errors
    saved = re.search(r"after step 3\. The checkpoint of step 3 is saved; resume with:\n(.*)", errors)
    assert saved, errors
    assert Checkpoints(root / "checkpoints", 2).steps() == [2, 3]
    program, command, *overrides = shlex.split(saved[1])
    assert (program, command) == ("agent-tunix", "train")
    overrides.remove(assign("hydra.run.dir", str(root)))
    train_config(compose_overrides(overrides), root)
    assert_same_run(finished, root)


@pytest.mark.slow
def test_on_failure_raise_stops_at_the_first_failure_with_a_checkpoint(config: Config, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def flaky(response, step):\n    return len(response) / (step < 2)\n")
    config.training.reward_function = "mine.py:flaky"
    config.training.save_interval_steps = 0
    config.rewards.on_failure = "raise"
    with raises(RewardFailureRateError, "reward_failure_rate") as caught:
        train_config(config, tmp_path / "run")
    assert "completion 2_0_0 is unscored" in str(caught.value)
    assert "checkpoint of step 1 is saved" in str(caught.value)
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [1]
    assert [row["step"] for row in read_rows(tmp_path / "run")] == [0, 1]


@pytest.mark.slow
def test_an_update_that_is_not_finite_stops_the_run_with_a_checkpoint_before_it(config: Config, tmp_path: Path) -> None:
    config.optimizer.learning_rate = 1e30
    config.optimizer.warmup_ratio = 0.0
    config.training.eval_every_n_steps = 0
    config.training.save_interval_steps = 0
    config.training.reward_function = "conciseness"
    with raises(NonFiniteUpdateError, "non_finite_update") as caught:
        train_config(config, tmp_path / "run")
    assert re.search(r"(?s)step 2: the loss is .* norm nan.*checkpoint of step 1 is saved", str(caught.value))
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [1]


@pytest.mark.slow
def test_the_largest_scores_train_without_scaling(config: Config, tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(
        "import zlib\n"
        "from agent_tunix.rewards.sample import LARGEST_VALUE\n"
        "def reward(response):\n    return LARGEST_VALUE * (-1) ** zlib.crc32(response.encode())\n"
    )
    config.grpo.advantage_scaling = "none"
    config.training.eval_every_n_steps = 0
    config.training.num_batches = 2
    config.training.reward_function = f"{tmp_path}/large.py:reward"
    rows = train_config(config, tmp_path / "run")
    assert all(0 < row["policy/grad_norm"] < math.inf for row in rows if "policy/grad_norm" in row)
    assert rows[-1]["step"] == 2


@pytest.mark.slow
def test_bad_references_give_no_accuracy(config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, answer in (("train", "4"), ("test", "?")):
        row = json.dumps({"question": "What is 2 plus 2?", "answer": answer})
        (tmp_path / f"{split}.jsonl").write_text(f"{row}\n" * 16)
    config.data.source, config.data.path = "jsonl", str(tmp_path)
    config.tracking.progress = "plain"
    config.training.num_batches = 1
    rows = train_config(config, tmp_path / "run")
    evaluations = [row for row in rows if "eval/num_problems" in row]
    assert all(row["eval/accuracy"] is None and row["eval/num_unscored"] == 16 for row in evaluations)
    # The reward of the run measures instead, and cannot use these references either.
    assert [row["eval/rewards/total/mean"] for row in evaluations] == [None] * 2
    assert [row["eval/rewards/num_unscored"] for row in evaluations] == [16] * 2
    assert "math can use 0 of the 16 references" in (tmp_path / "run" / "train.log").read_text()
    assert re.search(r"\nheld-out reward +n/a +n/a +n/a\n", capsys.readouterr().out)


# Evaluating afterwards.


def measure(run: Path, output: Path, **asked: Any) -> dict[str, Any]:
    evaluate_checkpoint(request(run, output=str(output), **asked))
    measured: dict[str, Any] = json.loads(output.read_text())
    return measured


@pytest.mark.slow
@pytest.mark.parametrize("step", [None, 0])
def test_evaluating_a_checkpoint_gives_the_figures_of_its_row(finished: Path, tmp_path: Path, step: int | None) -> None:
    measured = measure(finished, tmp_path / "found.json", step=step)
    row = all_rows(finished)[-1 if step is None else step]
    assert measured["step"] == row["step"]
    assert {name: measured[name] for name in row if name.startswith("eval/")} == {
        name: value for name, value in row.items() if name.startswith("eval/")
    }
