"""Responses of the endpoints under `/v1/runs`, as the OpenAPI document describes them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agent_tunix.service.api.models import Outcome
from agent_tunix.web.models import Model

RUN_ID = "^run_[a-z2-7]{24}$"

Id = Annotated[str, Field(pattern=RUN_ID, description="Id of the run, derived from its path.")]
Step = Annotated[int, Field(description="Training step, from 1; 0 is before the first.")]


class RunEntry(Model):
    """A run, as a list shows it."""

    id: Id
    object: Literal["run"]
    name: Annotated[str, Field(description="Path of the run within the directory of runs.")]
    state: Literal["running", "finished", "stopped", "failed", "unreadable"]
    detail: Annotated[str, Field(description="Why it failed or stopped, or cannot be read; otherwise empty.")]
    started_at: Annotated[int, Field(ge=0, description="Seconds since 1970, UTC, of its configuration.")]
    step: Annotated[int | None, Field(description="The last step with metrics.")]
    reward: Annotated[float | None, Field(description="The mean total reward of the last step that has one.")]
    method: Annotated[str | None, Field(description="`grpo.loss` of its configuration.")]
    model: Annotated[str | None, Field(description="Last part of `model.path`, otherwise `model.model_size`.")]


class RunList(Model):
    """Page of runs, newest first."""

    object: Literal["list"]
    data: list[RunEntry]
    has_more: Annotated[
        bool, Field(description="True if there are older ones: request them with `after` set to the last id.")
    ]


class Metrics(Model):
    """Metrics of a step."""

    step: Step
    values: Annotated[dict[str, Any], Field(description="By name; null for a number that is not finite.")]


class RunDetail(RunEntry):
    """A run in detail."""

    components: Annotated[
        list[str], Field(description="Components of the reward; each has metrics `rewards/<component>/…`.")
    ]
    evaluations: Annotated[
        list[Metrics], Field(description="Metrics `eval/…` of the steps that have any; at most 5,000.")
    ]
    evaluations_left_out: Annotated[
        int,
        Field(ge=0, description="Evaluations beyond this limit, without the first and the latest."),
    ]
    first_rollouts: Annotated[int | None, Field(description="First step with stored rollouts.")]
    last_rollouts: Annotated[int | None, Field(description="Last step with stored rollouts.")]
    config: Annotated[dict[str, Any] | None, Field(description="Its configuration; null: it cannot be read.")]


class MetricsList(Model):
    """Page of metrics, in the order of steps."""

    object: Literal["list"]
    data: list[Metrics]
    has_more: bool
    next: Annotated[int | None, Field(description="`after` of the next page, if there is more.")]
    version: Annotated[
        str,
        Field(
            description="If it differs from before, the run was resumed from an earlier step: request its rows again."
        ),
    ]
    damaged: Annotated[int, Field(ge=0, description="Lines that are not rows and were skipped.")]


class RolloutComponent(Model):
    """Result of a reward component for a completion."""

    name: str
    value: Annotated[float | None, Field(description="Its raw value; null if it failed or was not computed.")]
    outcome: str | None
    detail: str | None
    weight: float | None
    weighed: Annotated[float | None, Field(description="Value that was weighted, after transforms and gates.")]


class Rollout(Model):
    """A completion."""

    object: Literal["rollout"]
    id: Annotated[str, Field(description="`<step>_<prompt>_<generation>`")]
    step: Step
    sampled_step: Annotated[
        int | None, Field(description="Earlier step that sampled it, if it was replayed; null otherwise.")
    ]
    group: Annotated[int, Field(description="Number of the prompt within its step.")]
    prompt: str
    response: str
    outcome: Outcome
    detail: str
    reward: Annotated[float | None, Field(description="Total used in training; null: not scored.")]
    advantage: Annotated[float | None, Field(description="Advantage used in training.")]
    num_tokens: Annotated[int, Field(description="Its length in tokens.")]
    stop_reason: str
    components: list[RolloutComponent]


class RolloutList(Model):
    """Page of completions: steps in order, the completions of each in the order asked for."""

    object: Literal["list"]
    data: list[Rollout]
    has_more: bool
    next: Annotated[
        str | None,
        Field(description="`after` of the next page. A page may be short although there are more."),
    ]
    problems: Annotated[list[str], Field(description="Files that could not be read and were skipped.")]


class RunFinding(Model):
    """Diagnosis of a problem in the run."""

    object: Literal["finding"]
    name: str
    severity: str
    step: Step
    summary: str
    subject: Annotated[str, Field(description="Component that it concerns; empty for the whole run.")]
    evidence: dict[str, Any]
    rollout_ids: list[str]
    edits: Annotated[list[str], Field(description="What to change: overrides of the command line.")]


class FindingList(Model):
    """All findings, in the order in which they were made."""

    object: Literal["list"]
    data: list[RunFinding]
    has_more: Literal[False]
    damaged: Annotated[int, Field(ge=0, description="Lines that are not findings and were skipped.")]
