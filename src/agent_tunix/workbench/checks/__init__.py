"""Checks of a reward before it trains: tables of cases, invariants, an exploit search, calibration.

    from agent_tunix.workbench.checks import run_cases

    def test_my_reward():
        report = run_cases("cases.yaml", reward="rewards.py:my_reward")
        assert report.passed, report.text

On the command line: `agent-tunix rewards`.
"""

from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import kind_of, range_of
from agent_tunix.workbench.checks.calibration import Calibration, calibrate, wilson_interval
from agent_tunix.workbench.checks.cases import Case, CasesReport, load_cases, run_case, run_cases
from agent_tunix.workbench.checks.checking import check_reward
from agent_tunix.workbench.checks.forms import LabelledCompletion, find_misjudged, generate_completions
from agent_tunix.workbench.checks.fuzzer import Budget
from agent_tunix.workbench.checks.problems import CheckProblem
from agent_tunix.workbench.checks.report import CheckFinding, CheckReport, Status

__all__ = [
    "Budget",
    "Calibration",
    "Case",
    "CasesReport",
    "CheckFinding",
    "CheckProblem",
    "CheckReport",
    "Kind",
    "LabelledCompletion",
    "Status",
    "calibrate",
    "check_reward",
    "find_misjudged",
    "generate_completions",
    "kind_of",
    "load_cases",
    "range_of",
    "run_case",
    "run_cases",
    "wilson_interval",
]
