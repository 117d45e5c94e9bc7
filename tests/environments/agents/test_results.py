"""Results of agents with values by turn."""

import json
from pathlib import Path

import pytest

from agent_tunix.environments.agents.results import read_result, read_result_file
from agent_tunix.rewards import Outcome


@pytest.mark.parametrize(
    ("returned", "value", "turns"),
    [
        ({"turns": [0.25, None, 0.5]}, 0.75, (0.25, None, 0.5)),
        ({"reward": 2, "turns": [0.25, 0.5]}, 2.0, (0.25, 0.5)),
        ({"correct": 1.0, "brief": 0.5, "turns": [1.0]}, 1.5, (1.0,)),
        ({"turns": 3.0}, 3.0, ()),  # a component of this name
    ],
)
def test_an_agent_may_score_each_of_its_calls(
    tmp_path: Path, returned: dict[str, object], value: float, turns: tuple[float | None, ...]
) -> None:
    (tmp_path / "result.json").write_text(json.dumps(returned))
    for score in (read_result(returned), read_result_file(tmp_path / "result.json")):
        assert score is not None
        assert (score.value, score.turns) == (value, turns)


@pytest.mark.parametrize("turns", [["good"], [float("nan")], [True, {}]])
def test_turns_that_are_no_numbers_are_an_error(turns: list[object]) -> None:
    score = read_result({"reward": 1.0, "turns": turns})
    assert score is not None
    assert score.outcome is Outcome.ERROR


def test_without_a_scored_turn_the_result_does_not_apply() -> None:
    score = read_result({"turns": [None]})
    assert score is not None
    assert score.outcome is Outcome.NOT_APPLICABLE
