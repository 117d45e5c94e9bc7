"""The batches of an evaluation."""

import pytest

from agent_tunix.evaluation.evaluate import complete_problems
from agent_tunix.training.components import build_components
from tests.training.support import small_run

pytestmark = pytest.mark.slow


def test_completions_are_grouped_by_problem_whatever_the_size_of_a_batch() -> None:
    """The last batch is filled up, and what fills it is dropped."""
    config = small_run("evaluation.num_samples=16", "evaluation.batch_size=5", "evaluation.num_passes=2")
    components = build_components(config)
    found = complete_problems(components.sampler, components.held_out, components.config)
    assert [len(samples) for samples in found] == [2] * 16
    assert found[3][1].rollout_id == "0_3_1"
    assert [samples[0].prompt for samples in found] == [e.prompt for e in components.held_out.examples[:16]]
