"""Costs and latencies of judges, logged with their step."""

from collections.abc import Iterator

import pytest

from agent_tunix.rewards import Component, Mixture, Sample, resolve_reward
from agent_tunix.training.metrics import judging_metrics
from tests.rewards.judges.endpoint_server import EndpointServer


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
