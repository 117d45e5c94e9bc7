"""Reward files as people publish them, one of each convention, train a run together without an edit."""

from pathlib import Path

import pytest

from agent_tunix.rewards import Outcome
from tests.small_run import NUM_STEPS
from tests.training.support import train_run

pytestmark = pytest.mark.slow

GALLERY = Path(__file__).parents[1] / "rewards" / "gallery"
ONE_EACH = {file.parent.name: file for file in sorted(GALLERY.glob("[a-z]*/*.py"))}


def test_one_of_each_convention_trains(tmp_path: Path) -> None:
    assert len(ONE_EACH) == 5
    components = ", ".join(f"{name}: {{function: '{file}:reward'}}" for name, file in ONE_EACH.items())
    overrides = ["rewards.max_failure_rate=0.0", "training.eval_every_n_steps=0"]
    rows = train_run(tmp_path / "run", f"training.reward_function={{{components}}}", *overrides)[1:]
    assert len(rows) == NUM_STEPS
    for row in rows:
        assert row["rewards/outcomes/scored"] == 16
        for name in ONE_EACH:
            assert row.get(f"rewards/{name}/outcomes/{Outcome.ERROR}", 0) == 0
            assert row[f"rewards/{name}/mean"] is not None
