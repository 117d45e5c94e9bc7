"""A run whose reward is a reward model in its own process."""

import json
from pathlib import Path

import pytest

from agent_tunix.runs.preflight import preflight
from agent_tunix.training.train import train
from tests.rewards.reward_model.models import save_decoder
from tests.training.support import small_run

pytestmark = pytest.mark.slow

pytest.importorskip("torch", reason="reward models need torch (extra `reward_model`)")


def test_a_run_trains_with_a_reward_model(tmp_path: Path) -> None:
    save_decoder(tmp_path / "model")
    reward = "{scored:{function:reward_model,args:{path:%s,activation:sigmoid}},form:{function:format,weight:0.1}}"
    config = small_run(
        f"training.reward_function={reward % (tmp_path / 'model')}",
        "training.eval_every_n_steps=0",
        # Neither of the two is a limit for it.
        "rewards.execution=process",
        "rewards.memory_mb=64",
    )
    train(preflight(config, tmp_path), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][1:]
    assert len(rows) == 4
    for row in rows:
        assert 0 < row["rewards/scored/mean"] < 1
        assert row["rewards/scored/std"] > 0
        assert row["rewards/outcomes/scored"] == 16
        assert row["rewards/scored/logged/over_long"] == 0
        assert row["rewards/scored/logged/num_tokens"] > 10
    assert any(row["policy/grad_norm"] > 0 for row in rows)
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["reward_fingerprint"]["components"]["scored"]["checkpoint"]
