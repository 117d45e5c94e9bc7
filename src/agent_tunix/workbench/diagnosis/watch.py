"""The doctor's round: rows in, findings out, each said once."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent_tunix.workbench.diagnosis.components import Dominance, Gates, Schedules
from agent_tunix.workbench.diagnosis.context import RunContext
from agent_tunix.workbench.diagnosis.detecting import Detection, Detector
from agent_tunix.workbench.diagnosis.findings import Finding, Severity
from agent_tunix.workbench.diagnosis.hacking import FormOnly, LengthHacking, OracleDown
from agent_tunix.workbench.diagnosis.learning import Collapsed, DeadGroups, EntropyCollapse, KlRunaway, RewardCollapse
from agent_tunix.workbench.diagnosis.noise import Noisy
from agent_tunix.workbench.diagnosis.values import Clustered, Constant, Sparse
from agent_tunix.workbench.diagnosis.verifier import Truncated, VerifierErrors
from agent_tunix.workbench.diagnosis.views import NUM_SHOWN, RolloutView

DETECTORS: tuple[type[Detector], ...] = (
    VerifierErrors,
    Truncated,
    KlRunaway,
    Collapsed,
    RewardCollapse,
    Gates,
    Schedules,
    Noisy,
    FormOnly,
    LengthHacking,
    OracleDown,
    Dominance,
    Constant,
    Clustered,
    Sparse,
    EntropyCollapse,
    DeadGroups,
)
"""In the order of causes: of two findings of one step, the one that may bring the other about comes first."""

NAMES = tuple(name for detector in DETECTORS for name in detector.names)
"""Every finding there is."""

WORSE = 2.0
"""A finding is repeated when its measure is so many times that of the last time."""
WORSE_AFTER = 10
"""But not before so many steps; at once only when it has become graver."""
REPEAT_AFTER = 100
"""And, while it lasts, after so many steps."""


@dataclass(slots=True)
class _Said:
    step: int
    severity: Severity
    measure: float


class Watch:
    """Follows a run and says what is the matter with it.

    It is a function of the rows it was shown: a resumed run that shows it the rows it keeps goes on as an unbroken one.

    Args:
        context: The run.
    """

    def __init__(self, context: RunContext) -> None:
        self._detectors = [detector(context) for detector in DETECTORS]
        self._said: dict[tuple[str, str], _Said] = {}

    def observe(self, step: int, row: Mapping[str, Any], rollouts: Iterable[RolloutView] = ()) -> list[Finding]:
        """Take in the row of a step.

        Args:
            step: From 1; 0 for the evaluation before training, which no finding follows from.
            row: Its metrics by name, as `metrics.jsonl` holds them.
            rollouts: Its completions, looked at only if there is something to find.

        Returns:
            What was not found before, or has become worse since, causes first.
        """
        detections = [detection for detector in self._detectors for detection in detector.observe(step, row)]
        fresh = [detection for detection in detections if self._is_news(step, detection)]
        views = list(rollouts) if fresh else []
        findings = []
        for detection in fresh:
            key = (detection.name, detection.subject)
            self._said[key] = _Said(step, detection.severity, detection.measure)
            findings.append(_finding(step, detection, views))
        return findings

    def _is_news(self, step: int, detection: Detection) -> bool:
        said = self._said.get((detection.name, detection.subject))
        if said is None:
            return True
        since = step - said.step
        return (
            detection.severity.rank > said.severity.rank
            or (since >= WORSE_AFTER and detection.measure >= WORSE * said.measure)
            or since >= REPEAT_AFTER
        )


def _finding(step: int, detection: Detection, views: list[RolloutView]) -> Finding:
    shown = []
    for view in detection.pick(views):
        shown.append(view.rollout_id)
        if len(shown) == NUM_SHOWN:
            break
    told = detection.tell(views)
    return Finding(
        detection.name,
        detection.severity,
        step,
        f"{detection.summary}; {told}" if told else detection.summary,
        detection.subject,
        dict(detection.evidence),
        tuple(shown),
        detection.edits,
    )


def diagnose(
    rows: Iterable[Mapping[str, Any]],
    context: RunContext,
    rollouts: Callable[[int], Iterable[RolloutView]] = lambda step: (),
) -> list[Finding]:
    """What is the matter with a run that was recorded.

    Args:
        rows: Its metrics, step by step.
        context: What else is known of it.
        rollouts: The completions of a step, asked for only where there is something to find.

    Returns:
        Each finding once, as it was when it was worst, the most severe first and of those the earliest.
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
    return sorted(worst.values(), key=lambda f: (-f.severity.rank, order[f.name, f.subject]))


def _lazily(rollouts: Callable[[int], Iterable[RolloutView]], step: int) -> Iterable[RolloutView]:
    yield from rollouts(step)
