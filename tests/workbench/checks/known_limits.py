"""The table of what `check` notes of every built-in reward, in docs/testing-rewards.md.

    python -m tests.workbench.checks.known_limits

writes it anew; the test of each built-in compares its row.
"""

import logging
import re
from pathlib import Path
from typing import Any

from agent_tunix.rewards import resolve_reward
from agent_tunix.rewards.builtin import BUILTINS
from agent_tunix.workbench.checks import Budget, CheckReport, check_reward
from agent_tunix.workbench.checks.report import Status
from tests.workbench.checks.support import capitals, choices, sums

PAGE = Path(__file__).parents[3] / "docs" / "testing-rewards.md"
# Built-ins that whole numbers are no fit for: what they are checked on instead.
PROBLEMS = {"multiple_choice": choices, "exact_match": capitals, "f1": capitals, "citations": capitals}
ARGS: dict[str, dict[str, Any]] = {
    "json_schema": {"schema": {"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}}
}
# The reference of `code_tests` is a table of tests, which no gold solution made here would pass; `agent` and
# `environment` score episodes alone, and `reasoning_gym` entries of that library. Their own tests hold them.
CHECKED = sorted(set(BUILTINS) - {"agent", "code_tests", "environment", "reasoning_gym"})
COLUMNS = {
    "the gold solution": "gold",
    "the answer alone": "answer alone",
    "the answer without work": "without work",
    "padded with words": "padded",
    "words after it": "words after",
    "written five times": "five times",
    "a wrong answer first": "wrong, right",
    "a wrong answer last": "right, wrong",
}

_VARIATION = re.compile(r"(?:^|; )([a-z ]+?)(?: earns)? (-?[\d.]+(?:e-?\d+)?)")
_EXPLOIT = re.compile(r"earns (\S+) on average")


def check_builtin(name: str) -> CheckReport:
    """Check a built-in on problems that it is made for."""
    mixture = resolve_reward(name, args={name: ARGS[name]} if name in ARGS else None)
    return check_reward(mixture, PROBLEMS.get(name, lambda: sums(6))(), budget=Budget(tries=80, seconds=600.0))


def row_of(name: str, report: CheckReport) -> str:
    """A built-in's line of the table."""
    texts = {(finding.check, finding.status): finding.text for finding in report.findings}
    earned = dict(_VARIATION.findall(texts["variations", Status.NOTED]))
    assert set(earned) == set(COLUMNS), "the columns must be those that `check` reports"
    noted = {check for check, status in texts if status is Status.NOTED}
    assert noted <= {"variations", "levels", "exploit search"}, "the table must have a column for whatever is noted"
    exploit = texts.get(("exploit search", Status.NOTED)) or texts.get(("exploit search", Status.PASSED), "")
    found = _EXPLOIT.search(exploit)
    levels = "two" if ("levels", Status.NOTED) in texts else "more"
    return f"| {' | '.join([f'`{name}`', *(earned[key] for key in COLUMNS), found[1] if found else '–', levels])} |"


def documented_rows() -> dict[str, str]:
    """The lines of the table as the page has them, by built-in."""
    table = PAGE.read_text(encoding="utf-8").split(header(), 1)[1].split("\n\n", 1)[0]
    return {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")}


def header() -> str:
    names = ["Reward", *COLUMNS.values(), "cheap string", "values"]
    return f"| {' | '.join(names)} |\n| --- {'| ---: ' * (len(names) - 2)}| --- |\n"


def main() -> None:
    logging.disable(logging.CRITICAL)  # `debug` tells everything
    before, after = PAGE.read_text(encoding="utf-8").split(header(), 1)
    rows = "\n".join(row_of(name, check_builtin(name)) for name in CHECKED)
    _, _, following = after.partition("\n\n")
    PAGE.write_text(f"{before}{header()}{rows}\n\n{following}", encoding="utf-8")


if __name__ == "__main__":
    main()
