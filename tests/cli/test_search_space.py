import pytest
from tests.raising import raises

from agent_tunix.cli.search_space import read_space
from agent_tunix.errors import ConfigError
from agent_tunix.training.tuning import Choice, SearchRange


@pytest.mark.parametrize(
    ("override", "dimension"),
    [
        ("k=a,b", Choice(("a", "b"))),
        ("k=choice(1,2.5)", Choice(("1", "2.5"))),
        ("k=[1,2],[3]", Choice(("[1,2]", "[3]"))),
        ("k=interval(0,1)", SearchRange(0.0, 1.0)),
        ("k=int(interval(1,9))", SearchRange(1, 9)),
        ("k=tag(log,interval(1e-5,1e-3))", SearchRange(1e-5, 1e-3, log=True)),
        ("k=range(4,17,step=4)", SearchRange(4, 16, step=4)),
        ("k=range(10,0,step=-2)", SearchRange(2, 10, step=2)),
        ("k=range(0.5,2,step=0.5)", SearchRange(0.5, 1.5, step=0.5)),
    ],
)
def test_a_sweep_is_a_dimension(override: str, dimension: object) -> None:
    assert read_space([override]) == ([], {"k": dimension})


def test_the_rest_is_the_same_in_every_trial() -> None:
    overrides = ["seed=1", "+experiment=quick_test", "optimizer=adamw,lion", "reward.components.a={weight: 1}"]
    fixed, space = read_space(overrides)
    assert fixed == [overrides[0], overrides[1], overrides[3]]
    assert space == {"optimizer": Choice(("adamw", "lion"))}


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ("k=interval(1,0)", "invalid_search"),
        ("k=tag(log,interval(0,1))", "invalid_search"),
        ("k=tag(log,range(1,9))", "invalid_search"),
        ("k=range(3,3)", "invalid_search"),
        ("k=glob(*)", "invalid_search"),
        ("k=interval(", "invalid_override"),
    ],
)
def test_an_override_that_cannot_be_searched_is_refused(override: str, code: str) -> None:
    with raises(ConfigError, code):
        read_space([override])
