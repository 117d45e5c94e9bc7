"""Watch over a run: rows in, findings out, each reported once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_tunix.workbench.diagnosis.agents import AgentForks
from agent_tunix.workbench.diagnosis.components import Dominance, Gates, Schedules
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector, number
from agent_tunix.workbench.diagnosis.engines import EngineContext, EngineMismatch
from agent_tunix.workbench.diagnosis.episodes import CallsRewarded, LimitedEpisodes, ToolUse
from agent_tunix.workbench.diagnosis.findings import ALWAYS, Finding, Severity
from agent_tunix.workbench.diagnosis.hacking import FormOnly, LengthHacking, OracleDown
from agent_tunix.workbench.diagnosis.learning import (
    Collapsed,
    DeadGroups,
    EntropyCollapse,
    KlRunaway,
    NoProgress,
    RewardCollapse,
    SamplerMasked,
)
from agent_tunix.workbench.diagnosis.values import Clustered, Constant, Sparse
from agent_tunix.workbench.diagnosis.verifier import Noisy, Truncated, VerifierErrors
from agent_tunix.workbench.diagnosis.views import NUM_SHOWN, RolloutView

DETECTORS: tuple[type[Detector], ...] = (
    Constant,
    VerifierErrors,
    Truncated,
    ToolUse,
    LimitedEpisodes,
    AgentForks,
    EngineMismatch,
    EngineContext,
    KlRunaway,
    SamplerMasked,
    Collapsed,
    RewardCollapse,
    Gates,
    Schedules,
    Noisy,
    FormOnly,
    LengthHacking,
    CallsRewarded,
    OracleDown,
    Dominance,
    Clustered,
    Sparse,
    EntropyCollapse,
    DeadGroups,
    NoProgress,
)
"""Detectors in the order of causes: of two findings of one step, a possible cause of the other comes first.

A reward that never varied comes before all, because nothing can be learned from it.
"""

NAMES = tuple(name for detector in DETECTORS for name in detector.names)
"""Names of all findings."""

WORSE = 2.0
"""A finding is repeated when its measure has grown by this factor since the last report."""
WORSE_AFTER = 10
"""Fewest steps between such repeats. A finding whose severity has risen is repeated at once."""
REPEAT_AFTER = 100
"""A finding that lasts is repeated after this many steps."""


@dataclass(slots=True)
class _Said:
    step: int
    severity: Severity
    measure: float


class Watch:
    """Watch that follows a run and reports what is wrong.

    Its findings depend only on the rows it was shown. A resumed run that shows it the stored rows continues like an
    uninterrupted one.
    """

    def __init__(self, context: RunContext) -> None:
        self._detectors = [detector(context) for detector in DETECTORS]
        self._said: dict[tuple[str, str], _Said] = {}
        self.current: list[Detection] = []  # of the last row, whether they are news or not

    def observe(self, step: int, row: Mapping[str, Any], rollouts: Iterable[RolloutView] = ()) -> list[Finding]:
        """Add the row of a step.

        Args:
            step: Number of the step, from 1; 0 for the evaluation before training, which gives no findings.
            row: Metrics by name, as in `metrics.jsonl`.
            rollouts: Completions of the step; read only if there is a new finding.

        Returns:
            Findings that are new or have become worse, causes first.
        """
        if number(row, "eval/accuracy") is not None:
            for detector in self._detectors:
                detector.has_accuracy = True
        detections = [detection for detector in self._detectors for detection in detector.observe(step, row)]
        self.current = detections
        fresh = [detection for detection in detections if self._is_news(step, detection)]
        views = list(rollouts) if fresh else []
        findings = []
        for detection in fresh:
            key = (detection.name, detection.subject)
            self._said[key] = _Said(step, detection.severity, detection.measure)
            findings.append(_finding(step, detection, views))
        return findings

    def _is_news(self, step: int, detection: Detection) -> bool:
        earlier = self._said.get((detection.name, detection.subject))
        if earlier is None:
            return True
        since = step - earlier.step
        return (
            detection.severity.rank > earlier.severity.rank
            or (since >= WORSE_AFTER and detection.measure >= WORSE * earlier.measure)
            or since >= REPEAT_AFTER
        )


def _finding(step: int, detection: Detection, views: list[RolloutView]) -> Finding:
    examples = []
    for view in detection.pick(views):
        examples.append(view.rollout_id)
        if len(examples) == NUM_SHOWN:
            break
    text = detection.tell(views)
    return Finding(
        detection.name,
        detection.severity,
        step,
        f"{detection.summary}; {text}" if text else detection.summary,
        detection.subject,
        dict(detection.evidence),
        tuple(examples),
        detection.edits,
    )


def diagnose(
    rows: Iterable[Mapping[str, Any]],
    context: RunContext,
    rollouts: Callable[[int], Iterable[RolloutView]] = lambda step: (),
) -> list[Finding]:
    """Return the findings of a recorded run.

    Args:
        rows: Metrics, step by step.
        context: Further facts about the run.
        rollouts: Function that returns the completions of a step; called only if there is a new finding.

    Returns:
        Each finding once, in its last state of the highest severity. The most severe come first, and among equals a
        reward that never varied, then the earliest.
    """
    watch = Watch(context)
    order: dict[tuple[str, str], int] = {}
    worst: dict[tuple[str, str], Finding] = {}
    for row in rows:
        step = int(row["step"])
        for finding in watch.observe(step, row, _lazily(rollouts, step)):
            key = (finding.name, finding.subject)
            order.setdefault(key, len(order))
            if key not in worst or finding.severity.rank >= worst[key].severity.rank:
                worst[key] = finding
    for detection in watch.current:
        key = (detection.name, detection.subject)
        if detection.name in ALWAYS and detection.severity is worst[key].severity:  # it covers all steps of the run
            worst[key] = replace(worst[key], summary=detection.summary, evidence=dict(detection.evidence))
    return sorted(worst.values(), key=lambda f: (f.urgency, order[f.name, f.subject]))


def _lazily(rollouts: Callable[[int], Iterable[RolloutView]], step: int) -> Iterable[RolloutView]:
    yield from rollouts(step)
