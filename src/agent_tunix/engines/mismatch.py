"""The limit of what sampling and training disagree by, `engine.mismatch_limit`."""

from collections.abc import Mapping
from typing import Any

from agent_tunix.config.schema import EngineConfig

_METRIC = "policy/sampler_mismatch_kl"
# Nats a token. Rounding in the types that engines compute in may reach this, however small it was at first.
_LEAST = 1e-4


class MismatchLimit:
    """The first disagreement of a run, and the limit that follows from it.

    With `engine.max_staleness` there is no limit, because the policy that trains is ahead of the one that sampled.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._factor = config.mismatch_limit
        self._is_on = config.name != "none" and config.max_staleness == 0
        self._first: float | None = None

    def observe(self, row: Mapping[str, Any]) -> str | None:
        """Add the row of a step, from the first of the run on, and return the reason to stop if it is above the limit.

        A row without the metric is passed over, and so is one with groups that earlier weights sampled.
        """
        value = row.get(_METRIC)
        if not self._is_on or value is None or row.get("replay/groups"):
            return None
        if self._first is None:
            self._first = value
        limit = self._factor * max(self._first, _LEAST)
        if value <= limit:
            return None
        return (
            f"{_METRIC} must stay below {limit:.2g} (engine.mismatch_limit={self._factor:g} times its first value, at "
            f"least {_LEAST:g}), but is {value:.2g}: the engine does not sample from the policy as it is trained. Try "
            "`agent-tunix engines check`, start the engine with the type of model.dtype, or raise the limit"
        )
