"""Responses of the endpoints under `/v1/runs`, as the OpenAPI document describes them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from agent_tunix.service.api.models import Model, Outcome

RUN_ID = "^run_[a-z2-7]{24}$"

Id = Annotated[str, Field(pattern=RUN_ID, description="From where the run lies.")]
Step = Annotated[int, Field(description="Training step, from 1; 0 is before the first.")]


class Run(Model):
    """A run, as a list shows it."""

    id: Id
    object: Literal["run"]
    name: Annotated[str, Field(description="Where it lies within the directory of runs.")]
    state: Literal["running", "finished", "stopped", "failed", "unreadable"]
    detail: Annotated[str, Field(description="Why it failed or stopped, or cannot be read; else empty.")]
    started_at: Annotated[int, Field(ge=0, description="Seconds since 1970, UTC, of its configuration.")]
    step: Annotated[int | None, Field(description="The last step with metrics.")]
    reward: Annotated[float | None, Field(description="The mean total reward of the last step that has one.")]
    method: Annotated[str | None, Field(description="`grpo.loss` of its configuration.")]
    model: Annotated[str | None, Field(description="The last part of `model.path`, or else `model.model_size`.")]


class RunList(Model):
    """Page of runs, newest first."""

    object: Literal["list"]
    data: list[Run]
    has_more: Annotated[bool, Field(description="Whether there are older ones: ask with `after` as the last one's id.")]


class Metrics(Model):
    """Metrics of a step."""

    step: Step
    values: Annotated[dict[str, Any], Field(description="By name; null for a number that is not finite.")]


class RunDetail(Run):
    """A run in detail."""

    components: Annotated[list[str], Field(description="Of the reward; each has metrics `rewards/<component>/…`.")]
    evaluations: Annotated[
        list[Metrics], Field(description="The metrics `eval/…` of steps that have some; 5,000 at most.")
    ]
    first_rollouts: Annotated[int | None, Field(description="The first step whose rollouts are kept.")]
    last_rollouts: Annotated[int | None, Field(description="The last.")]
    config: Annotated[dict[str, Any] | None, Field(description="Its configuration; null: it cannot be read.")]


class MetricsList(Model):
    """Page of metrics, in the order of steps."""

    object: Literal["list"]
    data: list[Metrics]
    has_more: bool
    next: Annotated[int | None, Field(description="The `after` of the next page, where there is more by now.")]
    version: Annotated[str, Field(description="Another than before: the run went back; ask for its rows anew.")]
    damaged: Annotated[int, Field(ge=0, description="Lines that are no row, and were left out.")]


class RolloutComponent(Model):
    """Result of a reward component for a completion."""

    name: str
    value: Annotated[float | None, Field(description="Its raw value; null where it failed or was not computed.")]
    outcome: str | None
    detail: str | None
    weight: float | None
    weighed: Annotated[float | None, Field(description="What was weighed, after transforms and gates.")]


class Rollout(Model):
    """A completion."""

    object: Literal["rollout"]
    id: Annotated[str, Field(description="`<step>_<prompt>_<generation>`")]
    step: Step
    group: Annotated[int, Field(description="Number of the prompt within its step.")]
    prompt: str
    response: str
    outcome: Outcome
    detail: str
    reward: Annotated[float | None, Field(description="The total that trained; null: it is not scored.")]
    advantage: Annotated[float | None, Field(description="As it trained.")]
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
        Field(description="The `after` of the next page. A page that few completions match may be short, and go on."),
    ]
    problems: Annotated[list[str], Field(description="Files that could not be read, and were left out.")]


class RunFinding(Model):
    """Diagnosis of a problem in the run."""

    object: Literal["finding"]
    name: str
    severity: str
    step: Step
    summary: str
    subject: Annotated[str, Field(description="The component it is about; empty for the run as a whole.")]
    evidence: dict[str, Any]
    rollout_ids: list[str]
    edits: Annotated[list[str], Field(description="What to change: overrides of the command line.")]


class FindingList(Model):
    """All findings, in the order in which they were made."""

    object: Literal["list"]
    data: list[RunFinding]
    has_more: Literal[False]
    damaged: Annotated[int, Field(ge=0, description="Lines that are no finding, and were left out.")]
