import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from agent_tunix.rewards import Outcome
from agent_tunix.workbench.diagnosis import NAMES, Finding, RolloutView, RunContext, Severity, Watch, diagnose
from agent_tunix.workbench.diagnosis.watch import REPEAT_AFTER, WORSE_AFTER
from tests.tiers import slow_after
from tests.workbench.diagnosis.support import MIXTURE, Row, make_context, make_row, make_rows, steady
from tests.workbench.diagnosis.test_detectors import SICK


def failing(step: int, share: float = 0.1) -> Row:
    return make_row(step, rewards__outcomes__scored=128 * (1 - share), rewards__outcomes__error=128 * share)


def test_a_finding_is_said_once_while_it_lasts() -> None:
    watch = Watch(make_context())
    assert [step for step in range(1, 50) if watch.observe(step, failing(step))] == [1]


def test_it_is_said_again_when_it_becomes_graver_and_after_a_long_time() -> None:
    watch = Watch(make_context())
    said = [
        (step, finding.severity)
        for step in range(1, REPEAT_AFTER + 20)
        for finding in watch.observe(step, failing(step, 0.1 if step < 5 else 0.5))
        if finding.severity is not Severity.INFO
    ]
    assert said == [(1, Severity.WARNING), (6, Severity.ERROR), (REPEAT_AFTER + 6, Severity.ERROR)]


def test_what_becomes_worse_quickly_is_not_said_at_every_step() -> None:
    watch = Watch(make_context())
    steps = [step for step in range(1, 40) if watch.observe(step, make_row(step, policy__kl=1.3**step))]
    assert all(later - earlier >= WORSE_AFTER for earlier, later in pairwise(steps[1:]))
    assert 2 <= len(steps) <= 5


def test_causes_come_before_what_they_bring_about() -> None:
    levels = {f"rewards__total__{leaf}": 0.0 for leaf in ("min", "max", "std")}
    rows = steady(8, 0.0, rewards__dead_groups=1.0, completions__clipped_share=1.0, **levels)
    watch = Watch(make_context())
    said = [finding.name for row in rows[1:] for finding in watch.observe(row["step"], row)]
    assert said == ["truncation", "always_zero"]


def test_completions_that_show_a_finding_are_named() -> None:
    views = [
        RolloutView(f"1_0_{n}", 0, "x", None if n % 2 else 1.0, outcome=Outcome.ERROR if n % 2 else Outcome.SCORED)
        for n in range(8)
    ]
    (finding,) = Watch(make_context()).observe(1, failing(1), views)
    assert finding.rollout_ids == ("1_0_1", "1_0_3", "1_0_5")


def test_completions_are_not_looked_at_while_nothing_is_found() -> None:
    def never() -> Iterator[RolloutView]:
        pytest.fail("looked at")
        yield

    assert Watch(make_context()).observe(1, make_row(1), never()) == []


@pytest.mark.parametrize("name", slow_after(4, SICK))
def test_a_resumed_watch_finds_what_an_unbroken_one_does(name: str) -> None:
    rows, spec = SICK[name]
    rows = json.loads(json.dumps(rows))
    unbroken = Watch(make_context(spec))
    whole = [unbroken.observe(row["step"], row) for row in rows]
    for cut in (0, len(rows) // 2, len(rows) - 1):
        resumed = Watch(RunContext.from_data(json.loads(json.dumps(make_context(spec).to_data()))))
        for row in rows[:cut]:
            resumed.observe(row["step"], row)
        assert [resumed.observe(row["step"], row) for row in rows[cut:]] == whole[cut:]


def test_a_diagnosis_has_the_most_severe_first_and_each_once() -> None:
    def row(step: int) -> Row:
        return failing(step, 0.1) | {"policy/kl": 6.0} | {"completions/clipped_share": 0.4 if step < 20 else 0.9}

    findings = diagnose(make_rows(200, row), make_context())
    assert [(finding.name, finding.severity) for finding in findings] == [
        ("kl_runaway", Severity.ERROR),
        ("truncation", Severity.ERROR),
        ("verifier_errors", Severity.WARNING),
        ("no_progress", Severity.INFO),
    ]


def test_a_context_that_requires_an_unknown_component_is_refused() -> None:
    data = make_context().to_data()
    with pytest.raises(ValueError, match="does not exist"):
        RunContext.from_data(data | {"components": [data["components"][0] | {"requires": {"nope": 5.0}}]})


def test_findings_and_contexts_are_plain_data() -> None:
    context = make_context(MIXTURE)
    assert RunContext.from_data(json.loads(json.dumps(context.to_data()))) == context
    (finding,) = diagnose(make_rows(3, failing), context)
    assert Finding.from_data(json.loads(json.dumps(finding.to_data()))) == finding
    for data in ({}, {"name": "x"}, {"name": "x", "severity": "fatal"}):
        with pytest.raises(ValueError, match="a finding has a name"):
            Finding.from_data(data)


def test_a_description_can_be_pasted_into_a_shell() -> None:
    finding = Finding("sparse", Severity.WARNING, 5, "few", edits=("training.reward_function={a: math}",))
    assert finding.describe().splitlines()[-1] == "  try: 'training.reward_function={a: math}'"


def test_the_docs_explain_every_finding_and_no_other() -> None:
    page = (
        (Path(__file__).parents[3] / "docs" / "diagnosis.md").read_text(encoding="utf-8").partition("\n## Diagnosis")[2]
    )
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(NAMES)
