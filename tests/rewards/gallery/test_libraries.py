"""Files in the shapes that libraries document score here what they score there, inline and in workers."""

import shutil
from pathlib import Path

import pytest

from agent_tunix.rewards import Outcome, Sample, resolve_reward
from agent_tunix.rewards.conventions import Convention
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.loading import load_file

from .native import CALLS, native_scores

HERE = Path(__file__).parent
# Name of the function, by library, and its convention where that has another name.
NAMES = {"verl": "compute_score", "openrlhf": "reward_func", "slime": "reward_func", "ms_swift": "mine"} | {
    "verifiers": "reward",
    "benchmax": "match",
}
CONVENTIONS = {"slime": "miles", "classes": "trl"}
FILES = sorted(file for library in CALLS for file in (HERE / library).glob("*.py"))
ROW = {
    "question": "2 + 2?",
    "answer": "4",
    "label": "4",
    "solution": "<answer>4</answer>",
    "data_source": "openai/gsm8k",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"split": "train", "index": 3, "answer": "2 + 2 = 4\n#### 4"},
    "info": {"keywords": ["two", "4"]},
}
RESPONSES = (
    "<reasoning>2 + 2 = 4</reasoning><answer>4</answer>",
    "<think>\nfour\n</think>\n<answer>4</answer>",
    "two and two\n#### 4",
    "<answer>5</answer> or so, or so, or so",
    "It is 44 and <answer> 4 </answer>",
    "no idea #### 7" + " or seven" * 60,
    "",
)
CASES = [
    Sample(
        response,
        prompt="2 + 2?",
        messages=({"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": response}),
        columns=ROW,
        step=2,
        max_steps=8,
        rollout_id=f"2_0_{place}",
        ended=place != 4,
        index=place,
    )
    for place, response in enumerate(RESPONSES)
]


def identify(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def spec_of(file: Path) -> str:
    return f"{file}:{NAMES.get(file.parent.name, 'reward')}"


@pytest.fixture
def copied(tmp_path: Path) -> dict[str, Path]:
    """The files by library and name, copied, so that each is loaded anew."""
    copies = {}
    for file in FILES:
        copies[identify(file)] = tmp_path / file.parent.name / file.name
        copies[identify(file)].parent.mkdir(exist_ok=True)
        shutil.copy(file, copies[identify(file)])
    return copies


def test_each_library_has_five_files() -> None:
    counts = {library: len(list((HERE / library).glob("*.py"))) for library in [*CALLS, "environment"]}
    assert counts == dict.fromkeys(counts, 5)


@pytest.mark.parametrize("name", [*map(identify, FILES)])
def test_a_file_scores_what_its_library_scores(name: str, copied: dict[str, Path]) -> None:
    library = name.partition("/")[0]
    expected = native_scores(library, load_file(copied[name]), CASES)
    assert len({*expected}) > 1
    reward = resolve_reward(spec_of(copied[name])).components[0].reward
    assert isinstance(reward, Convention)
    reward.check_parameters(ROW)
    assert reward.convention == CONVENTIONS.get(library, library)
    scores = reward.score(CASES)
    assert [score.value for score in scores] == pytest.approx(expected), [score.detail for score in scores]


def test_files_score_the_same_in_workers(copied: dict[str, Path]) -> None:
    expected = {
        name.replace("/", "-"): native_scores(name.partition("/")[0], load_file(file), CASES)
        for name, file in copied.items()
    }
    specs = {name.replace("/", "-"): spec_of(file) for name, file in copied.items()}
    with make_runner(resolve_reward(specs), "process", num_workers=2) as runner:
        scores = runner.reward.score(CASES)
    for name, values in expected.items():
        parts = [score.parts[name] for score in scores]
        assert {part.outcome for part in parts} <= {Outcome.SCORED, Outcome.NOT_APPLICABLE}, name
        assert [part.value for part in parts] == pytest.approx(values), name
