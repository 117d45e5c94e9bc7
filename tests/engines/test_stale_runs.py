"""Runs whose engine stops to follow the policy: they end within a step, with a checkpoint."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import EngineError
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.sampling.requests import TokenReply, TokenRequest
from tests.engines.stand_ins import Fault, ModelPolicy, VllmStandIn
from tests.raising import raises
from tests.training.support import train_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Iterator[ModelPolicy]:
    with ModelPolicy(EMBEDDED_MODEL, max_context=256) as policy:
        yield policy


class Failing(VllmStandIn):
    """An engine that fails once it has taken two versions: it takes no more of them, or its rollouts are of another
    distribution.
    """

    def __init__(self, model: ModelPolicy, *, keeps_weights: bool) -> None:
        super().__init__(model)
        self.keeps_weights = keeps_weights
        self.num_loaded = 0

    def load_adapter(self, name: str, directory: Path) -> None:
        super().load_adapter(name, directory)
        self._count()

    def load_weights(self, directory: Path) -> None:
        super().load_weights(directory)
        self._count()

    def _count(self) -> None:
        self.num_loaded += 1
        if self.num_loaded == 2 and self.keeps_weights:
            self.faults.add(Fault.IGNORES_WEIGHTS)

    async def reply(self, name: str, request: TokenRequest) -> tuple[TokenReply, list[float | None]]:
        reply, logps = await super().reply(name, request)
        is_rollout = (request.seed or 0) > 1000  # not of the probe
        if is_rollout and self.num_loaded == 2 and not self.keeps_weights:
            return reply, [None if logp is None else logp - 0.5 * (place % 2) for place, logp in enumerate(logps)]
        return reply, logps


def train_with(url: str, root: Path, rank: int = 0) -> None:
    train_run(
        root, "engine=vllm", f"engine.urls=[{url}]", f"model.lora_rank={rank}", "training.num_batches=6",
        "training.eval_every_n_steps=0", "evaluation.num_samples=0",
    )  # fmt: skip


def rows_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("rank", [0, 4])
def test_a_run_ends_within_a_step_of_an_engine_that_samples_from_the_base(
    model: ModelPolicy, tmp_path: Path, rank: int
) -> None:
    root = tmp_path / "run"
    with Failing(model, keeps_weights=True).running() as url, raises(EngineError, "engine_stale") as caught:
        train_with(url, root, rank)
    steps = [row["step"] for row in rows_of(root)]
    # The engine took the weights of the start and of step 1, and those of step 2 were found missing.
    assert steps[-1] == 2
    assert (root / "checkpoints" / "step_000002").is_dir()
    assert url in str(caught.value)
    assert "training.resume=true" in str(caught.value)
    assert not list((root / "engine").glob("policy-*"))


def test_a_mismatch_above_the_limit_ends_the_run_with_a_checkpoint(model: ModelPolicy, tmp_path: Path) -> None:
    root = tmp_path / "run"
    with Failing(model, keeps_weights=False).running() as url, raises(EngineError, "engine_mismatch"):
        train_with(url, root)
    first, second = rows_of(root)
    assert first["policy/sampler_mismatch_kl"] < 1e-6
    assert second["policy/sampler_mismatch_kl"] > 1e-3
    assert (root / "checkpoints" / "step_000002").is_dir()
