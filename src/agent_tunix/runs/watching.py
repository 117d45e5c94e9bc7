"""Diagnosis of a run while it runs: findings are logged as they occur, and stored in `findings.jsonl`.

Findings depend only on the rows that the diagnosis has seen. On resuming it sees the kept rows again, so a run that was
killed reports the same findings as an uninterrupted one.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from agent_tunix.closing import Closing
from agent_tunix.config.schema import Config
from agent_tunix.grpo.step import StepResult
from agent_tunix.policy.schedules import count_warmup
from agent_tunix.runs.directory import RunPaths
from agent_tunix.runs.preflight import ValidatedConfig
from agent_tunix.tracking import FindingsFile, read_findings, read_rows
from agent_tunix.workbench.diagnosis import RolloutView, RunContext, Severity, Watch
from agent_tunix.workbench.diagnosis.context import SETTINGS

_LOGGER = logging.getLogger("agent_tunix.diagnosis")
_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}


class Watching(Closing):
    """Diagnosis of the rows of a run.

    Args:
        context: Facts about the run that the diagnosis needs.
        places: Paths of the run. Stored findings past `kept_step` are removed, and rows past it are ignored.
        kept_step: The last step that a resumed run keeps; None for a new run.

    Raises:
        RunDirectoryError: Stored rows or findings cannot be read.
    """

    def __init__(self, context: RunContext, places: RunPaths, kept_step: int | None) -> None:
        self._watch = Watch(context)
        self._places = places
        self._file = FindingsFile(places.findings, kept_step)
        if kept_step is not None and places.metrics.exists():
            for row in read_rows(places.metrics):
                if row["step"] <= kept_step:
                    self._watch.observe(row["step"], row)

    def observe(self, step: int, row: Mapping[str, Any], result: StepResult | None = None) -> None:
        """Diagnose a row; log and store the findings.

        Args:
            step: Number of the step, from 1; 0 for the evaluation before training.
            row: Metrics of the step.
            result: Result of the step, whose completions illustrate findings.
        """
        for finding in self._watch.observe(step, row, () if result is None else _views(result)):
            self._file.write(finding)
            _LOGGER.log(_LEVELS[finding.severity], "%s", finding.describe())

    def summary(self) -> dict[str, str]:
        """Return the row about findings for the table at the end of the run.

        It names the file and the titles of the findings above the severity info, the most urgent first.
        """
        findings = sorted(read_findings(self._places.findings), key=lambda finding: (finding.urgency, finding.step))
        names = [finding.title for finding in findings if finding.severity is not Severity.INFO]
        if not names:
            return {}
        return {"findings": f"{self._places.findings}: {', '.join(dict.fromkeys(names))}"}

    def sync(self) -> None:
        """Flush the stored findings to the device; raise RunDirectoryError if that fails."""
        self._file.sync()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()


def _views(result: StepResult) -> Iterable[RolloutView]:
    return (RolloutView.of(sample, score) for sample, score in zip(result.samples, result.scores, strict=True))


def describe_run(checked: ValidatedConfig, num_steps: int) -> RunContext:
    """Return the facts about a run that its diagnosis needs.

    Args:
        checked: Configuration and reward of the run.
        num_steps: Number of steps of the run.
    """
    config = checked.config
    return RunContext.of(
        checked.mixture,
        written=checked.components,
        reward_key="reward.components" if config.reward.components else "training.reward_function",
        num_steps=num_steps,
        warmup_steps=count_warmup(config.optimizer, num_steps),
        settings={key: _value(config, key) for key in SETTINGS},
    )


def _value(config: Config, key: str) -> Any:
    group, _, name = key.partition(".")
    return getattr(getattr(config, group), name)
