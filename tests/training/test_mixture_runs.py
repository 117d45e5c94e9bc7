"""Mixtures in training: a few steps of the tiny model, in this process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import CheckpointError
from tests.raising import raises
from tests.small_run import NUM_STEPS
from tests.training.support import copy_run, train_run

pytestmark = pytest.mark.slow

SETTINGS = (
    "training.eval_every_n_steps=1",
    "training.save_interval_steps=2",
    "rewards.execution=inline",  # so that the file can note here what it was computed on
)
REWARDS = '''\
COMPUTED = []


def noticed(response, kind, step):
    """Notes what it was computed on."""
    COMPUTED.append((step, kind, response))
    return float(len(response))
'''
MIXTURE = (
    "{correct: {function: math},"
    " tags: {function: format, weight: {from: 0.5, to: 0.1, steps: [2, 4]}},"
    " later: {function: debug, weight: {from: 0.0, to: 1.0, steps: 3, kind: step}},"
    " long: {function: 'notes.py:noticed', weight: 0.1, requires: {tags: 0.5}, transform: [rank], when: {kind: sum}}}"
)


SCALED = ("grpo.advantage_scaling=component", "training.num_batches=1", "training.eval_every_n_steps=0")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mixtures")
    (directory / "notes.py").write_text(REWARDS)
    rows = [
        {"question": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1), "kind": "sum" if n % 2 else "other"}
        for n in range(1, 33)
    ]
    for split in ("train", "test"):
        (directory / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return directory


def train(directory: Path, name: str, *overrides: str) -> list[dict[str, Any]]:
    """Train in `directory/name`; the rows of its metrics without timings."""
    return train_run(directory / name, *SETTINGS, "data.source=jsonl", f"data.path={directory}", *overrides)


@pytest.fixture(scope="module")
def rows(directory: Path) -> list[dict[str, Any]]:
    return train(directory, "whole", f"training.reward_function={MIXTURE}")


def steps(rows: list[dict[str, Any]], name: str) -> list[Any]:
    return [row[name] for row in rows[1:]]


def test_the_effective_weights_are_logged_every_step(rows: list[dict[str, Any]]) -> None:
    assert steps(rows, "rewards/tags/weight") == pytest.approx([0.5, 0.5, 0.3, 0.1])
    assert steps(rows, "rewards/later/weight") == [0.0, 0.0, 1.0, 1.0]
    assert steps(rows, "rewards/long/weight") == [0.1] * NUM_STEPS


def test_a_gated_and_routed_component_is_computed_where_it_counts(rows: list[dict[str, Any]], directory: Path) -> None:
    files = {str(getattr(module, "__file__", None)): module for module in list(sys.modules.values())}
    module: Any = next(module for file, module in files.items() if file.startswith(str(directory)))
    assert {kind for _, kind, _ in module.COMPUTED} <= {"sum"}
    shut, elsewhere = steps(rows, "rewards/long/gate_shut"), steps(rows, "rewards/long/outcomes/not_applicable")
    for step in range(1, NUM_STEPS + 1):
        computed = sum(at == step for at, _, _ in module.COMPUTED)
        assert computed + shut[step - 1] + elsewhere[step - 1] == 16
    assert sum(shut) > 0
    assert sum(elsewhere) % 4 == 0
    assert len(module.COMPUTED) > 0


def test_raw_and_transformed_values_are_both_logged(rows: list[dict[str, Any]]) -> None:
    for row in rows[1:]:
        if row["rewards/long/mean"] is not None:
            assert row["rewards/long/max"] > 1.0 >= row["rewards/long/transformed/max"]


def test_a_resumed_run_goes_on_with_the_weights_of_an_unbroken_one(rows: list[dict[str, Any]], directory: Path) -> None:
    copy_run(directory / "whole", directory / "resumed", without=NUM_STEPS)
    again = train(directory, "resumed", f"training.reward_function={MIXTURE}", "training.resume=true")
    assert again == rows


def test_a_resume_with_another_reward_warns_by_name_or_refuses(rows: list[dict[str, Any]], directory: Path) -> None:
    copy_run(directory / "whole", directory / "changed")
    other = f"training.reward_function={MIXTURE.replace('weight: 0.1', 'weight: 0.2')}"
    with raises(CheckpointError, "reward_changed", "weight of long 0.1 → 0.2"):
        train(directory, "changed", other, "training.resume=true", "rewards.on_change=refuse")
    train(directory, "changed", other, "training.resume=true")
    log = (directory / "changed" / "train.log").read_text()
    assert "the reward has changed since the checkpoint was written: weight of long 0.1 → 0.2" in log


def test_the_fingerprint_is_stored_in_the_run_and_in_checkpoints(rows: list[dict[str, Any]], directory: Path) -> None:
    environment = json.loads((directory / "whole" / "environment.json").read_text())
    metadata = json.loads((directory / "whole" / "checkpoints" / "step_000002" / "metadata.json").read_text())
    assert environment["reward_fingerprint"] == metadata["reward"]
    assert set(metadata["reward"]["components"]) == {"correct", "tags", "later", "long"}


def test_the_scaling_reaches_the_advantages(rows: list[dict[str, Any]], directory: Path) -> None:
    scaled = train(directory, "scaled", f"training.reward_function={MIXTURE}", *SCALED)
    # The first step sees the same completions, whatever becomes of their scores.
    assert scaled[1]["rewards/total/mean"] == rows[1]["rewards/total/mean"]
    assert scaled[1]["advantages/std"] != rows[1]["advantages/std"]
    assert scaled[1]["advantages/std"] > 0
