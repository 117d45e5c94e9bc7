"""Schema of stored rollouts: the columns of a Parquet file and its metadata.

The version increases with changes that an older reader would misread; a file of a later version is refused. PyArrow is
imported only when a file is written or read.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from agent_tunix.rewards import Sample, Score
from agent_tunix.rewards.turns import EPISODE, Credit

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
_VERSION_KEY = b"agent_tunix.rollouts"
_SETTINGS_KEY = b"agent_tunix.settings"


@dataclass(frozen=True, slots=True)
class ScoringSettings:
    """Settings behind the totals and advantages of a file; with the rows, enough to recompute them."""

    num_generations: int  # G, the completions per group
    advantage_scaling: str = "group"  # `grpo.advantage_scaling`
    on_failure: str = "exclude"  # `rewards.on_failure`
    fingerprint: str = ""
    credit: Credit = EPISODE  # `grpo.credit` and its settings

    def __post_init__(self) -> None:
        if type(self.num_generations) is not int or self.num_generations < 1:
            raise ValueError(f"num_generations must be at least 1, not {self.num_generations!r}")


@dataclass(frozen=True)
class StoredStep:
    """The completions of one step: N rows in scoring order, with the rows of a group together."""

    step: int  # number of the step, from 1
    samples: Sequence[Sample]  # samples that rewards were given
    scores: Sequence[Score]
    advantages: np.ndarray  # [N] float32 advantages that trained
    # [N] float32, the sum of a completion's token log-probabilities under the policy that sampled it, at the sampling
    # temperature and before top-k, top-p and min-p; NaN if unknown.
    logprobs: np.ndarray
    settings: ScoringSettings  # settings by which totals and advantages follow from the scores
    groups_in_step: int  # number of groups of the step, including those that `rollouts.share` left out
    # [N, K] float32 advantages of the turns that trained, NaN after the last turn; None without credit by turn.
    turn_advantages: np.ndarray | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.samples), len(self.scores), len(self.advantages), len(self.logprobs)}
        if len(lengths) != 1:
            raise ValueError(
                f"a step must have one sample, score, advantage and log-probability per row, not {lengths}"
            )

    @property
    def is_whole(self) -> bool:
        """True if every completion of the step is here. Advantages scaled over the batch require this."""
        return len(self.samples) == self.groups_in_step * self.settings.num_generations

    def select(self, rows: Sequence[int]) -> "StoredStep":
        """Return the step with only the given rows."""
        return dataclasses.replace(
            self,
            samples=[self.samples[row] for row in rows],
            scores=[self.scores[row] for row in rows],
            advantages=self.advantages[list(rows)],
            logprobs=self.logprobs[list(rows)],
            turn_advantages=None if self.turn_advantages is None else self.turn_advantages[list(rows)],
        )


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file, or a field of `components`."""

    name: str  # name of the column
    type: str  # a type name of `arrow_type`; `json` is a string that `encoding.decode` reads
    help: str  # one sentence that describes the content
    nullable: bool = False  # True if it may be null


COMPONENT_FIELDS = (
    Column("name", "string", "The component."),
    Column("value", "float64", "Its raw, unscaled value; null if it failed or was not computed.", True),
    Column("outcome", "string", "Outcome of its computation; null if a gate or a route skipped it.", True),
    Column("detail", "string", "Reason, as text.", True),
    Column("seconds", "float64", "Wall time of the call.", True),
    Column("weight", "float64", "Its effective weight at that step.", True),
    Column(
        "weighed",
        "float64",
        "Value that the weight multiplies: after transforms, 0 behind a shut gate, the group's mean if not applicable;"
        " null if it failed.",
        True,
    ),
    Column("gate_shut", "bool", "True if its gate was shut.", True),
    Column("term_outcome", "string", "Its outcome in the total; `not_applicable` behind a shut gate.", True),
    Column("term_detail", "string", "Why it contributed no value of its own to the total.", True),
    Column("more", "json", "Its own components, if it returned several; else null.", True),
)

COLUMNS = (
    Column("step", "int32", "Training step, from 1."),
    Column("group", "int32", "Number of the prompt within its step."),
    Column("rollout_id", "string", "`<step>_<prompt>_<generation>`, unique within a run."),
    Column("prompt", "string", "The problem, without the chat template."),
    Column("messages", "json", 'The conversation, the response last; its text is `{"$type": "response"}`.'),
    Column("response", "string", "The completion's text, without the end-of-sequence token."),
    Column("columns", "json", "The dataset's row, with the stripped reference in `answer`."),
    Column("format", "string", "`prompt.format`, the template that a response should follow."),
    Column("max_steps", "int32", "Number of steps of the run."),
    Column(
        "sampled_step",
        "int32",
        "With `grpo.replay_groups`, the earlier step that sampled the completion; else null.",
        True,
    ),
    Column(
        "outcome",
        "string",
        "`scored`, or why there is no total: `not_applicable`, `bad_reference`, `error`, `timeout`.",
    ),
    Column("detail", "string", "Reason of the total, or why there is none."),
    Column("total", "float64", "The reward that trained; null for an unscored completion.", True),
    Column(
        "advantage",
        "float32",
        "The advantage that trained; 0 for an unscored completion. With `grpo.credit` by turn, the mean over turns.",
    ),
    Column(
        "turn_advantages",
        "list<float32>",
        "With `grpo.credit` by turn, the advantages of its turns that trained; else null.",
        True,
    ),
    Column("num_tokens", "int32", "Length in tokens, the end-of-sequence token included."),
    Column("ended", "bool", "True if the model ended by itself."),
    Column(
        "stop_reason",
        "string",
        "`stop` if the model ended by itself, `length` if it was cut; of an episode, the reason why it ended.",
    ),
    Column(
        "episode",
        "json",
        "What happened in an episode of several turns: its turns, calls, score, error, text and tokens; else null.",
        True,
    ),
    Column(
        "logprob",
        "float32",
        "Sum of the tokens' log-probabilities under the policy that sampled them, at the sampling temperature and"
        " before top-k, top-p and min-p; null if unknown.",
        True,
    ),
    Column("tokens", "list<int32>", "The completion's token ids."),
    Column("fingerprint", "string", "Short hash of the reward's fingerprint."),
    Column("extras", "json", "Component → the `extras` that it returned."),
    Column("logged", "json", "Component → `text` that it logged or printed, and logged `metrics`."),
    Column("seconds", "float64", "Wall time of scoring, summed over the components."),
    Column("groups_in_step", "int32", "Groups of the step, including those that `rollouts.share` did not keep."),
    Column(
        "exact",
        "json",
        "Originals of texts with lone surrogates, which are � in their columns; nearly always null.",
        True,
    ),
    Column("components", "list<struct>", "The components of the mixture, in its order; see below."),
)


def arrow_schema(settings: ScoringSettings) -> "pa.Schema":
    """Return the schema of a file, with its metadata."""
    import pyarrow as pa

    fields = [pa.field(column.name, arrow_type(column.type), column.nullable) for column in COLUMNS]
    data = dataclasses.asdict(settings)
    if not settings.credit.is_by_turn:
        del data["credit"]  # so that earlier versions read the file
    metadata = {_VERSION_KEY: str(SCHEMA_VERSION), _SETTINGS_KEY: json.dumps(data)}
    return pa.schema(fields, metadata)


def arrow_type(name: str) -> "pa.DataType":
    """Return the Arrow type for a column's type name."""
    import pyarrow as pa

    if name == "list<struct>":
        fields = [pa.field(field.name, arrow_type(field.type), field.nullable) for field in COMPONENT_FIELDS]
        return pa.list_(pa.field("element", pa.struct(fields), nullable=False))
    return {
        "int32": pa.int32(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "string": pa.string(),
        "json": pa.string(),
        "list<float32>": pa.list_(pa.field("element", pa.float32(), nullable=False)),
        "list<int32>": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    }[name]


def read_settings(metadata: Mapping[bytes, bytes] | None) -> ScoringSettings:
    """Return the settings from a file's metadata.

    Raises:
        ValueError: The file holds no rollouts, is of a later version, or is damaged.
    """
    version = (metadata or {}).get(_VERSION_KEY)
    if metadata is None or version is None:
        raise ValueError("it contains no rollouts")
    if int(version) > SCHEMA_VERSION:
        raise ValueError(f"it has version {int(version)} of the schema, and this is version {SCHEMA_VERSION}")
    try:
        data = json.loads(metadata[_SETTINGS_KEY])
        return ScoringSettings(**{**data, "credit": Credit(**data.get("credit", {}))})
    except (KeyError, TypeError) as error:
        raise ValueError(f"its metadata is damaged: {error}") from error
