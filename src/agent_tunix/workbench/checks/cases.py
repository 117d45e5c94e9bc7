"""Tables of test cases for a reward: responses, references, and the scores that they must earn.

    reward: math
    cases:
      - {name: right, response: "<answer>4</answer>", answer: "4", expected: 1.0}
      - {name: no number to compare with, response: "4", answer: "many", expected: bad_reference}

| key of a case | meaning |
| --- | --- |
| `response` | text of the completion |
| `expected` | a number; null for "not applicable"; or the name of an outcome |
| `name` | name in the report; by default the number of the case in the table |
| `tolerance` | largest difference from the number; by default the table's, or 1e-6 |
| `reward` | any value of `training.reward_function`; by default the table's |
| `prompt`, `format`, `step` | as in a run |
| any other | a column of the row, such as `answer` |

A table is a YAML file with a list of cases, or with a mapping of `cases`, `reward` and `tolerance`; a JSONL file with
one case per line; or a CSV file with a header, in which `null` means "not applicable".
"""

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_tunix.errors import RewardError, RewardSignatureError
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.rewards.resolve import resolve_reward
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT, CheckProblem
from agent_tunix.workbench.checks.report import shorten
from agent_tunix.workbench.checks.scoring import Scorer, settle_forms

DEFAULT_TOLERANCE = 1e-6

Expected = float | Outcome | None


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a table."""

    name: str
    response: str
    expected: Expected  # expected value, or expected outcome; None for "not applicable"
    columns: Mapping[str, Any] = field(default_factory=dict)  # columns of the row, `answer` among them
    prompt: str = ""
    format: str = ""
    step: int = 0
    tolerance: float | None = None  # largest difference from the expected value; None: the table's
    reward: object = None  # reward that scores the case; None: the table's

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CaseResult:
    """A case and its score."""

    case: Case
    score: Score
    tolerance: float

    @property
    def passed(self) -> bool:
        """True if the score or outcome is the expected one."""
        expected = _outcome_of(self.case.expected)
        if expected is not Outcome.SCORED or self.score.value is None:
            return self.score.outcome is expected
        assert isinstance(self.case.expected, float)
        return abs(self.score.value - self.case.expected) <= self.tolerance

    @property
    def text(self) -> str:
        """The result as text. That of a failure has the expected value, the actual one and the reward's detail."""
        if self.passed:
            return f"passed  {self.case.name}"
        score = f"{self.score.value:g}" if self.score.value is not None else self.score.outcome.value
        near = f" ± {self.tolerance:g}" if isinstance(self.case.expected, float) and self.tolerance > 1e-6 else ""
        lines = [
            f"FAILED  {self.case.name}",
            f"        - expected {_written(self.case.expected)}{near}",
            f"        + got      {score}",
            f"        response   {shorten(self.case.response)}",
        ]
        if "answer" in self.case.columns:
            lines.append(f"        answer     {shorten(str(self.case.columns['answer']))}")
        if self.score.detail:
            lines.append(f"        detail     {self.score.detail}")
        return "\n".join(lines)

    def to_data(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "name": self.case.name,
            "passed": self.passed,
            "expected": _written(self.case.expected),
            "value": self.score.value,
            "outcome": self.score.outcome.value,
            "detail": self.score.detail,
        }


@dataclass(frozen=True, slots=True)
class CasesReport:
    """Results of all cases."""

    results: tuple[CaseResult, ...]

    @property
    def passed(self) -> bool:
        """True if every case passed."""
        return all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """Results that did not pass."""
        return tuple(result for result in self.results if not result.passed)

    @property
    def text(self) -> str:
        """The failures as text, and the number of cases that passed."""
        summary = f"{len(self.results) - len(self.failures)} of {len(self.results)} cases passed"
        return "\n".join([*(result.text for result in self.failures), summary])


def run_cases(
    cases: str | Path | Iterable[Case],
    reward: object = None,
    *,
    tolerance: float | None = None,
    execution: str = "inline",
    timeout_s: float = 10.0,
    allow_unsandboxed: bool = False,
    **finding: Any,
) -> CasesReport:
    """Score all cases and compare the results with the expected ones.

    Args:
        cases: A file, or cases.
        reward: Reward of the cases that name none: any value of `training.reward_function`, or a function.
        tolerance: Tolerance of cases that give none; None: the table's, or 1e-6.
        execution: Where rewards run. With `auto`, your own code gets the limits of training.
        timeout_s: Time limit of a call.
        allow_unsandboxed: True to run uploaded rewards even if this machine cannot isolate them.
        finding: Further arguments of `resolve_reward`, such as `modules` and `args`.

    Raises:
        RewardError: The table cannot be read, or a case has no reward or cannot be scored with it.
    """
    case_list = load_cases(cases) if isinstance(cases, str | Path) else list(cases)
    mixtures: dict[str, Mixture] = {}

    def mixture_of(case: Case) -> Mixture:
        spec = reward if case.reward is None else case.reward
        if spec is None:
            raise RewardError(
                f"case {case.name!r} requires a reward; set `reward` in the case or the table, or give NAME before "
                "CASES",
                code="invalid_cases",
            )
        key = repr(spec)
        if key not in mixtures:
            mixture = spec if isinstance(spec, Mixture) else resolve_reward(spec, **finding)
            if execution != "inline":
                with contextlib.suppress(RewardSignatureError):  # the case itself is then an error
                    settle_forms(
                        mixture,
                        CheckProblem(case.prompt, case.columns),
                        case.response,
                        case.format or DEFAULT_FORMAT,
                        timeout_s=timeout_s,
                        allow_unsandboxed=allow_unsandboxed,
                    )
            runner = make_runner(mixture, execution, timeout_s=timeout_s, allow_unsandboxed=allow_unsandboxed)
            mixtures[key] = stack.enter_context(runner).reward
        return mixtures[key]

    limit_s = timeout_s if execution == "inline" else None  # a built-in may take as long as it needs
    with contextlib.ExitStack() as stack:
        return CasesReport(tuple(run_case(case, mixture_of(case), tolerance, limit_s) for case in case_list))


def run_case(
    case: Case, mixture: Mixture, tolerance: float | None = None, timeout_s: float | None = 10.0
) -> CaseResult:
    """Score one case.

    A case without a tolerance gets `tolerance`, by default 1e-6. A case that lacks a column which the reward requires
    has the outcome `error`. `timeout_s` limits a call in this process (None for no limit); workers have their own
    limit.
    """
    try:
        mixture.check_parameters(case.columns)
    except RewardSignatureError as error:
        score = Score(None, outcome=Outcome.ERROR, detail=str(error))
    else:
        problem = CheckProblem(case.prompt, case.columns)
        score = Scorer(mixture, case.step, case.format or DEFAULT_FORMAT, timeout_s)(problem, case.response)
    own_tolerance = case.tolerance if case.tolerance is not None else tolerance
    return CaseResult(case, score, DEFAULT_TOLERANCE if own_tolerance is None else own_tolerance)


def load_cases(path: str | Path) -> list[Case]:
    """Load the cases of a YAML, JSONL or CSV file.

    Raises:
        RewardError: The file cannot be read, or a case is malformed.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RewardError(f"the table of cases {path} cannot be read: {error}", code="invalid_cases") from error
    match path.suffix.lower():
        case ".yaml" | ".yml":
            entries, common = _read_yaml(text, path)
        case ".jsonl":
            entries, common = _read_jsonl(text, path), {}
        case ".csv":
            entries, common = _read_csv(text, path), {}
        case suffix:
            raise RewardError(
                f"{path} must end in .yaml, .jsonl or .csv, not {suffix or 'without a suffix'}", code="invalid_cases"
            )
    cases = [_case(entry, number, path) for number, entry in enumerate(entries, start=1)]
    if not cases:
        raise RewardError(f"{path} contains no cases", code="invalid_cases")
    tolerance = _tolerance(common.get("tolerance"), str(path))
    return [
        replace(
            case,
            reward=common.get("reward") if case.reward is None else case.reward,
            tolerance=tolerance if case.tolerance is None else case.tolerance,
        )
        for case in cases
    ]


def _read_yaml(text: str, path: Path) -> tuple[list[Any], Mapping[str, Any]]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Loader for which only decimal numbers are numbers: `12:30`, `010`, `.inf` and dates are text."""

    kinds = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp"))
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in kinds]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(kinds[0], re.compile(r"[-+]?(?:0|[1-9][0-9]*)\Z"), list("-+0123456789"))
    decimal = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+|(?:0|[1-9][0-9]*)(?=e))(?:[eE][-+]?[0-9]+)?\Z")
    Loader.add_implicit_resolver(kinds[1], decimal, list("-+.0123456789"))
    try:
        content = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise RewardError(f"{path} is not YAML: {error}", code="invalid_cases") from error
    if isinstance(content, list):
        return content, {}
    if not isinstance(content, Mapping) or not isinstance(content.get("cases"), list):
        raise RewardError(
            f"{path} must contain a list of cases, or a mapping with a list under `cases`", code="invalid_cases"
        )
    unknown = [key for key in content if key not in ("cases", "reward", "tolerance")]
    if unknown:
        raise RewardError(f"{path} has no key {unknown[0]!r}; its keys are cases, reward, tolerance")
    return content["cases"], content


def _read_jsonl(text: str, path: Path) -> list[Any]:
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                entries.append(json.loads(line))
            except ValueError as error:
                raise RewardError(f"{path}, line {number} is not JSON: {error}", code="invalid_cases") from error
    return entries


def _read_csv(text: str, path: Path) -> list[Any]:
    entries: list[Any] = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text, newline=""), strict=True), start=1):
        if None in row or None in row.values():
            raise RewardError(
                f"{path}, case {number} must have as many cells as the header, but does not; quote commas in cells",
                code="invalid_cases",
            )
        cells = {key: value for key, value in row.items() if value != "" or key in ("response", "answer", "expected")}
        columns = {key: _read_column(value) for key, value in cells.items() if key not in _TEXT_CELLS}
        entries.append({**cells, **columns, "expected": _read_cell(cells.get("expected", ""))})
    return entries


def _read_cell(text: str) -> Any:
    return None if text.strip().lower() == "null" else text.strip()


def _read_column(text: str) -> Any:
    """Return the JSON list or object that a cell holds, or else its text."""
    if text.strip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


_OWN_KEYS = ("name", "response", "expected", "prompt", "format", "step", "tolerance", "reward")
# Cells of CSV that are always text: `[1, 2]` is an interval as an answer.
_TEXT_CELLS = (*_OWN_KEYS, "answer")


def _case(entry: Any, number: int, path: Path) -> Case:
    where = f"{path}, case {number}"
    if not isinstance(entry, Mapping):
        raise RewardError(
            f"{where} must be a mapping with `response` and `expected`, not {entry!r}", code="invalid_cases"
        )
    for key in ("response", "expected"):
        if key not in entry:
            raise RewardError(f"{where} has no {key!r}; it has {', '.join(map(str, entry)) or 'nothing'}")
    if not isinstance(entry["response"], str):
        raise RewardError(
            f"{where}: the response must be text, not {entry['response']!r}; quote it", code="invalid_cases"
        )
    columns = {str(key): value for key, value in entry.items() if key not in _OWN_KEYS}
    if isinstance(columns.get("answer"), bool):
        raise RewardError(
            f"{where}: the answer must be text, but YAML reads {columns['answer']}; quote it", code="invalid_cases"
        )
    if isinstance(columns.get("answer"), int | float):
        columns["answer"] = str(columns["answer"])  # most data sets have references as text
    try:
        step = int(entry.get("step") or 0)
    except (TypeError, ValueError):
        raise RewardError(
            f"{where}: the step must be a whole number, not {entry['step']!r}", code="invalid_cases"
        ) from None
    return Case(
        name=str(entry.get("name") or f"case {number}"),
        response=entry["response"],
        expected=_expected(entry["expected"], where),
        columns=columns,
        prompt=str(entry.get("prompt") or ""),
        format=str(entry.get("format") or ""),
        step=step,
        tolerance=_tolerance(entry.get("tolerance"), where),
        reward=entry.get("reward"),
    )


def _expected(value: Any, where: str) -> Expected:
    outcomes = [outcome.value for outcome in Outcome if outcome is not Outcome.SCORED]
    if value is None:
        return None
    if isinstance(value, str) and value in outcomes:
        return Outcome(value)
    if (number := _finite(value)) is not None:
        return number
    raise RewardError(
        f"{where}: expected must be a number, null, or one of {', '.join(outcomes)}, not {value!r}",
        code="invalid_cases",
    )


def _tolerance(value: Any, where: str) -> float | None:
    if value is None:
        return None
    tolerance = _finite(value)
    if tolerance is None or tolerance < 0:
        raise RewardError(f"{where}: the tolerance must be a number of at least 0, not {value!r}", code="invalid_cases")
    return tolerance


def _finite(value: Any) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _outcome_of(expected: Expected) -> Outcome:
    if expected is None:
        return Outcome.NOT_APPLICABLE
    return expected if isinstance(expected, Outcome) else Outcome.SCORED


def _written(expected: Expected) -> str:
    if expected is None:
        return Outcome.NOT_APPLICABLE.value
    return expected.value if isinstance(expected, Outcome) else f"{expected:g}"
