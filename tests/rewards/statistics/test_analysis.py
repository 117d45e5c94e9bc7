import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_tunix.rewards import RewardAnalysis, Sample
from tests.rewards.statistics.support import mixture_of


def analysis_of(values: list[Any], **options: Any) -> dict[str, Any]:
    analysis = RewardAnalysis(**options)
    mixture = mixture_of("a")
    for step, value in enumerate(values, start=1):
        samples = [Sample(f"response {step}", prompt="p", columns={"a": value, "answer": "4"}, step=step)]
        analysis.add(samples, mixture.score(samples))
    return analysis.report()


def test_the_analysis_keeps_the_best_and_the_worst() -> None:
    report = analysis_of([3.0, 1.0, 2.0, 5.0, 4.0, 5.0], num_examples=2)
    assert [example["response"] for example in report["top"]] == ["response 4", "response 6"]
    assert [example["total"] for example in report["bottom"]] == [1.0, 2.0]
    assert report["top"][0]["answer"] == "4"
    ties = analysis_of([1.0] * 9, num_examples=2)
    assert [example["step"] for example in ties["top"]] == [1, 2]


def test_a_replayed_completion_has_the_step_that_trained_it() -> None:
    analysis, sample = RewardAnalysis(), Sample("r", prompt="p", columns={"a": 1.0}, step=2, rollout_id="4_0_0")
    analysis.add([sample], mixture_of("a").score([sample]), 4)
    assert analysis.report()["top"][0]["step"] == 4


def test_the_analysis_shows_failures_with_their_reason() -> None:
    report = analysis_of([1.0, math.nan, None, math.nan, math.nan], num_examples=2)
    assert all(len(failures) <= 2 for failures in report["failures"].values())
    assert report["outcomes"] == {"scored": 1, "not_applicable": 1, "bad_reference": 0, "error": 3, "timeout": 0}
    assert [failure["step"] for failure in report["failures"]["error"]] == [2, 4]
    assert "returned nan" in report["failures"]["error"][0]["detail"]


@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=1, max_size=50))
def test_moments_equal_a_numpy_oracle(values: list[float]) -> None:
    report = analysis_of(values)["total"]
    array = np.array(values)
    assert report["count"] == len(values)
    assert report["mean"] == pytest.approx(array.mean(), abs=1e-9)
    assert report["variance"] == pytest.approx(array.var(), abs=1e-7)
    if array.std() > 1e-3:
        skew = np.mean((array - array.mean()) ** 3) / array.std() ** 3
        assert report["skew"] == pytest.approx(skew, abs=1e-4)


def test_an_empty_analysis_is_a_report_too() -> None:
    json.dumps(RewardAnalysis().report(), allow_nan=False)
    assert RewardAnalysis().report()["total"]["mean"] is None


def test_tiny_rewards_have_a_skew() -> None:
    total = analysis_of([math.exp(-260), math.exp(-300), math.exp(-320)])["total"]
    assert math.isfinite(total["skew"])
