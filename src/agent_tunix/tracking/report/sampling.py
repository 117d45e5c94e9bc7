"""Choice of the rollouts in a report: all of a short run, the most informative of a long one.

The rollouts are read once, a step at a time, and the number kept is bounded whatever the length of the run.
"""

import hashlib
import heapq
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.rewards.agent_calls import count_forks, describe_calls
from agent_tunix.tracking.report.conversation import show_conversation
from agent_tunix.tracking.report.cutting import cut, to_inert_json
from agent_tunix.tracking.rollouts.encoding import to_json

NUM_OF_EACH = 150
NUM_UNIFORM = 6000
LONGEST_RESPONSE = 6000
LONGEST_PROMPT = 3000
LONGEST_NOTE = 500
LONGEST_COLUMNS = 1500
MAX_COMPONENTS = 40
MAX_DIFFERENCES = 8
_MOST_DIFFERENCES = 2000
ROLLOUTS_BYTES = 3_200_000

Record = dict[str, Any]
Rank = tuple[float, ...]


@dataclass(frozen=True)
class Chosen:
    """The rollouts that a report shows."""

    records: list[Record]  # records for JSON, oldest first; `prompt` is an index into `prompts`
    prompts: list[tuple[str, str]]  # distinct prompts, each with its dataset row as JSON
    num_seen: int
    num_failed: int  # number of these that were not scored
    num_forks: int = 0  # rows of tokens that fork, of all rollouts
    # The most frequent forks of agents: count, cause and first difference.
    differences: Sequence[tuple[int, str, str]] = ()


@dataclass
class _Best:
    """The records of highest rank so far."""

    capacity: int
    heap: list[tuple[Rank, int, Record]] = field(default_factory=list)

    def offer(self, rank: Rank, number: int, record: "_Lazy") -> None:
        if len(self.heap) < self.capacity:
            heapq.heappush(self.heap, (rank, number, record.get()))
        elif (rank, number) > self.heap[0][:2]:
            heapq.heapreplace(self.heap, (rank, number, record.get()))

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield the number and the record of each, highest rank first."""
        for _, number, record in sorted(self.heap, key=lambda entry: entry[:2], reverse=True):
            yield number, record


class Chooser:
    """Selector of the rollouts that a report shows.

    It keeps the rollouts of highest and lowest total, those whose components disagree most, the newest, the newest
    failures, random whole groups, and those that findings refer to.

    Args:
        components: Names of the reward's components; only the first `MAX_COMPONENTS` are used.
        spans: Minimum and maximum of each component over the run, the scale for disagreement.
        wanted: Ids of the rollouts that findings refer to, which are always kept.
    """

    def __init__(
        self, components: Sequence[str], spans: Mapping[str, tuple[float, float]], wanted: Collection[str] = ()
    ) -> None:
        self._components = components[:MAX_COMPONENTS]
        self._spans = spans
        self._wanted_ids = frozenset(wanted)
        self._wanted = _Best(NUM_OF_EACH)
        self._highest, self._lowest = _Best(NUM_OF_EACH), _Best(NUM_OF_EACH)
        self._disagreeing, self._failed = _Best(NUM_OF_EACH), _Best(NUM_OF_EACH)
        self._newest, self._uniform = _Best(NUM_OF_EACH), _Best(NUM_UNIFORM)
        self._num_seen = 0
        self._num_failed = 0
        self._num_forks = 0
        self._differences: Counter[tuple[str, str]] = Counter()

    def add(
        self,
        samples: Iterable[Sample],
        scores: Iterable[Score],
        advantages: Iterable[float],
        turn_advantages: Iterable[Sequence[float]] | None = None,
        step: int | None = None,
    ) -> None:
        """Add the rollouts of a step, whose number is by default that of each sample."""
        samples = list(samples)
        self._count_forks(samples)
        of_turns = [()] * len(samples) if turn_advantages is None else turn_advantages
        for sample, score, advantage, turns in zip(samples, scores, advantages, of_turns, strict=True):
            number = self._num_seen
            self._num_seen += 1
            disagreement = self._disagreement(score)
            trained = sample.step if step is None else step
            record = _Lazy(sample, score, float(advantage), self._components, disagreement, turns, trained)
            if sample.rollout_id in self._wanted_ids:
                self._wanted.offer((), number, record)
            if score.value is None:
                self._num_failed += 1
                self._failed.offer((trained,), number, record)
            else:
                self._highest.offer((score.value,), number, record)
                self._lowest.offer((-score.value,), number, record)
            if disagreement:
                self._disagreeing.offer((disagreement,), number, record)
            self._newest.offer((trained,), number, record)
            self._uniform.offer(_draw(sample), number, record)

    def choose(self, limit_bytes: int = ROLLOUTS_BYTES) -> Chosen:
        """Choose as many as fit into a number of bytes of JSON: rollouts named by findings, then each kind in turn."""
        kinds = (self._highest, self._lowest, self._disagreeing, self._failed, self._newest)
        in_turn = chain.from_iterable(zip_longest(*(kind.records() for kind in kinds)))
        chosen: dict[int, Record] = {}
        prompts: dict[tuple[str, str], int] = {}
        room = limit_bytes
        for entry in chain(self._wanted.records(), in_turn, self._uniform.records()):
            if entry is None or entry[0] in chosen:
                continue
            number, record = entry
            size = size_of(record) - (size_of(record["prompt"]) if record["prompt"] in prompts else 0)
            if size > room:
                continue
            room -= size
            prompts.setdefault(record["prompt"], len(prompts))
            chosen[number] = record
        records = [chosen[number] | {"prompt": prompts[chosen[number]["prompt"]]} for number in sorted(chosen)]
        differences = [
            (count, cause, cut(difference, LONGEST_NOTE))
            for (cause, difference), count in self._differences.most_common(MAX_DIFFERENCES)
        ]
        return Chosen(records, list(prompts), self._num_seen, self._num_failed, self._num_forks, differences)

    def _count_forks(self, samples: Iterable[Sample]) -> None:
        forks = count_forks(
            sample.episode.agent
            for sample in samples
            if sample.episode is not None and sample.episode.agent is not None
        )
        self._num_forks += forks.total()
        self._differences += forks
        if len(self._differences) > _MOST_DIFFERENCES:  # the rare ones are forgotten
            self._differences = Counter(dict(self._differences.most_common(_MOST_DIFFERENCES // 2)))

    def _disagreement(self, score: Score) -> float | None:
        """Return the distance between the two furthest components, 0 to 1, each scaled to its range over the run.

        A component of negative weight is inverted. None if fewer than two components vary.
        """
        places = []
        for name, value in score.components.items():
            low, high = self._spans.get(name, (0.0, 0.0))
            if value is not None and low < high:
                place = (value - low) / (high - low)
                term = score.terms.get(name)
                places.append(1 - place if term is not None and term.weight < 0 else place)
        return round(max(places) - min(places), 4) if len(places) > 1 else None


@dataclass
class _Lazy:
    """A rollout that becomes a record only if it is kept."""

    sample: Sample
    score: Score
    advantage: float
    components: Sequence[str]
    disagreement: float | None
    turns: Sequence[float] = ()  # advantages of its turns, NaN after the last one; empty without credit by turn
    step: int = 0  # step that trained it
    _record: Record | None = None

    def get(self) -> Record:
        if self._record is None:
            self._record = self._make()
        return self._record

    def _make(self) -> Record:
        sample, score = self.sample, self.score
        logged = {name: dict(part.metrics) for name, part in score.parts.items() if part.metrics}
        extras = {name: dict(part.extras) for name, part in score.parts.items() if part.extras}
        if score.extras:
            extras["total"] = dict(score.extras)
        return {
            "id": sample.rollout_id,
            "step": self.step,
            **({} if sample.step == self.step else {"sampled_step": sample.step}),
            "group": sample.group_id,
            "prompt": (cut(sample.prompt, LONGEST_PROMPT), _short_json(sample.columns)),
            **_said(sample, [float(one) for one in self.turns if not math.isnan(one)]),
            "total": score.value,
            "advantage": self.advantage if math.isfinite(self.advantage) else None,
            "disagreement": self.disagreement,
            "outcome": score.outcome.value,
            # If there is a total, the details of the components say everything.
            "detail": "" if score.parts and score.value is not None else cut(score.detail, LONGEST_NOTE),
            "tokens": sample.num_tokens,
            "ended": sample.ended,
            "logged": _short_json(logged),
            "extras": _short_json(extras),
            "parts": [self._part(name) for name in self.components],
        }

    def _part(self, name: str) -> list[Any] | None:
        """Return value, weight, weighted value, gate shut, outcome and detail; None if the component did not run."""
        score = self.score
        term, part = score.terms.get(name), score.parts.get(name)
        if term is None and name not in score.components:
            return None
        outcome = term.outcome if term else Outcome.SCORED
        detail = (part.detail if part else "") or (term.detail if term else "")
        return [
            score.components.get(name),
            term.weight if term else None,
            term.value if term else None,
            bool(term and term.gate_shut),
            outcome.value,
            cut(detail, LONGEST_NOTE),
        ]


def size_of(value: Any) -> int:
    """Return the number of bytes of a value in the page."""
    return len(to_inert_json(value).encode())


def _said(sample: Sample, advantages: Sequence[float]) -> Record:
    """Return the response; for an episode, its turns, stop reason and error."""
    if sample.episode is None:
        return {"response": cut(sample.response, LONGEST_RESPONSE)}
    episode = sample.episode
    turns = show_conversation(
        sample.messages, episode.calls, episode.num_prompt_messages, LONGEST_RESPONSE, episode.unread_calls, advantages
    )
    return {
        "turns": [
            [
                *(turn.role, turn.text),
                [[c.name, c.arguments, c.result, c.time, c.outcome, c.failed] for c in turn.calls],
                *([] if turn.advantage is None else [turn.advantage]),
            ]
            for turn in turns
        ],
        **({"turn_advantages": advantages} if advantages else {}),
        "stop": cut(episode.stop_reason, LONGEST_NOTE),
        "error": cut(episode.error, LONGEST_NOTE),
        **({} if episode.agent is None else {"agent": "\n".join(describe_calls(episode.agent))}),
    }


def _short_json(value: Mapping[str, Any]) -> str:
    return cut(json.dumps(to_json(value), indent=1, ensure_ascii=False), LONGEST_COLUMNS) if value else ""


def _draw(sample: Sample) -> Rank:
    """Return a random rank for the rollout's group: reproducible, and equal for all members of the group."""
    digest = hashlib.blake2b(f"{sample.step}/{sample.group_id}".encode(), digest_size=6).digest()
    return (float(int.from_bytes(digest)), sample.step, sample.group_id)
