"""Whole runs of the tiny model: what they leave behind, how they stop, and that resuming loses nothing.

One run of four steps in a process of its own is what most tests compare with; others run in this process. Programs that
XLA compiled are kept in a directory of the session.
"""

import copy
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.compose import from_yaml
from agent_tunix.config.schema import Config, RolloutsConfig
from agent_tunix.errors import (
    CheckpointError,
    ConfigError,
    NonFiniteUpdateError,
    RewardFailureRateError,
    RunDirectoryError,
)
from agent_tunix.rewards import resolve_reward
from agent_tunix.tracking import StoredRun
from agent_tunix.tracking.rollouts import RolloutReader, RolloutWriter
from agent_tunix.training.checkpoint_evaluation import evaluate_checkpoint
from agent_tunix.training.checkpoints import Checkpoints
from agent_tunix.training.evaluation_request import Request, read_request
from agent_tunix.training.preflight import preflight
from agent_tunix.training.run import train
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows, verify
from tests.small_run import NUM_STEPS, SMALL_RUN

SMALL = [
    *SMALL_RUN,
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=2",
    "tracking.progress=plain",
]
METRICS = {
    *(f"rewards/{of}/{what}" for of in ("total", "math") for what in ("mean", "std", "min", "max", "histogram")),
    "rewards/math/weight",
    *(f"rewards/outcomes/{outcome}" for outcome in ("scored", "not_applicable", "bad_reference", "error", "timeout")),
    "rewards/dead_groups",
    "advantages/std",
    *(f"completions/{what}" for what in ("length_mean", "length_max", "clipped_share", "distinct_share")),
    *(
        f"policy/{what}"
        for what in ("loss", "kl", "clip_share", "entropy", "grad_norm", "update_norm", "update_ratio", "learning_rate")
    ),
    *(f"time/{what}_s" for what in ("rollout", "reward", "update", "step")),
    *(f"throughput/{what}_per_s" for what in ("tokens", "samples")),
}


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "agent_tunix", "train", *SMALL, *overrides]


def run_command(arguments: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=cwd, timeout=300)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of four steps, made by the command."""
    root = tmp_path_factory.mktemp("finished") / "run"
    done = run_command(command(f"hydra.run.dir={root}"), root.parent)
    assert done.returncode == 0, done.stderr
    (root.parent / "stdout").write_text(done.stdout)
    return root


@pytest.fixture
def config(finished: Path) -> Config:
    return copy.deepcopy(from_yaml(finished / "config.yaml"))


@pytest.fixture
def resumed(finished: Path, config: Config, tmp_path: Path) -> tuple[Config, Path]:
    """A copy of the finished run, and its configuration with resuming on."""
    shutil.copytree(finished, tmp_path / "run")
    config.training.resume = True
    return config, tmp_path / "run"


def train_here(config: Config, root: Path) -> list[dict[str, Any]]:
    """Train in this process; the rows, without timings."""
    train(preflight(config, root.parent), root)
    return read_rows(root)


def all_rows(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


# What a run leaves behind.


def test_there_is_a_row_for_the_evaluation_before_and_one_for_each_batch(finished: Path) -> None:
    rows = all_rows(finished)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["step"] for row in rows if "rewards/total/mean" in row] == [1, 2, 3, 4]


def test_accuracy_stands_in_the_first_row_in_the_last_and_where_it_is_due(finished: Path) -> None:
    accuracies = {row["step"]: row["eval/accuracy"] for row in all_rows(finished) if "eval/accuracy" in row}
    assert accuracies.keys() == {0, 2, 4}
    assert all(0 <= accuracy <= 1 for accuracy in accuracies.values())


def test_every_metric_of_the_design_is_in_every_row_of_a_batch(finished: Path) -> None:
    for row in all_rows(finished)[1:]:
        assert METRICS - row.keys() == set()


def test_a_run_leaves_its_configuration_its_surroundings_and_its_log(finished: Path) -> None:
    assert from_yaml(finished / "config.yaml").training.num_batches == NUM_STEPS
    environment = json.loads((finished / "environment.json").read_text())
    assert environment["versions"]["google-tunix"] == "0.1.7"
    assert "math_reward" in environment["reward"]
    assert "math_reward" in (finished / "train.log").read_text()
    names = {path.name for path in finished.iterdir() if not path.name.startswith(".")}
    assert sorted(names - {"findings.jsonl"}) == [  # Written with the first finding, of which such a run may have none.
        "checkpoints",
        "config.yaml",
        "environment.json",
        "metrics.jsonl",
        "rollouts",
        "status.json",
        "timings.json",
        "train.log",
    ]


def test_a_run_ends_with_before_against_after_and_where_everything_lies(finished: Path) -> None:
    printed = (finished.parent / "stdout").read_text()
    assert re.search(r"accuracy +\d+\.\d % +\d+\.\d %", printed)
    assert str(finished / "metrics.jsonl") in printed.replace("\n", "")


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


def test_what_a_reward_logs_is_stored_with_its_completion(tmp_path: Path) -> None:
    (tmp_path / "telling.py").write_text(
        "import logging\n"
        "def telling(response):\n"
        "    logging.getLogger('mine').warning('seen %r', response)\n"
        "    return len(response)\n"
    )
    overrides = ["training.reward_function=telling.py:telling", "training.num_batches=1"]
    done = run_command(command(*overrides, "hydra.run.dir=run"), tmp_path)
    assert done.returncode == 0, done.stderr
    (stored,) = StoredRun(tmp_path / "run").rollouts.iterate()
    for sample, score in zip(stored.samples, stored.scores, strict=True):
        assert score.extras["telling"]["log"] == f"WARNING seen {sample.response!r}\n"


def test_weights_and_biases_is_not_started(finished: Path) -> None:
    assert not list(finished.parent.rglob("*wandb*"))


def test_the_same_seed_gives_the_same_metrics_whatever_is_logged_beside(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    """In another process, with every kind of logging on; what they promise is there."""
    config.training.log_rewards = True
    config.training.log_level = "debug"
    config.training.save_reward_analysis = True
    config.tracking.report = True
    rows = train_here(config, tmp_path / "run")
    assert first_difference(read_rows(finished), rows) is None
    log = (tmp_path / "run" / "train.log").read_text()
    for step in range(1, NUM_STEPS + 1):
        assert log.count(f"step {step} {step}_") == 16  # every completion
    assert re.search(r"DEBUG.*1_0_0: scored", log)
    analysis = json.loads((tmp_path / "run" / "reward_analysis.json").read_text())
    assert analysis["covers"] == {"steps": NUM_STEPS, "completions": NUM_STEPS * 16, "share_stored": 1.0}
    assert (tmp_path / "run" / "report.html").stat().st_size > 50_000


def test_another_seed_gives_other_metrics(finished: Path, config: Config, tmp_path: Path) -> None:
    config.seed = 1
    config.training.eval_every_n_steps = 0
    found, expected = train_here(config, tmp_path / "run")[1], read_rows(finished)[1]
    assert found["policy/entropy"] != expected["policy/entropy"]


def test_neither_accumulation_nor_iterations_change_how_many_steps_there_are(config: Config, tmp_path: Path) -> None:
    config.training.micro_batch_size = 2
    config.grpo.num_iterations = 2
    config.training.num_batches = 2
    rows = train_here(config, tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["policy/updates"] for row in rows[1:]] == [2, 2]
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [2]


# Which directory.


def test_a_directory_that_holds_a_run_is_refused(finished: Path, config: Config) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    with pytest.raises(RunDirectoryError, match=r"already holds a run; .*training.resume=true"):
        train_here(config, finished)
    assert (finished / "metrics.jsonl").read_bytes() == before


def test_checkpoints_of_another_run_are_refused(finished: Path, config: Config, tmp_path: Path) -> None:
    config.training.checkpoint_dir = str(finished / "checkpoints")
    with pytest.raises(RunDirectoryError, match=r"already holds checkpoints; .*training.checkpoint_dir"):
        train_here(config, tmp_path / "run")


# Resuming.


def test_resuming_where_there_is_nothing_starts_afresh(config: Config, tmp_path: Path) -> None:
    """A row that a killed run left before its first checkpoint is replaced."""
    root = tmp_path / "run"
    root.mkdir()
    (root / "metrics.jsonl").write_text('{"step": 0, "eval/accuracy": 0.9}\n{"step": 1, "rewa')
    config.training.resume = True
    rows = train_here(config, root)
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0]["eval/accuracy"] != 0.9


def test_resuming_a_finished_run_changes_nothing(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    before, logged = (root / "metrics.jsonl").read_bytes(), (root / "train.log").read_text()
    train_here(config, root)
    assert (root / "metrics.jsonl").read_bytes() == before
    assert Checkpoints(root / "checkpoints", 2).steps() == [2, 4]
    assert "WARNING" not in (root / "train.log").read_text().removeprefix(logged)


def test_a_damaged_newest_checkpoint_falls_back_and_loses_nothing(finished: Path, resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    (root / "checkpoints" / "step_000004" / "manifest.json").write_text("")
    assert first_difference(read_rows(finished), train_here(config, root)) is None
    assert first_rollout_difference(finished, root) is None
    assert "trying the one before" in (root / "train.log").read_text()
    assert Checkpoints(root / "checkpoints", 2).steps() == [2, 4]


def test_resuming_cuts_rows_past_the_checkpoint(finished: Path, resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    shutil.rmtree(root / "checkpoints" / "step_000004")
    assert first_difference(read_rows(finished), train_here(config, root)) is None
    assert first_rollout_difference(finished, root) is None


def test_resuming_names_the_steps_whose_rows_are_gone(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    lines = (root / "metrics.jsonl").read_text().splitlines(keepends=True)
    (root / "metrics.jsonl").write_text(lines[1] + lines[4])
    train_here(config, root)
    assert (
        "lacks the rows of steps that the checkpoint of step 4 comes after: 0, 2 to 3."
        in (root / "train.log").read_text()
    )


def test_resuming_from_another_directory_with_the_same_reward_is_no_change(config: Config, tmp_path: Path) -> None:
    """A reward in a file of the user's, which has another name from there."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "mine.py").write_text("def long(response):\n    return float(len(response))\n")
    config.training.reward_function = "mine.py:long"
    train(preflight(config, here), tmp_path / "run")
    logged = (tmp_path / "run" / "train.log").read_text()
    config.training.reward_function = "../here/mine.py:long"
    config.training.resume = True
    train(preflight(config, there), tmp_path / "run")
    log = (tmp_path / "run" / "train.log").read_text().removeprefix(logged)
    assert "resumed from the checkpoint of step 4" in log
    assert "WARNING" not in log


def test_resuming_on_other_data_is_refused(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    config.data.seed = 1
    with pytest.raises(CheckpointError, match="training rows are not those"):
        train_here(config, root)


def test_a_refused_resume_leaves_the_run_finished(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    before = (root / "status.json").read_bytes()
    config.data.seed = 1
    with pytest.raises(CheckpointError):
        train_here(config, root)
    assert (root / "status.json").read_bytes() == before


def test_resuming_with_another_seed_that_splits_the_rows_says_so(config: Config, tmp_path: Path) -> None:
    config.training.train_fraction = 0.5
    config.training.num_batches = 1
    train_here(config, tmp_path / "run")
    config.seed, config.training.resume = config.seed + 5, True
    with pytest.raises(CheckpointError, match=r"train_fraction=0\.5 splits the rows by the seed, .*go on with seed=0"):
        train_here(config, tmp_path / "run")


def test_resuming_with_other_settings_says_which(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    config.seed = 5
    train_here(config, root)
    assert "seed was 0, is 5" in (root / "train.log").read_text()


def test_resuming_with_other_prompts_says_so(resumed: tuple[Config, Path]) -> None:
    config, root = resumed
    config.prompt.system = "Give the answer between <answer> and </answer>."
    train_here(config, root)
    log = (root / "train.log").read_text()
    assert "since the checkpoint was written, the prompts are no longer the same tokens: the chat template," in log


# Stopping.


def start(root: Path, *overrides: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(f"hydra.run.dir={root}", *overrides),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root.parent,
        start_new_session=True,
    )


def wait_for_rows(root: Path, number: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        path = root / "metrics.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= number:
            return
        time.sleep(0.01)


def test_sigint_saves_and_prints_a_command_that_loses_nothing(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    process = start(root)
    wait_for_rows(root, 2, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    saved = re.search(
        r"stopped by signal 2 after step (\d)\. The checkpoint of step \1 is saved; go on with:\n(.*)", errors
    )
    assert saved, errors
    assert int(saved[1]) in Checkpoints(root / "checkpoints", 2).steps()
    again = run_command(shlex.split(saved[2]), tmp_path)
    assert again.returncode == 0, again.stderr
    assert first_difference(read_rows(finished), read_rows(root)) is None
    assert first_rollout_difference(finished, root) is None


def test_sigterm_before_the_first_step_has_nothing_to_save(tmp_path: Path) -> None:
    root = tmp_path / "run"
    process = start(root)
    while process.poll() is None and not (root / "train.log").exists():
        time.sleep(0.01)
    process.terminate()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 143, errors
    assert "No step was completed, so there is nothing to resume" in errors


def test_a_killed_run_resumed_equals_an_unbroken_one(finished: Path, config: Config, tmp_path: Path) -> None:
    root = tmp_path / "run"
    process = start(root)
    wait_for_rows(root, 4, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    config.training.resume = True
    assert first_difference(read_rows(finished), train_here(config, root)) is None
    assert first_rollout_difference(finished, root) is None


def test_rollouts_of_a_run_killed_within_a_file_are_those_of_an_unbroken_one(
    finished: Path, config: Config, tmp_path: Path
) -> None:
    """The newest checkpoint is gone, as if the kill had come before it, and a file has steps from both sides of it."""
    root = tmp_path / "run"
    shutil.copytree(finished, root)
    whole = [stored for stored in RolloutReader(root / "rollouts").iterate() if stored.step != 1]
    shutil.rmtree(root / "rollouts")
    for part in ([RolloutReader(finished / "rollouts").read_step(1)], whole):
        with RolloutWriter(root / "rollouts", RolloutsConfig(), seed=0) as writer:
            for stored in part:
                writer.write(stored)
    assert first_rollout_difference(finished, root) is None
    shutil.rmtree(root / "checkpoints" / "step_000004")
    config.training.resume = True
    train_here(config, root)
    assert first_rollout_difference(finished, root) is None
    assert sorted(path.name for path in (root / "rollouts").iterdir()) == [
        "step_000001-000001.parquet",
        "step_000002-000002.parquet",
        "step_000003-000004.parquet",
    ]


def test_a_killed_run_resumed_equals_an_unbroken_one_with_two_iterations(tmp_path: Path) -> None:
    report = verify([*SMALL, "grpo.num_iterations=2", "training.save_interval_steps=1"], seed=1, directory=tmp_path)
    assert report.equal, report.text
    assert report.rows == NUM_STEPS + 1
    assert len(report.kills) == 1


FLAKY = """
def flaky(response, step):
    if step >= 2:
        raise KeyError("the service is gone")
    return len(response)
"""


def test_a_failing_reward_stops_the_run_with_a_checkpoint_of_the_step_before(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FLAKY)
    root = tmp_path / "run"
    done = run_command(
        command(f"hydra.run.dir={root}", "training.reward_function=mine.py:flaky", "training.save_interval_steps=0"),
        tmp_path,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "step 2: 16 of 16 completions went unscored" in done.stderr
    assert "the service is gone" in done.stderr
    assert "The checkpoint of step 1 is saved" in done.stderr
    assert Checkpoints(root / "checkpoints", 2).steps() == [1]
    assert [row["step"] for row in read_rows(root)] == [0, 1]


def test_on_failure_raise_stops_at_the_first_failure_with_a_checkpoint(config: Config, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FLAKY)
    config.training.reward_function = "mine.py:flaky"
    config.training.save_interval_steps = 0
    config.rewards.on_failure = "raise"
    with pytest.raises(RewardFailureRateError, match=r"(?s)completion 2_0_0 went unscored.*checkpoint of step 1"):
        train_here(config, tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [1]


STOPPING = """
def stopping(response):
    if len(response) % 2:
        raise StopIteration
    return float(len(response))
"""


def test_a_reward_that_raises_stop_iteration_does_not_end_the_run(config: Config, tmp_path: Path) -> None:
    """Of every other completion; Tunix's own loop would take it for the end of the data."""
    (tmp_path / "mine.py").write_text(STOPPING)
    config.training.reward_function = "mine.py:stopping"
    config.rewards.max_failure_rate = 1.0
    rows = train_here(config, tmp_path / "run")
    assert [row["step"] for row in rows] == [0, 1, 2, 3, 4]
    assert any(row["rewards/outcomes/error"] for row in rows[1:])


def test_an_update_that_is_not_finite_stops_the_run_with_a_checkpoint_before_it(config: Config, tmp_path: Path) -> None:
    config.optimizer.learning_rate = 1e30
    config.optimizer.warmup_ratio = 0.0
    config.training.eval_every_n_steps = 0
    config.training.save_interval_steps = 0
    config.training.reward_function = "conciseness"
    with pytest.raises(
        NonFiniteUpdateError, match=r"(?s)step 2: the loss is .* gradient norm nan.*checkpoint of step 1 is saved"
    ):
        train_here(config, tmp_path / "run")
    assert Checkpoints(tmp_path / "run" / "checkpoints", 2).steps() == [1]


BAD_REFERENCE = '{"question": "What is 2 plus 2?", "answer": "?"}\n'
GOOD_REFERENCE = '{"question": "What is 2 plus 2?", "answer": "4"}\n'


def test_held_out_rows_that_nothing_can_be_judged_by_give_no_accuracy(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD_REFERENCE * 16)
    (tmp_path / "test.jsonl").write_text(BAD_REFERENCE * 16)
    config.data.source, config.data.path = "jsonl", str(tmp_path)
    rows = train_here(config, tmp_path / "run")
    evaluations = [row for row in rows if "eval/accuracy" in row]
    assert [row["eval/accuracy"] for row in evaluations] == [None] * 3
    assert [row["eval/num_unscored"] for row in evaluations] == [16] * 3
    assert "could be judged" in (tmp_path / "run" / "train.log").read_text()
    shown = capsys.readouterr().out
    assert "step 0/4  accuracy n/a" in shown
    assert re.search(r"\naccuracy +n/a +n/a +n/a\n", shown)


# Evaluating afterwards.


def test_evaluating_a_run_gives_the_accuracy_of_its_last_row(finished: Path, tmp_path: Path) -> None:
    done = run_command([sys.executable, "-m", "agent_tunix", "evaluate", f"checkpoint_dir={finished}"], tmp_path)
    assert done.returncode == 0, done.stderr
    (written,) = finished.glob("evaluation_step_4_*.json")
    measured = json.loads(written.read_text())
    written.unlink()
    last = all_rows(finished)[-1]
    assert {name: measured[name] for name in last if name.startswith("eval/")} == {
        name: value for name, value in last.items() if name.startswith("eval/")
    }
    assert f"{last['eval/accuracy']:.4f}" in done.stdout


def request(finished: Path, **asked: Any) -> Request:
    from agent_tunix.config.schema import EvaluateConfig

    return read_request(EvaluateConfig(checkpoint_dir=str(finished), **asked))


def measure(root: Path, **asked: Any) -> dict[str, Any]:
    evaluate_checkpoint(request(root, **asked))
    (written,) = root.glob("evaluation_step_*.json")
    measured: dict[str, Any] = json.loads(written.read_text())
    written.unlink()
    return measured


@pytest.mark.parametrize("step", [0, 2])
def test_an_earlier_step_can_be_evaluated(finished: Path, step: int) -> None:
    measured = measure(finished, step=step)
    assert measured["step"] == step
    assert measured["eval/accuracy"] == all_rows(finished)[step]["eval/accuracy"]


def test_several_passes_give_pass_at_k_and_consistency(finished: Path) -> None:
    measured = measure(finished, num_passes=3, inference_config="standard", num_samples=8)
    assert measured["eval/num_problems"] == 8
    assert measured["eval/pass_at_1"] == pytest.approx(measured["eval/accuracy"])
    assert measured["eval/pass_at_1"] <= measured["eval/pass_at_2"] <= measured["eval/pass_at_3"]
    assert measured["eval/pass_at_k"] == measured["eval/pass_at_3"]
    assert 1 / 3 <= measured["eval/consistency"] <= 1


def test_a_directory_without_a_run_cannot_be_evaluated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"should be the directory of a run, but it has no config.yaml"):
        request(tmp_path)


def test_the_checkpoints_directory_of_a_run_names_the_run(finished: Path) -> None:
    assert request(finished / "checkpoints").root == finished


def test_a_step_without_a_checkpoint_cannot_be_evaluated(finished: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3; there are \[2, 4\]"):
        evaluate_checkpoint(request(finished, step=3))
