"""Convention `benchmax`: a reward function of a benchmax environment, outside its class.

    async def match(completion, ground_truth, mcp_client, workspace, **kwargs): ...

| parameter | argument |
| --- | --- |
| `completion` | a list of one chat message; a text if the function can only take that (`rewards.completions`) |
| `ground_truth` | the reference: the row's column of that name, or else `answer` |
| `prompt`, `rollout_id` | text of the prompt, and id of the completion |
| `termination_reason` | `finished`, `max_turn_tokens`, or how the episode ended |
| `workspace` | the argument `workspace`, a directory; if it is not set, any use makes the score an error |
| `mcp_client` | not available: any use makes the score an error |
| any other name | an argument from configuration, or the dataset's column |
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_tunix.rewards.conventions.environment import termination_reason_of
from agent_tunix.rewards.conventions.libraries.named import NamedConvention, Values
from agent_tunix.rewards.conventions.values import reference_of, to_score
from agent_tunix.rewards.sample import Sample, Score
from agent_tunix.rewards.unavailable import Placeholder

_OWN_NAMES = ("completion", "ground_truth", "prompt", "rollout_id", "termination_reason")


class BenchmaxReward(NamedConvention):
    """A reward function of benchmax."""

    convention = "benchmax"
    library = "benchmax"
    reference = "ground_truth"
    form_parameters = ("completion",)
    form_by_keywords = True
    passes_columns = True
    provided = (*_OWN_NAMES, "mcp_client", "workspace")
    reserved = _OWN_NAMES
    expected = "a benchmax reward function returns one number"

    @property
    def native_form(self) -> str:
        """`messages`, if the function names a parameter that only its library passes."""
        return "messages" if {*self.calls[0].names} & {"mcp_client", "workspace"} else ""

    def _values(self, sample: Sample) -> Values:
        return {
            "completion": lambda: self._completion_of(sample),
            "ground_truth": lambda: reference_of(sample.columns, "ground_truth"),
            "prompt": lambda: sample.prompt,
            "rollout_id": lambda: sample.rollout_id,
            "termination_reason": lambda: termination_reason_of(sample),
        }

    def _read_one(self, returned: Any) -> Score:
        return to_score(returned, self.expected)

    def _named_values(self, samples: Sequence[Sample]) -> Values:
        values = super()._named_values(samples)
        values |= {name: lambda name=name: _absent(name) for name in ("mcp_client", "workspace")}  # type: ignore[misc]
        if "workspace" in self.target.call_args:
            values["workspace"] = lambda: Path(self.target.call_args["workspace"])
        return values


def _absent(name: str) -> Placeholder:
    return Placeholder(
        f"the function uses benchmax's `{name}`, which exists only in an environment's rollout; set"
        f" rewards.args.<name>.{name}, or write a reward of `completion` and `ground_truth` alone",
        "unavailable_in_benchmax",
    )
