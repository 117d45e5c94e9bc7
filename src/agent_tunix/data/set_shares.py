"""Shares of the sets of a mixture that follow their pass rates, so that training moves from easy sets to hard ones.

Let w_i be the weight of set i, and l_i the mean learnability p(1 − p) of the groups that were drawn from it, where p is
the share of a group's completions that are right. The next batches take from set i the share

    s_i = w_i · max(0.05, 4 l_i) / Σ_j w_j · max(0.05, 4 l_j)

A set without a rate counts as much as the mean of the others. After a step with k groups of the set, of mean
learnability m, l_i becomes (n · l_i + k · m) / (n + k), where n is the number of its earlier groups, at most 16. So l_i
follows the policy. The floor 0.05 lets every set return, also one that is always or never solved.

Each batch of B rows adds B · s_i to the credit of set i; each of its rows goes to the set with the highest credit,
which pays 1. So the rows of a set follow its shares to within a few rows, and a set whose share is below one row of a
batch gets one now and then. The batch of a step is a pure function of the configuration and the observations.

The learnability is that of https://arxiv.org/abs/2502.12272. The moving average per set is that of SEC
(https://arxiv.org/abs/2505.14970). Departures from SEC: p(1 − p) instead of the mean absolute advantage, which for
rewards of 0 and 1 is 2p(1 − p) before it is divided by the standard deviation; shares in proportion instead of a
Boltzmann distribution; rows by credit instead of random draws. DUMP (https://arxiv.org/abs/2504.09710) adds a bonus for
sets that were seldom drawn, in place of which the floor stands here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_tunix.data.batches import RowIndices
from agent_tunix.data.draws import Draws

LEAST_WEIGHT = 0.05
_GROUPS_REMEMBERED = 16
# What is known of each set: rows drawn, groups with a pass rate, their moving means, and the credit.
_STATE = ("drawn", "groups", "pass_rates", "learnability", "credit")


@dataclass
class SetShareOrder:
    """The rows of every batch of a mixture whose shares follow pass rates; within a set, rows come in passes."""

    weights: Mapping[str, float]  # name of each set → its weight, above 0
    rows: Sequence[RowIndices]  # for each set, the indices of its rows among all rows
    draws: Sequence[Draws]
    batch_size: int  # rows per batch
    num_steps: int
    _observed: int = field(init=False, default=0)
    _state: dict[str, NDArray[np.float64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without observations."""
        self.load_state_dict({}, 0)

    def batch_indices(self, step: int) -> RowIndices:
        """Return the row indices of a batch, set by set; `step` is from 1 to `num_steps`."""
        if not 1 <= step <= self.num_steps:
            raise IndexError(f"step {step} is outside 1 to {self.num_steps}")
        counts = self.counts(step)
        firsts = self._state["drawn"].astype(np.int64) + counts[:-1].sum(axis=0)
        return np.concatenate(
            [
                rows[draws.rows(int(first), int(first + count))]
                for rows, draws, first, count in zip(self.rows, self.draws, firsts, counts[-1], strict=True)
            ]
        )

    def counts(self, step: int) -> NDArray[np.int64]:
        """Return the [batches, sets] rows of each set from the batch after the last observed one to that of a step."""
        return self._allocate((step - 1 - self._observed) % self.num_steps + 1)[0]

    def observe(self, step: int, rates: Mapping[int, float]) -> dict[str, float | None]:
        """Record the pass rates of a step by row (NaN if no completion was scored); return metrics of the sets."""
        state = self._state
        counts, state["credit"] = self._allocate(1)
        state["drawn"] = state["drawn"] + counts[0]
        self._observed = step
        observed = np.full(sum(map(len, self.rows)), np.nan)
        observed[list(rates)] = list(rates.values())
        for number, rows in enumerate(self.rows):
            new = observed[rows][~np.isnan(observed[rows])]
            if len(new):
                known = min(state["groups"][number], _GROUPS_REMEMBERED)
                for name, values in (("pass_rates", new), ("learnability", new * (1 - new))):
                    state[name][number] = (known * state[name][number] + values.sum()) / (known + len(new))
                state["groups"][number] += len(new)
        metrics: dict[str, float | None] = {}
        for name, share, rate, num in zip(
            self.weights, self._shares(), state["pass_rates"], state["groups"], strict=True
        ):
            metrics[f"sampling/sets/{name}/share"] = float(share)
            metrics[f"sampling/sets/{name}/pass_rate"] = float(rate) if num else None
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return the observations as JSON types."""
        return {name: values.tolist() for name, values in self._state.items()}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Restore the observations that `state_dict` returned after a step; {} means none."""
        none = [0.0] * len(self.weights)
        self._observed, self._state = step, {name: np.array(state.get(name, none), np.float64) for name in _STATE}

    def _shares(self) -> NDArray[np.float64]:
        """Return the share of each set in the next batches; they sum to 1."""
        is_seen = self._state["groups"] > 0
        values = np.maximum(LEAST_WEIGHT, 4 * self._state["learnability"])
        values[~is_seen] = values[is_seen].mean() if is_seen.any() else 1.0
        shares = np.array(list(self.weights.values())) * values
        return np.asarray(shares / shares.sum())

    def _allocate(self, num_batches: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the [num_batches, sets] rows of the next batches, and the credits after them."""
        counts, credit = np.zeros((num_batches, len(self.weights)), np.int64), self._state["credit"].copy()
        for batch in counts:
            credit += self.batch_size * self._shares()
            for _ in range(self.batch_size):
                number = int(credit.argmax())
                batch[number] += 1
                credit[number] -= 1
        return counts, credit
