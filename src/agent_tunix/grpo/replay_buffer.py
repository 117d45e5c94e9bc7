"""A buffer of hard groups, of which some train again in the place of groups without an advantage.

A living group (`dynamic_sampling.py`) is hard if the mean of its values is at most the middle of the lowest and the
highest: with rewards of 0 and 1, if at most half of its completions are right. The hardest are kept, by their mean. In
a later step, kept groups take places whose group is dead, in an order that is drawn from the seed and the step. A kept
group is no longer used when it is older than `grpo.replay_max_age` steps, was replayed twice, or its problem is sampled
again with a living group, or with completions that are all as good as its best. A problem is a prompt and the columns
of its row, because all episodes of a game may begin with one prompt.

The idea is that of RePO (https://arxiv.org/abs/2506.09340), ExGRPO (https://arxiv.org/abs/2510.02245), retrospective
replay (RRL, https://arxiv.org/abs/2504.14363) and of TRL's `GRPOWithReplayBufferTrainer`. Departures:

- Replayed groups only take places that would have taught nothing: the number of completions of a step stays the same,
  and a step without a dead group trains what it sampled. RePO and ExGRPO mix them into every step.
- Whole groups are replayed, as in TRL, so that advantages compare completions of one policy. ExGRPO replays the single
  right completion of least entropy, and RRL continues promising prefixes.
- TRL prefers groups by Σ|A| · std, which favours no difficulty, and draws in proportion to it, from any age.
- Importance ratios are relative to the policy that sampled, by the sampler's log-probabilities, and are clipped by the
  loss. ExGRPO shapes them instead. The KL penalty and other terms are unweighted means over what trains.
- Components are not scored again. The total is taken again with the weights that the mixture has now (those inside a
  component that is itself a mixture stay), and advantages follow from it as those of other groups.
"""

import functools
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.engines.stored_completions import from_bytes, to_bytes
from agent_tunix.grpo.dynamic_sampling import Scored, dead_groups, select_groups
from agent_tunix.rewards.rounding import highest_within, lowest_reaching
from agent_tunix.rewards.score_data import from_data, tidy, to_data
from agent_tunix.sampling.sampler import join_completions
from agent_tunix.sampling.samples import make_samples
from agent_tunix.tracking.rollouts.encoding import decode, encode

_LOGGER = logging.getLogger("agent_tunix.run")
# Times that a kept group trains again.
MAX_USES = 2
_COMPLETIONS, _GROUPS = "replay/completions.npz", "replay/groups.json"


@dataclass(frozen=True)
class KeptGroup:
    """A group of G completions, which may train again.

    Attributes:
        scored: The completions, their scores, and the values by which they were judged.
        uses: Times that it was replayed.
    """

    scored: Scored
    uses: int = 0

    @property
    def step(self) -> int:
        """The step that sampled it."""
        return self.scored.samples[0].step

    @functools.cached_property
    def problem(self) -> tuple[bytes, str]:
        """The tokens of the prompt, and the columns of its row."""
        completions = self.scored.completions
        prompt = np.asarray(completions.prompt_tokens[0, -completions.prompt_lengths[0] :], np.int32)
        return prompt.tobytes(), encode(dict(self.scored.samples[0].columns))

    @property
    def is_hard(self) -> bool:
        """True if few of its completions are better than the others."""
        judged = self.scored.judged
        middle = (np.nanmin(judged) + np.nanmax(judged)) / 2
        return bool(np.nanmean(judged) <= highest_within(float(middle)))

    @property
    def difficulty(self) -> tuple[float, int]:
        """Sorts the hardest groups first, and of equal ones the newest."""
        return float(np.nanmean(self.scored.judged)), -self.step


class ReplayBuffer:
    """The kept groups of a run.

    Args:
        seed: Seed of the run.
        limit: Number of groups that are kept.
        max_age: Steps after which a kept group is not used any more.
        num_generations: G.

    Attributes:
        groups: The kept groups, the hardest first.
    """

    def __init__(self, seed: int, limit: int, max_age: int, num_generations: int) -> None:
        self._seed = seed
        self._limit = limit
        self._max_age = max_age
        self._num_generations = num_generations
        self.groups: tuple[KeptGroup, ...] = ()

    def fill_places(
        self, step: int, rounds: Sequence[Scored], trained: Scored
    ) -> tuple[Scored, list[int], tuple[KeptGroup, ...]]:
        """Put kept groups in the places of dead ones. The buffer itself changes only if the caller sets `groups`.

        Args:
            step: Number of the step.
            rounds: Everything that the step sampled.
            trained: The batch to train on.

        Returns:
            The batch; the rows of it that are replayed; and the groups that are kept after the step.
        """
        G = self._num_generations
        sampled = [KeptGroup(group) for scored in rounds for group in _split(scored, G)]
        usable = [kept for kept in self._young(step) if not any(_replaces(group, kept) for group in sampled)]
        dead = np.flatnonzero(dead_groups(trained, G)).tolist()
        order = np.random.default_rng([self._seed, step]).permutation(len(usable))[: len(dead)].tolist()
        places = dict(zip(dead, order, strict=False))
        fresh = [KeptGroup(_tidy(group.scored)) for group in sampled if not dead_groups(group.scored, G)[0]]
        kept = [replace(group, uses=group.uses + (number in order)) for number, group in enumerate(usable)]
        after = self._hardest([*kept, *(group for group in fresh if group.is_hard)], step + 1)
        if not places:
            return trained, [], after
        chosen = [(0, place) for place in range(len(trained.scores) // G)]
        for number, place in enumerate(places, 1):
            chosen[place] = (number, 0)
        batch = select_groups([trained, *(usable[number].scored for number in places.values())], chosen, G)
        samples, rows = list(batch.samples), [place * G + member for place in places for member in range(G)]
        for row in rows:
            place, member = divmod(row, G)
            samples[row] = replace(
                samples[row], group_id=place, rollout_id=f"{step}_{place}_{member}", index=place * G + member
            )
        return replace(batch, samples=samples), rows, after

    def files(self, made_of: object) -> Callable[[], Mapping[str, bytes]]:
        """Return a function that returns the kept groups as files for a checkpoint, by path.

        Args:
            made_of: Settings without which the groups have no use; its `repr` is compared.
        """
        groups = self.groups
        return lambda: _to_files(groups, _digest(made_of))

    def load(self, checkpoint: Path, made_of: object) -> None:
        """Take over the groups of a checkpoint, unless they were made with other settings.

        Raises:
            ValueError: A file does not hold groups.
        """
        if not (checkpoint / _GROUPS).exists():
            return
        stored = decode((checkpoint / _GROUPS).read_text(encoding="utf-8"))
        if stored["made_of"] != _digest(made_of):
            _LOGGER.warning(
                "the %d kept groups of the checkpoint are dropped, because model, prompts, reward, sampling or "
                "grpo.num_generations have changed since",
                len(stored["groups"]),
            )
            return
        if stored["groups"]:
            content = (checkpoint / _COMPLETIONS).read_bytes()
            self.groups = _from_data(stored["groups"], content, self._num_generations)[: self._limit]

    def _young(self, step: int) -> list[KeptGroup]:
        return [kept for kept in self.groups if step - kept.step <= self._max_age]

    def _hardest(self, groups: Sequence[KeptGroup], next_step: int) -> tuple[KeptGroup, ...]:
        """Return the groups to keep: the hardest of those that the next step may use, one of each problem."""
        usable = [group for group in groups if next_step - group.step <= self._max_age and group.uses < MAX_USES]
        of_problems: dict[tuple[bytes, str], KeptGroup] = {}
        for group in sorted(usable, key=lambda group: group.difficulty):
            of_problems.setdefault(group.problem, group)
        return tuple(of_problems.values())[: self._limit]


def _split(scored: Scored, G: int) -> list[Scored]:
    return [select_groups([scored], [(0, group)], G) for group in range(len(scored.scores) // G)]


def _replaces(group: KeptGroup, kept: KeptGroup) -> bool:
    """Return True if a group that was sampled now is of the same problem and has an advantage, or is solved."""
    if group.problem != kept.problem:
        return False
    now = group.scored
    lowest = np.fmin.reduce(now.judged)  # NaN if none is judged
    return bool(
        not dead_groups(now, len(now.scores))[0] or lowest >= lowest_reaching(float(np.nanmax(kept.scored.judged)))
    )


def _tidy(scored: Scored) -> Scored:
    """Return a group as a checkpoint restores it, so that a resumed run equals an uninterrupted one."""
    return replace(scored, scores=[tidy(score) for score in scored.scores])


# --- files -----------------------------------------------------------------------------------------------------------


def _digest(made_of: object) -> str:
    return hashlib.blake2b(repr(made_of).encode(), digest_size=8).hexdigest()


def _to_files(groups: Sequence[KeptGroup], made_of: str) -> dict[str, bytes]:
    text = encode({"made_of": made_of, "groups": [_to_data(group) for group in groups]})
    files = {_GROUPS: text.encode()}
    if groups:
        parts = [group.scored.completions for group in groups]
        rows = [(part, row) for part, group in enumerate(groups) for row in range(len(group.scored.scores))]
        files[_COMPLETIONS] = to_bytes(join_completions(parts, rows))
    return files


def _to_data(group: KeptGroup) -> dict[str, Any]:
    scored = group.scored
    first = scored.samples[0]
    return {
        "uses": group.uses,
        "prompt": first.prompt,
        "messages": list(first.prompt_messages) if first.episode is None else [],
        "columns": dict(first.columns),
        "format": first.format,
        "step": first.step,
        "max_steps": first.max_steps,
        "scores": [to_data(score) for score in scored.scores],
        "totals": scored.totals.tolist(),
        "judged": scored.judged.tolist(),
    }


def _from_data(stored: Sequence[Mapping[str, Any]], content: bytes, G: int) -> tuple[KeptGroup, ...]:
    completions = from_bytes(content)
    groups = []
    for number, data in enumerate(stored):
        own = join_completions([completions], [(0, number * G + row) for row in range(G)])
        samples = make_samples(
            PromptBatch([data["prompt"]], [data["messages"]], [()], [data["columns"]]),
            own,
            format=data["format"],
            num_generations=G,
            step=data["step"],
            max_steps=data["max_steps"],
        )
        scores = [from_data(score) for score in data["scores"]]
        scored = Scored(own, samples, scores, np.array(data["totals"]), np.array(data["judged"]))
        groups.append(KeptGroup(scored, data["uses"]))
    return tuple(groups)
