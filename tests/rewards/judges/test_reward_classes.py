"""Classes that derive from llm-finetuning's judges, with a stand-in for DeepEval, whose metrics answer from a table."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.conventions import Convention
from agent_tunix.rewards.execution import make_runner
from tests.rewards.judges.conftest import STAND_IN, forget_deepeval

MINE = """
from typing import ClassVar
from llm_finetuning.core.llm_judges import AbstractDeepEvalGEvalRAGReward, DeepEvalAnswerRelevancyReward
from llm_finetuning.core.reward import RewardConfig

class Medical(AbstractDeepEvalGEvalRAGReward):
    rag_criteria: ClassVar[str] = "Is it right?"

    def __init__(self) -> None:
        super().__init__(RewardConfig(name="medical"))

class Relevant(DeepEvalAnswerRelevancyReward):
    pass
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory with a reward file, and with a stand-in for DeepEval beside it."""
    shutil.copytree(STAND_IN / "deepeval", tmp_path / "deepeval")
    (tmp_path / "mine.py").write_text(MINE)
    forget_deepeval()
    yield tmp_path
    forget_deepeval()


def samples(*responses: str, **columns: Any) -> list[Sample]:
    return [Sample(text, prompt="2 + 2?", columns={"answer": "4", **columns}) for text in responses]


@pytest.mark.parametrize("place", ["inline", "process"])
def test_a_subclass_with_criteria_judges_by_the_reference_and_the_context(directory: Path, place: str) -> None:
    mixture = resolve_reward("mine.py:Medical", working_directory=directory)
    with make_runner(mixture, place, num_workers=1) as runner:
        assert [one.value for one in runner.reward.score(samples("4", "5"))] == [0.5, 0.0]
        found = runner.reward.score(samples("4", retrieval_context=["It is 4."]))
    assert [one.value for one in found] == [1.0]


def test_a_failed_judgement_costs_its_own_completion(directory: Path) -> None:
    mixture = resolve_reward("mine.py:Medical", working_directory=directory)
    scores = mixture.score(samples("4", "broken", "unsure"))
    assert [one.outcome for one in scores] == [Outcome.SCORED, Outcome.ERROR, Outcome.ERROR]
    assert "no verdict" in scores[1].parts["Medical"].detail


def test_a_judge_without_a_reference(directory: Path) -> None:
    reward = resolve_reward("mine.py:Relevant", working_directory=directory).components[0].reward
    assert isinstance(reward, Convention)
    assert [one.value for one in reward.score(samples("2 + 2? 4", "4"))] == [1.0, 0.0]


def test_a_subclass_without_criteria_is_refused(directory: Path) -> None:
    (directory / "none.py").write_text(MINE.replace('"Is it right?"', '" "'))
    with pytest.raises(RewardError, match="must set `rag_criteria`"):
        resolve_reward("none.py:Medical", working_directory=directory)
