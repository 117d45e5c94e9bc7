import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_tunix.errors import RewardError
from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.shims import OPEN, SERVED, served_imports
from tests.served import served_modules

from .shapes import samples


@pytest.fixture(autouse=True)
def no_package_outlives_its_test() -> Iterator[None]:
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in {*OPEN, "benchmax", "llm_finetuning"}]:
        del sys.modules[name]


MINE = """
from benchmax.envs.reward_helpers import clip01, extract_answer_block, extract_completion_text
from llm_finetuning.core import BaseReward, RewardConfig
from miles.utils.types import Sample
import benchmax.envs.reward_helpers as helpers

async def reward(args, sample: Sample, **kwargs):
    from miles.utils.types import Sample  # as late as this
    assert isinstance(sample, Sample)
    return clip01(extract_answer_block(sample.response))
"""


def test_imports_of_absent_packages_are_served_and_leave_no_trace(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path)
    assert mixture.score(samples("<answer>0.5</answer>"))[0].value == 0.5
    assert served_modules() == set()
    assert importlib.util.find_spec("benchmax") is None
    with pytest.raises(ImportError):
        __import__("miles.utils.types")


def test_an_installed_package_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "site" / "benchmax" / "envs"
    real.mkdir(parents=True)
    (real / "reward_helpers.py").write_text("def clip01(value):\n    return 7.0\n")
    monkeypatch.syspath_prepend(real.parents[1])
    (tmp_path / "mine.py").write_text(
        "from benchmax.envs.reward_helpers import clip01\n\ndef reward(response):\n    return clip01(response)\n"
    )
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path)
    assert mixture.score(samples("1"))[0].value == 7.0
    assert Path(str(sys.modules["benchmax.envs.reward_helpers"].__file__)).is_relative_to(tmp_path)


def test_a_part_that_an_installed_package_lacks_is_served_without_touching_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "miles").mkdir(parents=True)
    (tmp_path / "site" / "miles" / "__init__.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    with served_imports():
        import miles  # type: ignore[import-not-found]
        from miles.utils.types import Sample  # type: ignore[import-not-found]
    assert miles.real
    assert Sample.__name__ == "Sample"
    assert sys.modules["miles"] is miles
    assert not hasattr(miles, "utils")


def test_a_directory_of_the_name_of_a_package_does_not_hide_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benchmax").mkdir()
    (tmp_path / "benchmax" / "mine.py").write_text(
        "from benchmax.bundle import dump_bundle\nfrom benchmax.rewards import clip01\n\n\n"
        "def reward(response):\n    return clip01(response)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mixture = resolve_reward("benchmax/mine.py:reward", working_directory=tmp_path)
    assert mixture.score(samples("1"))[0].value == 1.0


def test_what_is_not_served_is_missing_as_ever(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from llm_finetuning.platform import TrainerClient\n")
    with pytest.raises(RewardError, match=r"llm_finetuning\.platform"):
        resolve_reward("mine.py:reward", working_directory=tmp_path)
    assert served_modules() == set()


BASE_ENV = """
from benchmax.envs.base_env import BaseEnv
from benchmax.envs.types import ToolDefinition


class Whole(BaseEnv):
    async def list_tools(self):
        return [ToolDefinition("look", "Look.")]

    async def run_tool(self, rollout_id, tool_name, **tool_args):
        return "walls"

    async def compute_reward(self, rollout_id, messages, task, **kwargs):
        return {"right": float(task["ground_truth"] == messages[-1]["content"])}
"""


def test_a_whole_environment_loads_and_its_reward_scores_a_completion(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(BASE_ENV)
    mixture = resolve_reward("whole.py:Whole", working_directory=tmp_path)
    assert mixture.score(samples("4"))[0].value == 1.0
    assert "without its tools" in mixture.components[0].reward.describe()


@pytest.mark.parametrize("module", SERVED)
def test_every_name_that_is_served_exists(module: str) -> None:
    with served_imports():
        __import__(module)
        assert all(hasattr(sys.modules[module], name) for name in SERVED[module])


ROLLOUT = """
from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post
from slime.utils.types import Sample
from fastmcp import Client
from fastmcp.exceptions import ToolError
import verifiers as vf

async def generate(args, sample: Sample, client: Client | None = None, state: vf.State | None = None) -> Sample:
    return await post(GenerateState(args).url, {})

async def reward(args, sample, **kwargs):
    assert isinstance(sample, Sample)
    try:
        return float(sample.response)
    except ToolError:
        return 0.0

async def needs(args, sample, **kwargs):
    return await generate(args, sample)
"""


def test_a_file_with_a_rollout_loads_and_its_reward_scores(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ROLLOUT)
    mixture = resolve_reward("mine.py:reward", working_directory=tmp_path)
    assert mixture.score(samples("0.5"))[0].value == 0.5
    (score,) = resolve_reward("mine.py:needs", working_directory=tmp_path).score(samples("0.5"))
    assert "slime is not installed" in score.parts["needs"].detail
    assert {name.partition(".")[0] for name in sys.modules} & {*OPEN} == set()


@pytest.mark.parametrize("execution", ["inline", "process"])
def test_a_file_given_by_its_path_imports_from_its_directory_and_the_working_directory(
    execution: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"package_{execution}"
    (tmp_path / "wd" / package).mkdir(parents=True)
    (tmp_path / "wd" / package / "scoring.py").write_text("def right(text, truth):\n    return float(truth in text)\n")
    for name in ("train", "later"):
        (tmp_path / "wd" / name).mkdir()
        (tmp_path / "wd" / name / "mine.py").write_text(
            f"import {name}_{execution}\n"
            "def reward(completions, answer, **kwargs):\n"
            f"    from {package}.scoring import right\n"
            f"    return [right(text, truth) + {name}_{execution}.VALUE for text, truth in zip(completions, answer)]\n"
        )
        (tmp_path / "wd" / name / f"{name}_{execution}.py").write_text("VALUE = 1\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    specs = {name: f"{name}/mine.py:reward" for name in ("train", "later")}
    mixture = resolve_reward(specs, working_directory=tmp_path / "wd", completions="text")
    with make_runner(mixture, execution, num_workers=1) as runner:
        (score,) = runner.reward.score(samples("It is 4."))
    assert score.value == 4.0, score.detail
    assert sys.path.index(str(tmp_path / "wd")) > sys.path.index(str(tmp_path / "wd" / "later"))
