"""Results of agents, as scores."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.rewards.conventions.components import score_of_entry, sum_components
from agent_tunix.rewards.conventions.values import to_score
from agent_tunix.rewards.sample import Outcome, Score

_EXPECTED = "an agent returns a number, a bool, a dict of numbers, a Score, or None"
# Entry of a dict that is the score by itself; the others are only tracked.
_TOTAL = "reward"
# Entry of a dict with one value for each call of the policy.
_TURNS = "turns"


def read_result(returned: Any) -> Score | None:
    """Return the score of what an agent returned; None if it returned None.

    A dict of numbers scores their sum, with each as a component. If it has the entry `reward`, this is the score. The
    entry `turns` is a list of what each call of the policy earned, or None for a call without a score: `Score.turns`.
    By itself, it scores its sum. An object with a `value`, such as a score of another library, scores this value.
    Anything else is an error.
    """
    if returned is None:
        return None
    if isinstance(returned, Mapping) and isinstance(turns := returned.get(_TURNS), list | tuple):
        others = {name: value for name, value in returned.items() if name != _TURNS}
        try:
            of_turns = Score.of_turns(turns)
        except (TypeError, ValueError) as error:
            return Score.failed(Outcome.ERROR, f"returned {_TURNS} that cannot be used: {error}")
        score = read_result(others) if others else of_turns
        assert score is not None  # it is a dict
        return score if score.value is None else replace(score, turns=of_turns.turns or tuple(turns))
    if isinstance(returned, Mapping):
        return score_of_entry(returned, _TOTAL, _EXPECTED) if _TOTAL in returned else sum_components(returned, {})
    if not isinstance(returned, Score) and not hasattr(returned, "__float__") and hasattr(returned, "value"):
        returned = returned.value
    return to_score(returned, _EXPECTED)


def read_result_file(file: Path) -> Score | None:
    """Return the score that a command wrote as JSON to a file; None if it wrote nothing."""
    try:
        text = file.read_text(encoding="utf-8").strip()
        return read_result(json.loads(text)) if text else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return Score.failed(Outcome.ERROR, f"wrote something other than JSON to AGENT_TUNIX_RESULT: {error}")
