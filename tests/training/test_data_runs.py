"""Runs on a mixture of streams and by pass rate: what they draw and record, and that resuming draws the same."""

import json
from pathlib import Path

import pytest

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.data.step_batches import StreamedBatches
from agent_tunix.errors import CheckpointError, DataError, RewardError, RewardSignatureError
from agent_tunix.runs.preflight import preflight
from agent_tunix.training.verification import first_difference, first_rollout_difference, read_rows
from tests.raising import raises
from tests.small_run import NUM_STEPS
from tests.training.support import copy_run, small_run, train_run

SETTINGS = (
    "training.save_interval_steps=2",
    "training.eval_every_n_steps=0",
    "training.train_fraction=0.75",
    "rewards.execution=inline",
)
SETS = "data.mixture={sums: {weight: 3, path: sums.jsonl}, products: {path: products.csv, prompt_column: problem}}"
STREAM = ("data.streaming=true", "data.shuffle_buffer=8")
MIXTURE = (
    SETS,
    *STREAM,
    "training.reward_function={right: math, short: {function: conciseness, when: {data_source: sums}}}",
)
# Sets that are always, half of the time and never solved.
SOLVED = """\
def solved(response, data_source):
    return {"easy": 1, "middle": len(response) % 2, "hard": 0}[data_source]
"""
SHARES = (
    "data.mixture={easy: {path: sums.jsonl}, middle: {path: sums.jsonl}, hard: {path: sums.jsonl}}",
    "data.set_shares=pass_rate",
    "training.reward_function={solved: 'solved.py:solved'}",
    "grpo.dynamic_sampling_rounds=1",
)
SOURCES = {
    "a mixture of streams": MIXTURE,
    "rows by pass rate": (
        "data.path=sums.jsonl",
        "data.sampling=pass_rate",
        "grpo.dynamic_sampling_rounds=1",
        "grpo.filter_by=math",
    ),
    "shares by pass rate": SHARES,
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


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_a_resumed_run_draws_what_an_unbroken_one_draws(source: str, directory: Path, tmp_path: Path) -> None:
    settings = (*SETTINGS, *SOURCES[source])
    (tmp_path / "solved.py").write_text(SOLVED)
    unbroken = train_run(tmp_path / "unbroken", *settings)
    if source == "a mixture of streams":
        assert [row["data/sums/share"] for row in unbroken[1:]] == [0.75] * NUM_STEPS
        assert [row["data/products/share"] for row in unbroken[1:]] == [0.25] * NUM_STEPS
        assert [row["rewards/short/outcomes/not_applicable"] for row in unbroken[1:]] == [4] * NUM_STEPS
    if source == "shares by pass rate":
        last = {name: unbroken[-1][f"sampling/sets/{name}/share"] for name in ("easy", "middle", "hard")}
        assert last["middle"] > 0.75 > 0.15 > last["easy"] == last["hard"] > 0
        assert [unbroken[-1][f"sampling/sets/{name}/pass_rate"] for name in ("easy", "hard")] == [1.0, 0.0]
        assert unbroken[-1]["data/middle/share"] >= 0.5
    root = copy_run(tmp_path / "unbroken", tmp_path / "resumed", without=NUM_STEPS)
    resumed = train_run(root, *settings, "training.resume=true")
    assert "resumed from the checkpoint of step 2" in (root / "train.log").read_text()
    assert first_difference(unbroken, resumed) is None
    assert first_rollout_difference(tmp_path / "unbroken", root) is None


@pytest.mark.slow
def test_a_broken_stream_leaves_a_checkpoint(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "rows.jsonl"
    copy.write_text((directory / "sums.jsonl").read_text())
    settings = (*SETTINGS, *STREAM, f"data.path={copy}")
    whole = StreamedBatches.batch

    def batch(self: StreamedBatches, step: int) -> PromptBatch:
        if step == 4:
            raise DataError("the train rows cannot be read", code="broken_off")
        return whole(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(StreamedBatches, "batch", batch)
        with raises(DataError, "broken_off") as caught:
            train_run(tmp_path / "run", *settings)
    assert "The checkpoint of step 3 is saved; resume with" in str(caught.value)
    copy.write_text(copy.read_text().replace('"level": 0', '"level": 9').replace("What is 1", "What is 111"))
    with raises(CheckpointError, "checkpoint_mismatch"):
        train_run(tmp_path / "run", *settings, "training.resume=true")
    assert [row["step"] for row in read_rows(tmp_path / "run")] == [0, 1, 2, 3]


WITHOUT_REFERENCE = ("data.path=sums.jsonl", "data.answer_column=null", "data.columns={label: answer}")


def test_a_reward_that_needs_a_reference_is_refused_where_there_is_none() -> None:
    with pytest.raises(RewardSignatureError, match="the parameter `answer`"):
        preflight(small_run(*SETTINGS, *WITHOUT_REFERENCE), Path.cwd())


def test_a_column_that_one_set_lacks_is_asked_only_of_those_to_which_the_reward_applies(directory: Path) -> None:
    (directory / "needs.py").write_text("def by_level(response, level):\n    return float(level)\n")
    reward = "training.reward_function={right: math, level: {function: 'needs.py:by_level'%s}}"
    preflight(small_run(*SETTINGS, SETS, reward % ", when: {data_source: sums}"), Path.cwd())
    with pytest.raises(RewardError, match="the parameter `level`"):
        preflight(small_run(*SETTINGS, SETS, reward % ""), Path.cwd())
