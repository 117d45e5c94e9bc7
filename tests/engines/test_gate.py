"""The gate on made-up scores: what proves that a replica follows, and what does not."""

import numpy as np
import pytest

from agent_tunix.config.schema import EngineConfig
from agent_tunix.engines.gate import ReplicaScores, SyncGate
from agent_tunix.engines.mismatch import MismatchLimit
from agent_tunix.errors import EngineError
from tests.raising import raises

N = 80
RANDOM = np.random.default_rng(0)
TRUE = RANDOM.uniform(-3, 0, N)
URL = "http://a:8000"


def rounded(scores: np.ndarray, noise: float) -> np.ndarray:
    return scores + RANDOM.normal(size=N) * noise


def began(noise: float) -> tuple[SyncGate, np.ndarray]:
    """A gate after the first sync of a policy that has not moved, and the replica's scores."""
    gate, scores = SyncGate(TRUE), rounded(TRUE, noise)
    assert gate.check("v0", TRUE, ReplicaScores(URL, scores, scores)).share is None
    return gate, scores


@pytest.mark.parametrize("noise", [0.0, 1e-6, 0.01, 0.03])
def test_a_replica_that_follows_is_proven_once_the_policy_has_moved(noise: float) -> None:
    gate, _ = began(noise)
    moved = TRUE + RANDOM.normal(size=N) * max(10 * noise, 1e-5)
    check = gate.check("v1", moved, ReplicaScores(URL, np.empty(0), rounded(moved, noise)))
    assert check.share == pytest.approx(1.0, abs=0.3)
    assert check.difference <= 2 * noise


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_small_movements_add_up_until_a_stale_replica_is_found(noise: float) -> None:
    gate, scores = began(noise)
    direction = RANDOM.normal(size=N)
    size = max(noise, 1e-6)

    def follow(version: int) -> float | None:
        now = rounded(scores, noise / 10)  # as an engine whose batches differ
        expected = TRUE + 0.05 * version * size * direction
        return gate.check(f"v{version}", expected, ReplicaScores(URL, np.empty(0), now)).share

    assert [follow(version) for version in range(1, 11)] == [None] * 10
    with raises(EngineError, "engine_stale"):
        for version in range(11, 60):
            follow(version)


def test_a_replica_that_stays_behind_after_it_followed_is_named_with_its_version() -> None:
    gate, _ = began(1e-6)
    first = TRUE + 0.01 * RANDOM.normal(size=N)
    gate.check("v1", first, ReplicaScores(URL, np.empty(0), first))
    with raises(EngineError, "engine_stale") as caught:
        gate.check("v2", first + 0.01 * RANDOM.normal(size=N), ReplicaScores(URL, np.empty(0), first))
    assert "samples from v1" in str(caught.value)


def test_another_distribution_is_found_at_the_first_sync() -> None:
    with raises(EngineError, "engine_differs"):
        SyncGate(TRUE).check("v0", TRUE, ReplicaScores(URL, TRUE - 1, TRUE - 1))
    with raises(EngineError, "engine_differs"):  # without a log-probability nothing is known
        SyncGate(TRUE).check("v0", TRUE, ReplicaScores(URL, TRUE, np.full(N, np.nan)))
    with raises(EngineError, "engine_differs"):  # scores are right, and replies are not
        SyncGate(TRUE).check("v0", TRUE, ReplicaScores(URL, TRUE, TRUE, reply=np.full(16, 0.1)))


def test_a_replica_that_was_refused_is_refused_again_or_begins_anew() -> None:
    gate = SyncGate(TRUE)
    for _ in range(2):
        with raises(EngineError, "engine_differs"):
            gate.check("v0", TRUE, ReplicaScores(URL, TRUE - 1, TRUE - 1))
        assert not gate.knows(URL)
    assert gate.check("v0", TRUE, ReplicaScores(URL, TRUE, TRUE)).share is None
    assert gate.knows(URL)


def test_tokens_without_a_log_probability_are_left_out() -> None:
    scores = TRUE.copy()
    scores[3] = np.nan
    gate = SyncGate(TRUE)
    gate.check("v0", TRUE, ReplicaScores(URL, scores, scores))
    moved = scores + 0.01
    assert gate.check("v1", TRUE + 0.01, ReplicaScores(URL, np.empty(0), moved)).share == pytest.approx(1.0)


def test_weights_of_an_earlier_run_prove_nothing() -> None:
    gate = SyncGate(TRUE)
    assert gate.check("v0", TRUE, ReplicaScores(URL, TRUE - 0.3, TRUE)).share is None
    moved = TRUE + 0.01 * RANDOM.normal(size=N)
    assert gate.check("v1", moved, ReplicaScores(URL, np.empty(0), moved)).share == pytest.approx(1.0)


def mismatch(value: float | None) -> dict[str, float | None]:
    return {"policy/sampler_mismatch_kl": value}


@pytest.mark.parametrize(
    ("first", "highest"),
    [(1e-12, 9e-4), (1e-3, 9e-3)],
)
def test_the_mismatch_may_grow_by_a_factor(first: float, highest: float) -> None:
    limit = MismatchLimit(EngineConfig(name="vllm"))
    for value in (None, first, highest, None):
        assert limit.observe(mismatch(value)) is None
    assert limit.observe(mismatch(highest * 1.2)) is not None


def test_there_is_no_limit_without_an_engine_or_with_staleness() -> None:
    for config in (EngineConfig(), EngineConfig(name="vllm", max_staleness=1)):
        limit = MismatchLimit(config)
        assert limit.observe(mismatch(0.0)) is None
        assert limit.observe(mismatch(5.0)) is None


def test_steps_that_replay_groups_of_earlier_weights_have_no_limit() -> None:
    limit = MismatchLimit(EngineConfig(name="vllm"))
    assert limit.observe(mismatch(1e-3) | {"replay/groups": 0}) is None
    assert limit.observe(mismatch(5.0) | {"replay/groups": 2}) is None
    assert limit.observe(mismatch(5.0) | {"replay/groups": 0}) is not None
