"""Rows of metrics: the micro-batches of a step, and costs of judges."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from agent_tunix.grpo.update_metrics import describe_updates
from agent_tunix.rewards import Component, Mixture, Sample, resolve_reward
from agent_tunix.training.metrics import judging_metrics
from tests.rewards.judges.endpoint_server import EndpointServer


def record(**values: Any) -> dict[str, Any]:
    defaults = dict.fromkeys(("clip_share_low", "clip_share_high", "entropy", "kl", "loss", "grad_norm"), 0.0)
    defaults["sampler_mismatch_kl"] = 0.0
    norms = {"update_norm": {"": 0.0}, "weight_norm": {"": 1.0}}
    return {**defaults, **norms, "ratio_mean": 1.0, "ratio_max": 1.0, "finite": True, **values}


def describe(*records: dict[str, Any], tokens: list[int], accumulation: int = 2, total_weight: float = 1.0) -> Any:
    return describe_updates(records, np.array(tokens), accumulation, total_weight=total_weight)


def test_losses_are_plain_means_because_they_are_weighed_already() -> None:
    assert describe(record(loss=1.0), record(loss=3.0), tokens=[1, 99])["loss"] == 2.0


def test_shares_and_ratios_count_tokens() -> None:
    found = describe(
        record(clip_share_low=1.0, ratio_mean=2.0, ratio_max=5.0),
        record(clip_share_high=0.5, ratio_mean=1.0, ratio_max=3.0),
        tokens=[10, 30],
    )
    assert (found["clip_share_low"], found["clip_share_high"]) == (0.25, 0.375)
    assert found["clip_share"] == 0.625
    assert (found["ratio_mean"], found["ratio_max"]) == (1.25, 5.0)


def test_a_micro_batch_without_tokens_counts_for_nothing() -> None:
    found = describe(record(ratio_mean=2.0), record(ratio_mean=0.0, ratio_max=0.0), tokens=[10, 0])
    assert found["ratio_mean"] == 2.0


def test_divergence_and_entropy_are_nats_a_token_even_where_the_loss_is_a_sum() -> None:
    """Diagnosis judges them by one measure, whatever the algorithm."""
    found = describe(record(kl=8.0, entropy=40.0, loss=8.0), tokens=[80], accumulation=1, total_weight=20.0)
    assert (found["kl"], found["entropy"], found["loss"]) == (0.4, 2.0, 8.0)


def test_where_no_token_takes_part_there_are_no_means() -> None:
    found = describe(record(), tokens=[0], accumulation=1, total_weight=0.0)
    assert found == {
        **dict.fromkeys(
            ("kl", "clip_share", "clip_share_low", "clip_share_high", "ratio_mean", "ratio_max", "entropy")
        ),
        "loss": 0.0,
        "sampler_mismatch_kl": None,
        "grad_norm": 0.0,
        "update_norm": 0.0,
        "update_ratio": 0.0,
    }


def test_the_likelihood_of_observations_is_a_mean_over_the_batch_and_null_without_them() -> None:
    seen = [record(observation_nll=nll, observation_weight=weight) for nll, weight in ((3.0, 1.5), (0.0, 0.5))]
    assert describe(*seen, tokens=[10, 10])["observation_nll"] == 1.5
    empty = record(observation_nll=0.0, observation_weight=0.0)
    assert describe(empty, tokens=[10], accumulation=1)["observation_nll"] is None


def test_sampling_and_training_are_compared_before_the_policy_moves() -> None:
    seen = [record(sampler_mismatch_kl=value) for value in (1.0, 2.0, 50.0, 60.0)]
    assert describe(*seen, tokens=[30, 10, 30, 10])["sampler_mismatch_kl"] == 1.25


def test_without_a_reference_there_is_no_divergence() -> None:
    without = record()
    del without["kl"]
    assert describe(without, tokens=[3], accumulation=1)["kl"] is None


def test_the_norm_is_that_of_whole_updates_and_of_the_one_that_was_not_finite() -> None:
    norms = [record(grad_norm=value) for value in (1.0, 2.0, 9.0, 4.0)]
    assert describe(*norms, tokens=[1, 1, 1, 1])["grad_norm"] == 3.0
    broken = [*norms[:2], record(grad_norm=np.inf, finite=False)]
    assert describe(*broken, tokens=[1, 1, 1])["grad_norm"] == pytest.approx(np.inf)


@pytest.fixture
def server() -> Iterator[EndpointServer]:
    server = EndpointServer()
    yield server
    server.close()


def judged(server: EndpointServer) -> Mixture:
    args = {"model": "practice", "base_url": server.url, "cache": False, "rubric": "Is it clear?"}
    args |= {"prices": {"prompt": 0, "completion": 100}}
    return resolve_reward({"right": "math", "clear": {"function": "judge", "args": args}})


def test_cost_and_latency_are_those_of_the_step_and_the_total_cost_is_kept(server: EndpointServer) -> None:
    mixture = judged(server)
    for step, responses in enumerate((["yes 4", "no 4", "yes 5"], ["partly 4"]), start=1):
        mixture.score([Sample(response, columns={"answer": "4"}, step=step) for response in responses])
        row = judging_metrics(mixture)
        assert row["throughput/clear/requests"] == len(responses)
        assert row["throughput/clear/cost"] == pytest.approx(len(responses) * 20 * 100 / 1e6)
        assert row["throughput/clear/latency_mean_s"] > 0
    assert row["throughput/clear/cost_total"] == pytest.approx(4 * 20 * 100 / 1e6)
    assert not any(name.startswith("throughput/right") for name in row)


def test_a_judge_of_a_mixture_within_is_logged_under_both_names(server: EndpointServer) -> None:
    outer = Mixture([Component("style", judged(server))])
    outer.score([Sample("yes 4", columns={"answer": "4"})])
    assert judging_metrics(outer)["throughput/style/clear/requests"] == 1
