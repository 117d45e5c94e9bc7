"""Credit by turn: advantages of the turns of episodes, chosen by `grpo.credit`.

With r_ik what episode i earned at its turn k, and K_i its number of turns, the return of a turn is

    R_ik = Σ_{j ≥ k} γ^(j − k) r_ij,        γ = `grpo.discount`

    episode    A_ik = A_i, the advantage of the total (`advantages.py`)
    turn       A_ik = A(R_ik among R_jk of the episodes j of the group that reach turn k)
    gigpo      A_ik = A_i + ω A(R_ik among R_jl of all turns of the group with the state s_jl = s_ik)
    hgpo       A_ik = Σ_d w_d A(R_ik among R_jl of all turns of the group whose last d states are those of turn k)
    role       A_ik = A(R_ik among R_jl of all turns of the group with the role of turn k)

A(· among ·) is `grpo.advantage_scaling` applied to these values as to a group: its baseline, its divisor, and 0 for
values that are equal up to rounding. So `leave_one_out` is RLOO over turns. `turn` normalises within the group by turn
number. If fewer than two scored episodes of the group reach a turn, there is nothing to compare its return with, and
the turn has the advantage of its episode, A_i. `gigpo` is equation 7 of https://arxiv.org/abs/2505.10978, with
ω = `grpo.step_advantage_weight`. A state that occurs once adds 0, so that A_i remains. The paper has γ = 0.95 and
ω = 1, and divides by the deviation (`group`) or not (`none`).

`hgpo` is a hierarchy of groups (https://arxiv.org/abs/2602.22817), in which deeper groups share more of the past and
have fewer members: d = 1, …, H + 1 with H = `grpo.history_turns`, and w_d ∝ d + 1 over the groups in which returns
differ. These sums are those of the authors' program, with the exponent of the weights 1 that it uses. A turn without
such a group has the advantage 0.

`role` is Dr. MAS (https://arxiv.org/abs/2602.08847): each role of an agent, such as solver and critic, is normalised by
its own mean and deviation. Calls of the policy have the same role if the system messages of their requests are the
same. If fewer than two scored turns of the group have a role, they have the advantage of their episode.

What a turn earned is the sum over the components, r_ik = Σ_c w_c r_cik. A component divides its value over the turns by
`Score.turns`; what these leave of the value belongs to the last turn. So Σ_k r_cik is the component's value, and a
component without values by turn rewards the last turn. Further rules:

- A turn without a score (None in `Score.turns`) contributes the mean of what the component gave to that turn in the
  other episodes of the group, or nothing if it gave nothing there. It neither raises nor lowers the turn.
- A component that does not apply to an episode contributes the mean of its returns in each comparison.
- A shut gate contributes 0 at every turn. A component with transforms rewards the last turn with its transformed value.
- The turns of an unscored episode have the advantage 0, and leave every mean and deviation.

Departures from the papers: states are equal if their texts are, and a user's component may score turns. The deviation
is the unbiased estimate. The program of HGPO also leaves out groups in which the turn's own advantage is exactly 0. Dr.
MAS compares the totals of episodes; they are the returns if only the last turn is rewarded and γ is 1.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agent_tunix.rewards.advantages import compute_advantages, is_dead
from agent_tunix.rewards.rounding import are_equal
from agent_tunix.rewards.sample import Outcome, Sample, Score

Array = NDArray[np.float64]
# Takes totals [B], the components' values [C, B] and the size of a group; returns [..., B] advantages or parts of them.
Estimate = Callable[[Array, Array, int], Array]

CREDITS = ("episode", "turn", "gigpo", "hgpo", "role")
STATES = ("observation", "conversation")


class _CreditKeys(Protocol):
    """The keys of `GrpoConfig` that `Credit.of` reads."""

    credit: str
    discount: float
    step_advantage_weight: float
    anchor_state: str
    history_turns: int


@dataclass(frozen=True, slots=True)
class Credit:
    """Settings of the credit of turns.

    Attributes:
        kind: `grpo.credit`, one of `CREDITS`.
        discount: γ, above 0 and at most 1.
        step_weight: ω of `gigpo`.
        state: State of a turn in `gigpo` and `hgpo`, one of `STATES`.
        history: H of `hgpo`, from 0.
    """

    kind: str = "episode"
    discount: float = 1.0
    step_weight: float = 1.0
    state: str = "observation"
    history: int = 2

    @classmethod
    def of(cls, keys: _CreditKeys) -> "Credit":
        """Return the settings of a configuration's `grpo`."""
        return cls(keys.credit, keys.discount, keys.step_advantage_weight, keys.anchor_state, keys.history_turns)

    @property
    def is_by_turn(self) -> bool:
        """True if the turns of an episode have advantages of their own."""
        return self.kind != "episode"


EPISODE = Credit()


def num_turns(sample: Sample) -> int:
    """Return the number of turns, at least 1; those of an agent are its calls of the policy."""
    if sample.episode is None:
        return 1
    agent = sample.episode.agent
    return max(1, sample.episode.num_turns if agent is None else len(agent["calls"]))


def check_turns(score: Score, sample: Sample) -> Score:
    """Return the score, or an error if it has more values by turn than the sample has turns."""
    if len(score.turns) <= num_turns(sample):
        return score
    return Score.failed(
        Outcome.ERROR,
        f"scored {len(score.turns)} turns of an episode of {num_turns(sample)}; return at most one value a turn",
        score.seconds,
    )


def states_of(sample: Sample, kind: str) -> list[str]:
    """Return a digest of the state before each turn.

    Args:
        sample: An episode.
        kind: `observation` for the messages since the turn before, and the prompt before the first one; `conversation`
            for all messages. Ids of calls do not count.
    """
    states, seen = [], hashlib.blake2b(digest_size=16)
    for message in sample.messages[: len(sample.prompt_messages)]:
        seen.update(_words(message))
    for message in sample.completion_messages:
        if message["role"] == "assistant":
            states.append(seen.hexdigest())
            if kind == "observation":
                seen = hashlib.blake2b(digest_size=16)
                continue
        seen.update(_words(message))
    return states


def _words(message: Mapping[str, Any]) -> bytes:
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
    return json.dumps([message["role"], message.get("content"), message.get("name"), calls], default=str).encode()


@dataclass(frozen=True)
class TurnRewards:
    """Rewards of the turns of N episodes, those of a prompt side by side. C components have a weight.

    Attributes:
        totals: [N]; NaN for an unscored episode.
        values: [C, N] value of each component, as the mixture weighs it.
        weights: [C].
        rewards: [C, N, K] value of each component at each turn, before weights; NaN where the component does not
            apply, and 0 after the last turn.
        counts: [N] number of turns.
        keys: For each episode the key of each turn. Turns of a prompt with equal keys are compared.
        num_generations: G.
        credit: Settings.
    """

    totals: Array
    values: Array
    weights: Array
    rewards: Array
    counts: NDArray[np.int64]
    keys: Sequence[Sequence[Any]]
    num_generations: int
    credit: Credit

    @property
    def exists(self) -> NDArray[np.bool_]:
        """[N, K], True at turns that an episode has."""
        return np.asarray(np.arange(self.rewards.shape[2]) < self.counts[:, None])

    def advantages(self, scaling: str) -> Array:
        """Return the [N, K] advantages; NaN after the last turn of an episode."""
        return self.estimate(
            lambda totals_B, values_CB, size: compute_advantages(
                totals_B, size, scaling, values_CB=values_CB, weights_C=self.weights
            )
        )

    def estimate(self, estimate: Estimate) -> Array:
        """Return the [..., N, K] result of an estimator for each turn; NaN after the last turn of an episode."""
        of_episodes = estimate(self.totals, self.values, self.num_generations)[..., None]
        if self.credit.kind == "hgpo":
            return np.where(self.exists, self._of_hierarchy(estimate), np.nan)
        of_turns, counts_NK, _ = self._among(estimate, self.keys)
        if self.credit.kind == "gigpo":
            of_turns = of_episodes + self.credit.step_weight * of_turns
        else:
            of_turns = np.where(counts_NK < 2, of_episodes, of_turns)
        return np.where(self.exists, of_turns, np.nan)

    def _of_hierarchy(self, estimate: Estimate) -> Array:
        """Return the [..., N, K] weighted mean of the results among turns with d equal last states, for each d."""
        sums: Any = 0.0
        weights = np.zeros(self.exists.shape)
        for depth in range(1, min(self.credit.history + 1, self.exists.shape[1]) + 1):
            keys = [
                [tuple(own[k + 1 - depth : k + 1]) if k + 1 >= depth else None for k in range(len(own))]
                for own in self.keys
            ]
            of_turns, _, differ_NK = self._among(estimate, keys)
            sums = sums + (depth + 1) * differ_NK * of_turns
            weights += (depth + 1) * differ_NK
        return np.asarray(sums / np.maximum(weights, 1))

    def _among(
        self, estimate: Estimate, keys: Sequence[Sequence[Any]]
    ) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
        """Return the [..., N, K] results of the turns among those with equal keys, and 0 elsewhere.

        Also return, for each turn, the number of scored turns that it is compared with, itself included, and True if
        their returns differ.
        """
        place_SM = self._compared(keys)
        found_SM = place_SM >= 0
        scored_SM = found_SM & ~np.isnan(self.totals)[place_SM // self.exists.shape[1]]
        returns_C = discounted(self.rewards, self.credit.discount).reshape(len(self.weights), self.exists.size)
        returns_CSM = np.where(scored_SM, returns_C[:, place_SM], np.nan)
        returns_CSM = np.where(scored_SM & np.isnan(returns_CSM), _means(returns_CSM), returns_CSM)
        totals_SM = np.where(scored_SM, np.einsum("c,csm->sm", self.weights, returns_CSM), np.nan)
        results = estimate(
            totals_SM.reshape(-1), returns_CSM.reshape(len(self.weights), place_SM.size), place_SM.shape[1]
        )
        of_turns = np.zeros((*results.shape[:-1], self.exists.size))
        of_turns[..., place_SM[found_SM]] = results[..., found_SM.reshape(-1)]
        counts, differ = np.zeros(self.exists.size, np.int64), np.zeros(self.exists.size, np.bool_)
        sets_of_places = np.broadcast_to(np.arange(len(place_SM))[:, None], place_SM.shape)[found_SM]
        counts[place_SM[found_SM]] = scored_SM.sum(axis=1)[sets_of_places]
        differ[place_SM[found_SM]] = ~is_dead(totals_SM)[sets_of_places]
        shape = self.exists.shape
        return of_turns.reshape(*results.shape[:-1], *shape), counts.reshape(shape), differ.reshape(shape)

    def _compared(self, keys: Sequence[Sequence[Any]]) -> NDArray[np.int64]:
        """Return [S, M] the places n K + k of the turns that are compared with each other, filled up with −1.

        A turn whose key is None is compared with none.
        """
        sets: dict[tuple[int, Any], list[int]] = {}
        for n, own in enumerate(keys):
            for k, key in enumerate(own):
                if key is not None:
                    sets.setdefault((n // self.num_generations, key), []).append(n * self.rewards.shape[2] + k)
        places = np.full((len(sets), max(map(len, sets.values()))), -1)
        for row, members in zip(places, sets.values(), strict=True):
            row[: len(members)] = members
        return places


def turn_rewards(
    samples: Sequence[Sample],
    scores: Sequence[Score],
    totals_N: Array,
    values_CN: Array,
    weights_C: Array,
    num_generations: int,
    credit: Credit,
    transformed: Collection[str] = (),
) -> TurnRewards:
    """Return what each turn earned.

    Args:
        samples: Episodes, those of a prompt side by side.
        scores: A mixture's score of each.
        totals_N: Totals that train; NaN for an unscored episode.
        values_CN: Values of the components with a weight, as `totals.weighed` returns them.
        weights_C: Their weights.
        num_generations: G.
        credit: Settings.
        transformed: Components with transforms.
    """
    names = [name for name, term in (scores[0].terms if scores else {}).items() if term.weight != 0]
    counts_N = np.array([num_turns(sample) for sample in samples], dtype=np.int64)
    K = int(counts_N.max(initial=1))
    rewards, missing = np.full((len(names), len(samples), K), np.nan), np.zeros((len(names), len(samples), K), np.bool_)
    rests = values_CN.copy()
    for c, name in enumerate(names):
        for n, score in enumerate(scores):
            term, part = score.terms[name], score.parts.get(name)
            if score.value is None or term.gate_shut:
                continue
            if term.outcome is not Outcome.SCORED:
                rests[c, n] = np.nan
            elif part is not None and part.turns and name not in transformed:
                turns = np.array([np.nan if one is None else one for one in part.turns])
                rewards[c, n, : counts_N[n]] = 0.0
                rewards[c, n, : len(turns)] = turns
                missing[c, n, : len(turns)] = np.isnan(turns)
                earned = np.nansum(turns)
                rests[c, n] = 0.0 if are_equal(rests[c, n], earned) else rests[c, n] - earned
    in_groups = (len(names), len(samples) // num_generations, num_generations, K)  # no -1: there may be no components
    means = _means(rewards.reshape(in_groups).swapaxes(2, 3)).swapaxes(2, 3)
    means = np.broadcast_to(means, in_groups).reshape(rewards.shape)
    rewards = np.where(missing, means, np.nan_to_num(rewards))
    # What the turns leave belongs to the last one. If it is NaN, so are all returns of the episode.
    rewards[:, np.arange(len(samples)), counts_N - 1] += rests
    keys: list[Sequence[Any]] = [range(count) for count in counts_N]
    if credit.kind == "role":
        keys = [roles_of(sample, count) for sample, count in zip(samples, counts_N, strict=True)]
    if credit.kind in ("gigpo", "hgpo"):
        states = (states_of(sample, credit.state) for sample in samples)
        keys = [_filled(own, n, count) for n, (own, count) in enumerate(zip(states, counts_N, strict=True))]
    return TurnRewards(totals_N, values_CN, weights_C, rewards, counts_N, keys, num_generations, credit)


def roles_of(sample: Sample, count: int) -> list[str]:
    """Return the role of each turn: a digest for the calls of an agent, and "" for the turns of other episodes."""
    agent = None if sample.episode is None else sample.episode.agent
    calls = [] if agent is None else [call.get("role", "") for call in agent["calls"]]
    return [*calls, *[""] * count][:count]


def _filled(states: list[str], n: int, count: int) -> list[Any]:
    """Return a state for each turn; turns without a message have states of their own."""
    return [*states, *((n, k) for k in range(len(states), count))][:count]


def discounted(rewards: Array, discount: float) -> Array:
    """Return the returns R_k = Σ_{j ≥ k} γ^(j − k) r_j along the last axis."""
    returns = rewards.copy()
    for k in range(rewards.shape[-1] - 2, -1, -1):
        returns[..., k] += discount * returns[..., k + 1]
    return returns


def _means(values: Array) -> Array:
    """Return the means over the last axis, which they keep, of the values that are not NaN; 0 if there are none."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(axis=-1, keepdims=True)
    return np.asarray(sums / np.maximum(known.sum(axis=-1, keepdims=True), 1))


def mean_over_turns(advantages_NK: Array) -> Array:
    """Return [N] the mean advantage of each episode's turns."""
    return np.asarray(np.nanmean(advantages_NK, axis=1))
