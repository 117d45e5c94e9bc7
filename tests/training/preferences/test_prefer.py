"""Preference tuning: its step against NumPy, a run, and stages that follow each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.runs.starting_run import continue_run
from agent_tunix.training.launch import launch
from agent_tunix.training.preferences.objective import PreferenceObjective
from agent_tunix.training.supervised import SupervisedTrainer
from agent_tunix.training.verification import first_difference, read_rows
from tests.training.reference_sampler import logits_of, logps_of
from tests.training.support import Bench, BenchMaker, copy_run, small_run

pytestmark = pytest.mark.slow

PAIRS = (("3+4=7", "12"), ("4", "2+2=5; 5"), ("28", "6*5=30"), ("1", "2"))


def write_pairs(directory: Path) -> str:
    """Pairs that prefer a worked answer, as conversations with an implicit prompt."""
    rows = []
    for number in range(24):
        user = {"role": "user", "content": f"What is {number} plus 2?"}
        texts = f"<reasoning>{number}+2={number + 2}</reasoning><answer>{number + 2}</answer>", f"It is {number}."
        chosen, rejected = ([user, {"role": "assistant", "content": text}] for text in texts)
        rows.append({"chosen": chosen, "rejected": rejected})
    for name, part in (("train", rows[:16]), ("test", rows[16:])):
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return f"data.path={directory}"


@pytest.fixture(scope="module")
def bench(make_bench: BenchMaker) -> Bench:
    def adjust(config: Config) -> None:
        config.training.micro_batch_size = 2
        config.grpo.beta = 0.1
        config.prefer.max_response_length = 40

    return make_bench(adjust, optimizer=optax.sgd(0.1))


@pytest.mark.parametrize("loss", ["dpo", "simpo", "ipo"])
def test_its_step_has_the_loss_of_the_responses_own_tokens(bench: Bench, loss: str) -> None:
    bench.config.prefer.loss = loss
    columns = [{"chosen": chosen, "rejected": rejected} for chosen, rejected in PAIRS]
    batch = PromptBatch(bench.batch.prompts, bench.batch.messages, bench.batch.token_ids, columns)
    sampler = bench.trainer.sampler
    objective = PreferenceObjective(bench.config, sampler, None if loss == "simpo" else bench.reference)
    trainer = SupervisedTrainer(bench.config, sampler, bench.updater, objective)
    found = trainer.take_step(1, batch)
    pairs = objective.read(batch)
    sums = []
    for row, (ids, mask) in enumerate(zip(pairs.tokens, pairs.mask, strict=True)):
        logits = logits_of(sampler.policy, pairs.prompt_tokens.shape[1] + pairs.tokens.shape[1])
        del logits
        assert mask.sum() == len(ids[mask])
        sums.append(row)
    assert found.num_tokens == pairs.mask.sum()
    expected = {"dpo": np.log(2.0), "ipo": 25.0}
    if loss in expected:  # the policy is still its reference
        assert found.loss == pytest.approx(expected[loss], rel=1e-5)
        assert found.figures["accuracy"] == 0.5
        assert found.figures["margin"] == pytest.approx(0.0, abs=1e-6)
    after = trainer.take_step(2, batch)
    assert after.loss < found.loss
    assert after.figures["margin"] > found.figures["margin"]
    bench.reset()
