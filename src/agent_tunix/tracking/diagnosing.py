"""Diagnosis of a recorded run from its directory alone; needs neither its reward nor a device."""

from collections.abc import Iterable

from agent_tunix.errors import RunDirectoryError
from agent_tunix.tracking.stored_run import StoredRun
from agent_tunix.workbench.diagnosis import Finding, RolloutView, RunContext, diagnose


def diagnose_run(run: StoredRun) -> list[Finding]:
    """Diagnose a run; the most severe finding comes first.

    Findings refer to example completions if those of the step were stored.
    """
    stored = set(run.rollouts.steps())

    def views(step: int) -> Iterable[RolloutView]:
        if step in stored:
            completions = run.rollouts.read_step(step)
            for sample, score in zip(completions.samples, completions.scores, strict=True):
                yield RolloutView.of(sample, score)

    return diagnose(run.rows, read_context(run), views)


def read_context(run: StoredRun) -> RunContext:
    """Return the facts about a run that a diagnosis needs, from its environment.json."""
    try:
        return RunContext.from_data(run.environment["context"])
    except (KeyError, ValueError) as error:
        raise RunDirectoryError(
            f"{run.root / 'environment.json'} must describe the run under `context`, but does not ({error}); runs of "
            "earlier versions cannot be diagnosed"
        ) from error
