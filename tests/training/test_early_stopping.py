"""The best step so far, by a metric, and the end of patience."""

from typing import Any

from agent_tunix.config.schema import StoppingConfig
from agent_tunix.errors import ConfigError
from agent_tunix.runs.early_stopping import BestSoFar
from tests.raising import raises


def observed(values: list[Any], every: int = 1, **settings: Any) -> BestSoFar:
    best = BestSoFar(StoppingConfig(metric="eval/accuracy", **settings))
    for step, value in enumerate(values):
        best.observe(step, {"eval/accuracy": value}, judged=step % every == 0)
    return best


def test_the_highest_is_the_best() -> None:
    best = observed([0.1, 0.5, 0.4, 0.5])
    assert (best.step, best.value, best.waited) == (1, 0.5, 2)


def test_the_lowest_is_the_best_where_less_is_better() -> None:
    assert observed([0.5, 0.1, 0.4], mode="min").step == 1


def test_a_gain_within_the_smallest_that_counts_is_none() -> None:
    assert observed([0.5, 0.51, 0.53], min_delta=0.02).step == 2


def test_the_run_may_end_when_patience_has_run_out() -> None:
    assert observed([0.5, 0.4, 0.4], patience=3).reason_to_stop is None
    reason = observed([0.5, 0.4, 0.4, 0.4], patience=3).reason_to_stop
    assert reason == (
        "eval/accuracy has not improved on 0.5, the value of step 0, for 3 judgements (stopping.patience=3)"
    )


def test_without_patience_the_run_goes_to_its_end() -> None:
    assert observed([0.5] + [0.0] * 50).reason_to_stop is None


def test_a_metric_of_every_step_is_judged_by_its_mean_since_it_was_judged_last() -> None:
    best = observed([0.0, 1.0, 0.0, 0.4, 0.6], every=2)
    assert (best.step, best.value) == (2, 0.5)
    assert best.last_step == 4


def test_an_unknown_value_is_no_judgement() -> None:
    best = observed([0.5, None, None, None], patience=1)
    assert best.reason_to_stop is None
    assert best.waited == 0


def test_a_metric_that_no_row_has_is_refused_with_the_nearest() -> None:
    best = BestSoFar(StoppingConfig(metric="rewards/orcale/mean"))
    best.observe(0, {"eval/accuracy": 0.1}, judged=True)
    with raises(ConfigError, "unknown_metric") as caught:
        best.observe(1, {"rewards/oracle/mean": 0.1, "policy/kl": 0.0}, judged=False)
    assert "did you mean rewards/oracle/mean" in str(caught.value)


def test_without_a_metric_nothing_is_judged() -> None:
    assert not BestSoFar(StoppingConfig()).observe(1, {}, judged=True)
