"""Runs on a mixture, a curriculum and a stream: what they draw and record, and that resuming draws the same."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import CheckpointError, DataError, RewardError, RewardSignatureError
from agent_tunix.training import run
from agent_tunix.training.batches import StreamedBatches
from agent_tunix.training.learner import PromptBatch
from agent_tunix.training.preflight import preflight
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.small_run import NUM_STEPS
from tests.training.support import small_run

# What Tunix 0.1.7 and Flax 0.12 use of each other and of JAX 0.10 has newer names there.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SETTINGS = ("training.save_interval_steps=2", "training.eval_every_n_steps=0", "rewards.execution=inline")
SOURCES = {
    "a mixture": [
        "data.mixture={sums: {weight: 3, path: sums.jsonl}, products: {path: products.csv, prompt_column: problem}}",
        "training.train_fraction=0.75",
        "training.reward_function={right: math, short: {function: conciseness, when: {data_source: sums}}}",
    ],
    "a curriculum": ["data.path=sums.jsonl", "training.train_fraction=0.75", "data.curriculum.column=level"],
    "a stream": [
        "data.path=sums.jsonl",
        "training.train_fraction=0.75",
        "data.streaming=true",
        "data.shuffle_buffer=8",
    ],
    "a mixture of streams": [
        "data.mixture={sums: {weight: 3, path: sums.jsonl}, products: {path: products.csv, prompt_column: problem}}",
        "training.train_fraction=0.75",
        "data.streaming=true",
        "data.shuffle_buffer=8",
    ],
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data_runs")
    rows = [{"question": f"What is {n} + 1?", "answer": str(n + 1), "level": n % 5} for n in range(60)]
    (directory / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"What is {n} times 2?,{2 * n}" for n in range(12)]
    (directory / "products.csv").write_text("\n".join(["problem,answer", *lines]))
    return directory


@pytest.fixture(autouse=True)
def _in_the_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory)


def train(root: Path, *overrides: str) -> list[dict[str, Any]]:
    """Train; the rows of the metrics without timings."""
    config = small_run(*SETTINGS, *overrides)
    run.train(preflight(config, Path.cwd()), root)
    return read_rows(root)


@pytest.mark.parametrize("source", SOURCES)
def test_a_resumed_run_equals_an_unbroken_one(source: str, directory: Path, tmp_path: Path) -> None:
    unbroken = train(tmp_path / "unbroken", *SOURCES[source])
    shutil.copytree(tmp_path / "unbroken", tmp_path / "resumed")
    shutil.rmtree(tmp_path / "resumed" / "checkpoints" / f"step_{NUM_STEPS:06}")
    resumed = train(tmp_path / "resumed", *SOURCES[source], "training.resume=true")
    assert "resumed from the checkpoint of step 2" in (tmp_path / "resumed" / "train.log").read_text()
    assert first_difference(unbroken, resumed) is None
    assert first_rollout_difference(tmp_path / "unbroken", tmp_path / "resumed") is None


def test_a_mixture_logs_what_was_drawn_and_routes_by_the_name_of_the_set(tmp_path: Path) -> None:
    rows = train(tmp_path / "run", *SOURCES["a mixture"])
    assert [row["data/sums/share"] for row in rows[1:]] == [0.75] * NUM_STEPS
    assert [row["data/products/share"] for row in rows[1:]] == [0.25] * NUM_STEPS
    assert [row["rewards/short/outcomes/not_applicable"] for row in rows[1:]] == [4] * NUM_STEPS


def test_resuming_a_stream_of_other_rows_is_refused(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "rows.jsonl"
    shutil.copy(directory / "sums.jsonl", copy)
    overrides = [*SOURCES["a stream"], f"data.path={copy}"]
    train(tmp_path / "run", *overrides)
    copy.write_text(copy.read_text().replace('"level": 0', '"level": 9').replace("What is 1", "What is 111"))
    with pytest.raises(CheckpointError, match="training rows are not those"):
        train(tmp_path / "run", *overrides, "training.resume=true")


def test_a_stream_that_breaks_off_leaves_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = StreamedBatches.batch

    def batch(self: StreamedBatches, step: int) -> PromptBatch:
        if step == 4:
            raise DataError("the train rows cannot be read: Input/output error")
        return whole(self, step)

    monkeypatch.setattr(StreamedBatches, "batch", batch)
    with pytest.raises(DataError, match=r"(?s)Input/output error\nThe checkpoint of step 3 is saved; go on with"):
        train(tmp_path / "run", *SOURCES["a stream"])


def test_a_reward_that_needs_a_reference_is_refused_where_there_is_none() -> None:
    overrides = ["data.path=sums.jsonl", "data.answer_column=null", "data.columns={label: answer}"]
    with pytest.raises(RewardSignatureError, match="requires the parameter `answer`, which nothing provides"):
        preflight(small_run("training.train_fraction=0.75", *overrides), Path.cwd())


def test_rewards_that_need_no_reference_train_without(tmp_path: Path) -> None:
    overrides = ["data.path=sums.jsonl", "data.answer_column=null", "data.columns={label: answer}"]
    rows = train(tmp_path / "run", *overrides, "training.train_fraction=0.75", "training.reward_function=format")
    assert all(row["rewards/outcomes/scored"] == 16 for row in rows[1:])


ONLY_SUMS = "training.reward_function={right: math, level: {function: 'needs.py:by_level', when: {data_source: sums}}}"
EVERYWHERE = "training.reward_function={right: math, level: {function: 'needs.py:by_level'}}"


def test_a_column_that_one_set_lacks_is_asked_only_of_those_to_which_the_reward_applies(directory: Path) -> None:
    (directory / "needs.py").write_text("def by_level(response, level):\n    return float(level)\n")
    settings = SOURCES["a mixture"][:2]
    preflight(small_run(*settings, ONLY_SUMS), Path.cwd())
    with pytest.raises(RewardError, match="requires the parameter `level`"):
        preflight(small_run(*settings, EVERYWHERE), Path.cwd())
