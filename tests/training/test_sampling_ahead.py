"""Runs whose steps are sampled ahead, with a sampler on this machine that keeps weights of before."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import Interrupted
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking.callbacks import Callback, TrainingState
from agent_tunix.training.train import train
from tests.training.ahead_runs import lagging, sampling_here
from tests.training.policy_versions import PolicyVersions
from tests.training.support import assert_same_weights, copy_run, small_run, train_run

pytestmark = pytest.mark.slow

AHEAD = (*lagging(2), "training.save_interval_steps=2", "training.eval_every_n_steps=3")
TRAINED = {"whole": (), "adapter": ("model.lora_rank=4", "optimizer.learning_rate=1e-2")}


@pytest.fixture(autouse=True)
def samplers() -> Iterator[list[PolicyVersions]]:
    """The samplers of the runs of a test."""
    with sampling_here() as made:
        yield made


@pytest.mark.parametrize("trained", TRAINED)
def test_a_run_resumed_with_what_was_sampled_ahead_equals_an_uninterrupted_one(tmp_path: Path, trained: str) -> None:
    rows = train_run(tmp_path / "whole", *AHEAD, *TRAINED[trained], "training.num_batches=6")
    stored = sorted(path.name[:11] for path in (tmp_path / "whole" / "checkpoints").glob("step_000004/ahead/*"))
    assert stored == ["step_000005", "step_000006"]
    written = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    ages = [json.loads(line).get("engine/staleness/max") for line in written]
    assert ages == [None, 0, 1, 2, 2, 2, 2]
    assert all(row["policy/sampler_mismatch_kl"] > 1e-6 for row in rows if row["step"] > 2)

    killed = copy_run(tmp_path / "whole", tmp_path / "killed", without=6)
    resumed = train_run(killed, *AHEAD, *TRAINED[trained], "training.num_batches=6", "training.resume=true")
    assert resumed == rows
    assert_same_weights(tmp_path / "whole", killed)


def test_a_signal_ends_what_is_being_sampled_and_the_run_can_be_resumed(
    tmp_path: Path, samplers: list[PolicyVersions]
) -> None:
    class Stop(Callback):
        def on_step(self, state: TrainingState, metrics: Mapping[str, Any]) -> None:
            samplers[0].hangs = state.step >= 2
            if state.step == 3:  # step 5 is being sampled
                os.kill(os.getpid(), signal.SIGTERM)

    run = tmp_path / "run"
    overrides = (*AHEAD, "training.num_batches=6", "training.eval_every_n_steps=0")
    with pytest.raises(Interrupted):
        train(preflight(small_run(*overrides), tmp_path), run, callbacks=[Stop()])
    assert [path.name[:11] for path in (run / "checkpoints").glob("step_000003/ahead/*")] == ["step_000004"]
    assert [row["step"] for row in train_run(run, *overrides, "training.resume=true")] == list(range(7))
