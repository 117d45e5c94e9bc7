from pathlib import Path

import pytest

from agent_tunix.errors import RewardError, UnknownRewardError
from agent_tunix.rewards import get_reward_function, list_reward_functions, register_reward_function, resolve_reward
from agent_tunix.rewards.execution.worker import build_reward
from tests.raising import raises

from .shapes import samples


def install(site: Path, package: str, code: str, entry_points: str) -> None:
    """Write what an installer leaves of a distribution."""
    (site / f"{package}.py").write_text(code)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[agent_tunix.rewards]\n{entry_points}")
    (info / "RECORD").write_text(f"{package}.py,,\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


CODE = """
from miles.utils.types import Sample

def polite(response):
    return float("please" in response)

async def brief(args, sample: Sample):
    return float(len(sample.response) < 9)

def rude(response):
    return -1.0
"""


def test_a_reward_of_an_installed_package_is_listed_and_found_by_name(site: Path) -> None:
    install(site, "manners", CODE, "polite = manners:polite\nbrief = manners:brief\n")
    assert {"polite", "brief"} <= set(list_reward_functions())
    assert get_reward_function("polite")("please") == 1.0
    mixture = resolve_reward(["polite", "brief"])
    assert [score.value for score in mixture.score(samples("please", "no, certainly not"))] == [2.0, 0.0]
    assert "manners.polite" in mixture.describe()
    recipe = mixture.components[0].reward.recipe  # type: ignore[attr-defined]
    assert recipe.spec == "polite"
    assert build_reward(recipe).score(samples("please"))[0].value == 1.0


def test_a_builtin_and_a_registration_come_before_an_installed_package(site: Path) -> None:
    install(site, "manners3", CODE, "math = manners3:rude\npolite = manners3:rude\n")
    assert get_reward_function("math")("4", answer="4") == 1.0
    register_reward_function("polite", lambda response: 2.0)
    assert get_reward_function("polite")("x") == 2.0


def test_two_packages_with_one_name_are_told(site: Path) -> None:
    install(site, "manners4", CODE, "polite = manners4:polite\n")
    install(site, "manners5", CODE, "polite = manners5:polite\n")
    with raises(RewardError, "invalid_reward", "manners4.polite or manners5.polite"):
        resolve_reward("polite")


@pytest.mark.parametrize(
    ("code", "reason"),
    [("1 / 0", "ZeroDivisionError"), ("import absent_library", "absent_library"), ("", "polite")],
)
def test_a_package_that_is_broken_is_an_error_only_for_who_asks_for_it(site: Path, code: str, reason: str) -> None:
    install(site, f"broken{abs(hash(code)) % 10**6}", code, f"polite = broken{abs(hash(code)) % 10**6}:polite\n")
    assert "polite" in list_reward_functions()  # for which nothing is imported
    assert resolve_reward("math").score(samples("4"))[0].value == 1.0
    with pytest.raises(RewardError, match=reason):
        resolve_reward("polite")


def test_an_unknown_name_lists_them_too(site: Path) -> None:
    install(site, "manners6", CODE, "polite = manners6:polite\n")
    with pytest.raises(UnknownRewardError, match="'polite'"):
        resolve_reward("polit")
