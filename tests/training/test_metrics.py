"""The rows of a real run against the page that documents them, and what is written with statistics off."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import Outcome
from tests.training.support import train_run

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
COMPONENTS = ("correct", "tags", "lengthy", "flaky", "oracle")
MIXTURE = (
    "{correct: math, tags: {function: format, weight: 0.5},"
    " lengthy: {function: 'its_rewards.py:Lengthy', weight: -0.1, requires: {tags: 0.0}, transform: [rank]},"
    " flaky: {function: 'its_rewards.py:flaky', weight: 0.1}, oracle: {function: check_numbers, weight: 0.0}}"
)
REWARDS = '''\
class Lengthy:
    """The length of the response, in parts."""

    def compute_reward(self, rollout_id, messages, task):
        text = messages[-1]["content"]
        return {"characters": len(text) / 100, "words": float(len(text.split()))}


def flaky(response):
    """1, but for some responses, on which it breaks."""
    if len(response) % 3 == 0:
        raise ValueError("it broke")
    return 1.0
'''
SETTINGS = (
    "training.eval_every_n_steps=2",
    "evaluation.num_passes=2",
    "rewards.execution=inline",
    "rewards.max_failure_rate=1.0",
    f"training.reward_function={MIXTURE}",
)


def train(root: Path, *overrides: str) -> list[dict[str, Any]]:
    (root.parent / "its_rewards.py").write_text(REWARDS)
    train_run(root, *SETTINGS, *overrides)
    return [json.loads(line, parse_constant=pytest.fail) for line in (root / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return train(tmp_path_factory.mktemp("metrics") / "run")


def documented() -> list[tuple[str, str]]:
    """The metrics of the page and when each is written, braces taken apart."""
    found = []
    for line in PAGE.read_text().splitlines():
        if row := re.fullmatch(r"\| `([^`]+)` \|.*\| ([^|]+) \|", line):
            parts = [part.split(",") for part in re.split(r"[{}]", row[1])]
            found += [("".join(choice), row[2]) for choice in itertools.product(*parts)]
    assert len(found) > 50
    return found


def pattern_of(name: str) -> re.Pattern[str]:
    components = "|".join(COMPONENTS)
    meaning = {
        "<series>": f"(total|{components}|({components})/transformed)",
        "<component>": f"({components})",
        "<outcome>": f"({'|'.join(Outcome)})",
        "<name>": "[^/]+",
        "<k>": r"\d+",
    }
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in re.split(r"(<\w+>)", name)))


def test_every_metric_that_a_run_writes_is_documented(rows: list[dict[str, Any]]) -> None:
    patterns = [pattern_of(name) for name, _ in documented()]
    written = {name for row in rows for name in row} - {"step"}
    assert [name for name in sorted(written) if not any(pattern.fullmatch(name) for pattern in patterns)] == []


def test_every_metric_that_is_documented_as_written_is(rows: list[dict[str, Any]]) -> None:
    evaluated = [row for row in rows if row["step"] in (0, 2, 4)]
    due = {"always": rows[1:], "by default": rows[1:], "at evaluations": evaluated}
    due["with `evaluation.num_passes` above 1"] = evaluated
    for name, when in documented():
        wanted = [name.replace("<series>", series).replace("<component>", series) for series in COMPONENTS]
        wanted = [each.replace("<outcome>", "scored").replace("<k>", "2") for each in wanted]
        for row in due.get(when, []):
            assert set(wanted) - row.keys() == set(), row["step"]


def test_what_depends_on_the_reward_was_written_too(rows: list[dict[str, Any]]) -> None:
    """So that the run above speaks for the optional metrics as well."""
    optional = [name for name, when in documented() if when in ("for pairs with a weight", "with a gate")]
    optional += [name for name, when in documented() if when == "where there are any" and "logged" not in name]
    written = {name for row in rows for name in row}
    assert [name for name in optional if not any(map(pattern_of(name).fullmatch, written))] == []


def test_shares_and_causes_are_whole_in_a_real_run(rows: list[dict[str, Any]]) -> None:
    for row in rows[1:]:
        causes = ("all_highest", "all_lowest", "tied", "unscored")
        assert sum(row[f"rewards/groups/{cause}"] for cause in causes) == pytest.approx(row["rewards/dead_groups"])
        shares = [row[f"rewards/{name}/advantage_share"] for name in COMPONENTS]
        assert shares == [None] * len(shares) or sum(shares) == pytest.approx(1.0)


def test_without_statistics_only_what_is_documented_as_always_is_left(tmp_path: Path) -> None:
    rows = train(tmp_path / "run", "training.log_reward_stats=false", "training.num_batches=1")
    left_out = [pattern_of(name) for name, when in documented() if when in ("by default", "for pairs with a weight")]
    assert [name for name in rows[1] if any(pattern.fullmatch(name) for pattern in left_out)] == []
    always = {name for name, when in documented() if when == "always" and "<" not in name}
    assert always - rows[1].keys() == set()
