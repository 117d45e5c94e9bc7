"""Convention `openrlhf`: a function scores lists of whole texts.

    def reward_func(queries, prompts, labels, **kwargs): ...

| parameter | argument |
| --- | --- |
| `queries` | for each completion the text of the prompt and of the completion; for an episode, of all its turns |
| `prompts` | for each completion the text of the prompt |
| `labels` | for each completion the reference: the row's `label`, or else `answer` |
| any other name | an argument from configuration, or the dataset's column, as a list |

One call takes one completion, as in OpenRLHF, so the lists have one element. The function returns the rewards as a
tensor, an array or a list, or a dict with `rewards`. The dict's `scores` become a component, and its `extra_logs` are
stored with the completion.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_tunix.rewards.conventions.libraries.named import NamedConvention, Values
from agent_tunix.rewards.conventions.target import Call
from agent_tunix.rewards.conventions.values import reference_of, to_number, to_score
from agent_tunix.rewards.sample import Outcome, Sample, Score

OWN_NAMES = ("queries", "prompts", "labels")


class OpenRlhfReward(NamedConvention):
    """A `reward_func` of OpenRLHF."""

    convention = "openrlhf"
    library = "OpenRLHF"
    reference = "labels"
    provided = OWN_NAMES
    reserved = OWN_NAMES
    expected = "an OpenRLHF reward returns one number for each query, or a dict with them as `rewards`"

    def _make_calls(self) -> Sequence[Call]:
        return [Call(self.target)]

    def _values(self, sample: Sample) -> Values:
        return {
            "queries": lambda: [sample.prompt + sample.whole_text],
            "prompts": lambda: [sample.prompt],
            "labels": lambda: [reference_of(sample.columns, "label")],
        }

    def _columns(self, samples: Sequence[Sample]) -> Values:
        return {name: lambda make=make: [make()] for name, make in super()._columns(samples).items()}  # type: ignore[misc]

    def _read_one(self, returned: Any) -> Score:
        if not isinstance(returned, Mapping):
            return to_score(_only(returned), self.expected)
        if "rewards" not in returned:
            entries = ", ".join(map(str, returned)) or "none"
            return Score.failed(Outcome.ERROR, f"returned a dict without `rewards`; its entries are {entries}")
        score = to_score(_only(returned["rewards"]), self.expected)
        scores = to_number(_only(returned.get("scores")))
        logs = returned.get("extra_logs")
        return replace(
            score,
            components={} if isinstance(scores, str) else {"scores": scores},
            extras={str(name): _only(value) for name, value in logs.items()} if isinstance(logs, Mapping) else {},
        )


def _only(values: Any) -> Any:
    """Return the only element of a list, an array or a tensor; other values as plain Python."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return values[0] if isinstance(values, list | tuple) and len(values) == 1 else values
