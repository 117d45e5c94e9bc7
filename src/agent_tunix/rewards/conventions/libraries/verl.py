"""Convention `verl`: a function scores one response by the row's data source, reference and further information.

    def compute_score(data_source, solution_str, ground_truth, extra_info=None): ...

| parameter | argument |
| --- | --- |
| `solution_str` | text of the completion; for an episode, all turns and the replies to them |
| `ground_truth` | the reference: the row's `ground_truth`, or else its `reward_model.ground_truth`, or else `answer` |
| `data_source` | the row's column of that name; "" without one |
| `extra_info` | the row's dict of that name, or else all columns; plus `num_turns` and `rollout_reward_scores` |
| `solution_strs`, `ground_truths`, `data_sources`, `extra_infos` | the same for a group, as lists |
| any other name | an argument from configuration (verl's `reward_kwargs`), or the dataset's column |

The function may be async. It returns a number, or a dict whose entry `score` is the reward (`rewards.reward_key` names
another entry); other numbers of the dict are logged as components.
"""

from collections.abc import Mapping
from typing import Any

from agent_tunix.rewards.conventions.components import score_of_entry
from agent_tunix.rewards.conventions.libraries.named import NamedConvention, Values
from agent_tunix.rewards.conventions.values import own_copy, reference_of
from agent_tunix.rewards.sample import Sample, Score

_PLURALS = {
    "data_source": "data_sources",
    "solution_str": "solution_strs",
    "ground_truth": "ground_truths",
    "extra_info": "extra_infos",
}


class VerlReward(NamedConvention):
    """A `compute_score` of verl."""

    convention = "verl"
    library = "verl"
    reference = "ground_truth"
    plurals = _PLURALS
    provided = (*_PLURALS, *_PLURALS.values())
    reserved = (*_PLURALS, *_PLURALS.values())
    expected = "a verl reward returns one number, or a dict with `score`"

    def _values(self, sample: Sample) -> Values:
        columns = sample.columns
        return {
            "data_source": lambda: own_copy(columns.get("data_source", "")),
            "solution_str": lambda: sample.whole_text,
            "ground_truth": lambda: reference_of(columns, "ground_truth"),
            "extra_info": lambda: _extra_info(sample),
        }

    def _read_one(self, returned: Any) -> Score:
        return score_of_entry(returned, self.settings.reward_key or "score", self.expected)


def _extra_info(sample: Sample) -> dict[str, Any]:
    own = sample.columns.get("extra_info")
    info = dict(own if isinstance(own, Mapping) else sample.columns)
    num_turns = None if sample.episode is None else sample.episode.num_turns
    return {"num_turns": num_turns, "rollout_reward_scores": {}, **own_copy(info)}
