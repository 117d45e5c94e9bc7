"""Reward files as people publish them resolve and score without an edit."""

import shutil
from pathlib import Path

import pytest

from agent_tunix.config.schema import Config
from agent_tunix.data import peek_example
from agent_tunix.rewards import Outcome, resolve_reward, settle_completions
from tests.rewards.conventions.shapes import samples

HERE = Path(__file__).parent
CONVENTIONS = {"plain": "plain", "trl": "trl", "miles": "miles", "environment": "environment", "classes": "trl"}
FILES = sorted(file for file in HERE.glob("*/*.py") if file.parent.name in CONVENTIONS)

RESPONSES = (
    "<reasoning>2 + 2 = 4</reasoning><answer>4</answer>",
    "<think>\nfour\n</think>\n<answer>4</answer>",
    'It is obviously {"answer": 4}.',
    "```python\nprint(4)\n```",
    "",
)

# What the five responses above earn.
EXPECTED: dict[str, list[float | None]] = {
    "plain/echo_penalty": [0.0, 0.0, 0.0, 0.0, None],
    "trl/open_r1_format": [0.0, 1.0, 0.0, 0.0, 0.0],
    "miles/exact_match": [1.0, 1.0, 0.0, 0.0, 0.0],
    "environment/group_diversity": [1.1, 1.1, 1.1, 1.1, 0.1],
    "classes/answer_correctness": [1.0, 1.0, 1.0, 1.0, 0.0],
}


def identify(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


@pytest.mark.parametrize("file", FILES, ids=identify)
def test_a_published_file_resolves_and_scores(file: Path, tmp_path: Path) -> None:
    # Copied, so that it is loaded anew: a semaphore that a module keeps belongs to the event loop of its first run.
    shutil.copytree(file.parent, tmp_path / "rewards", ignore=shutil.ignore_patterns("__pycache__"))
    mixture = resolve_reward(f"rewards/{file.name}:reward", working_directory=tmp_path)
    mixture.check_parameters(peek_example(Config()).columns)
    reward = mixture.components[0].reward
    assert reward.convention == CONVENTIONS[file.parent.name]  # type: ignore[attr-defined]
    completions = samples(*RESPONSES)
    settle_completions([reward], completions[0])
    scores = reward.score(completions)
    fine = (Outcome.SCORED, Outcome.NOT_APPLICABLE)
    assert [score.detail for score in scores if score.outcome not in fine] == []
    if (expected := EXPECTED.get(identify(file))) is not None:
        assert [score.value for score in scores] == expected
