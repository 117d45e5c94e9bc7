"""Judge that compares the completions of a group in pairs."""

import asyncio
import hashlib
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.configured.arguments import Count, Names, Text
from agent_tunix.rewards.conventions.base import groups_of
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.judges import prompts
from agent_tunix.rewards.judges.accounts import Receipt
from agent_tunix.rewards.judges.base import Judge
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.row_rubrics import RowRubricSettings, describe_criteria, read_row_rubric
from agent_tunix.rewards.judges.settings import EndpointSettings
from agent_tunix.rewards.judges.verdicts import Form
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker

Pair = tuple[int, int]
# Function that compares two members and returns the points of the first.
Ask = Callable[[int, int], Awaitable[float]]

_FORM = Form({"better": ("first", "second", "tie")})
_POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(slots=True)
class _Comparison:
    """Comparison of two members, in one order or in both."""

    points: list[float] = field(default_factory=list)  # points of the pair's first member, one for each order asked
    fault: JudgeFault | None = None  # reason why there is no result; None if there is one

    @property
    def result(self) -> float:
        """Mean points of the pair's first member over the orders asked."""
        return sum(self.points) / len(self.points)


class PairwiseSettings(RowRubricSettings):
    """Arguments of `pairwise_judge`."""

    rubric: Text | None = None
    orders: Literal["both", "random"] = "both"
    opponents: Count | None = None
    columns: Names = Field(default_factory=list)


class PairwiseJudge(Judge[PairwiseSettings]):
    """A language model compares the completions of a group, two at a time. Range [0, 1].

    The value is the share of comparisons won; a tie counts half. It ranks the completions of a group but does not say
    whether any is good. Values of different groups are not comparable. The judge does not apply to a group of one.

    Judges tend to favour one position. With `orders: both` each pair is compared in both orders and the mean is taken,
    so that the bias cancels out. With `orders: random` each pair is compared once, in an order drawn by `seed`.

    In a configuration:

        better:
          function: pairwise_judge
          args: {model: gpt-4o-mini, rubric: "Which explanation is clearer?", opponents: 4}

    Its own arguments are `rubric` (the question to decide by, a text) or `rubric_column` (the column that holds the
    rubric of each row), `orders`, `opponents` (the number of others to compare each completion with, by default all),
    and `columns` (columns of the dataset that the judge sees). For other arguments see `EndpointSettings`. A group of n
    takes n · (n − 1) requests, or n · opponents with `opponents`; `orders: random` halves that. Equal completions tie
    without a request.

    A failed comparison does not count. A completion is scored if at least half of its comparisons succeed. Otherwise
    its outcome is that of the failure.
    """

    documented_with = (EndpointSettings,)
    settings_class = PairwiseSettings
    needs_group = True

    def _describe(self, arguments: PairwiseSettings) -> str:
        return f"{super()._describe(arguments)}, orders: {arguments.orders}"

    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample]) -> list[Score]:
        groups = groups_of(samples)
        rows = await asyncio.gather(*(self._judge_group(asker, [samples[i] for i in group]) for group in groups))
        scores = dict(zip(itertools.chain(*groups), itertools.chain(*rows), strict=True))
        return [scores[i] for i in range(len(samples))]

    async def _judge_group(self, asker: "Asker", members: list[Sample]) -> list[Score]:
        if len(members) < 2:
            return [Score.failed(Outcome.NOT_APPLICABLE, "a group of one completion has no pair to compare")]
        try:
            return await self._rank_group(asker, members)
        except BadReferenceError as error:
            return [Score.failed(Outcome.BAD_REFERENCE, str(error))] * len(members)
        except Exception as error:  # the fault of one group must not affect the batch
            return [Score.failed(Outcome.ERROR, describe_fault(error))] * len(members)

    async def _rank_group(self, asker: "Asker", members: list[Sample]) -> list[Score]:
        shared, arguments = self._shared_sections(members[0]), self._required_arguments()
        measure = arguments.rubric or describe_criteria(read_row_rubric(members[0], arguments.rubric_column))
        texts = [member.response for member in members]
        order = sorted(range(len(texts)), key=lambda member: (self._draw(texts[member]), member))
        pairs = choose_pairs(order, self._required_arguments().opponents)
        # A question counts for the member that is shown first, so that it counts once in the group.
        receipts = [Receipt() for _ in members]

        async def ask(first: int, second: int) -> float:
            """Return the points of the member that is shown first."""
            messages, code = prompts.comparison_messages(measure, shared, texts[first], texts[second])
            question = prompts.JudgeQuestion(messages, _FORM.schema(), lambda reply: _FORM.read(reply, code))
            verdict = await asker.ask(question, receipts[first])
            return _POINTS[verdict.labels["better"]]

        comparisons = await asyncio.gather(*(self._compare(ask, texts, pair) for pair in pairs))
        return self._scores(dict(zip(pairs, comparisons, strict=True)), receipts)

    async def _compare(self, ask: Ask, texts: Sequence[str], pair: Pair) -> _Comparison:
        i, j = pair
        comparison = _Comparison()
        if texts[i] == texts[j]:
            comparison.points.append(0.5)
            return comparison
        in_order = self._draw(*sorted((texts[i], texts[j]))) % 2 == (texts[i] < texts[j])
        orders = [(i, j), (j, i)]
        if self._required_arguments().orders == "random":
            orders = [(i, j) if in_order else (j, i)]
        answers = await asyncio.gather(*(ask(*order) for order in orders), return_exceptions=True)
        for (first, _), answer in zip(orders, answers, strict=True):
            if isinstance(answer, JudgeFault):
                comparison.fault = comparison.fault or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                comparison.points.append(answer if first == i else 1 - answer)
        return comparison

    def _scores(self, comparisons: Mapping[Pair, _Comparison], receipts: Sequence[Receipt]) -> list[Score]:
        return [
            _score(member, {pair: c for pair, c in comparisons.items() if member in pair}, receipt)
            for member, receipt in enumerate(receipts)
        ]

    def _draw(self, *texts: str) -> int:
        """Return a pseudo-random number that depends only on the texts and the seed."""
        digest = hashlib.sha256(f"{self._required_arguments().seed}".encode())
        for text in texts:
            digest.update(b"\0" + text.encode("utf-8", "backslashreplace"))
        return int.from_bytes(digest.digest()[:8], "big")


def choose_pairs(order: list[int], opponents: int | None) -> list[Pair]:
    """Return the pairs to compare: all, or each member with a number of others.

    Args:
        order: Members in the order of a ring. Each is compared with its nearest neighbours in the ring.
        opponents: Number of others per member, rounded up to an even number; None: all.
    """
    n = len(order)
    reach = n // 2 if opponents is None else min(n // 2, (opponents + 1) // 2)
    pairs = {
        (min(one, other), max(one, other))
        for position, one in enumerate(order)
        for distance in range(1, reach + 1)
        if one != (other := order[(position + distance) % n])
    }
    return sorted(pairs)


def _score(member: int, comparisons: Mapping[Pair, _Comparison], receipt: Receipt) -> Score:
    """Return the score of a member from its comparisons."""
    faults = [comparison.fault for comparison in comparisons.values() if comparison.fault is not None]
    succeeded = {pair: c for pair, c in comparisons.items() if c.fault is None}
    if 2 * len(succeeded) < len(comparisons):
        slow = next((fault for fault in faults if fault.outcome is Outcome.TIMEOUT), faults[0])
        return Score.failed(slow.outcome, f"{len(faults)} of {len(comparisons)} comparisons failed: {slow}")
    points = [c.result if pair[0] == member else 1 - c.result for pair, c in succeeded.items()]
    flips = sum(len(set(c.points)) > 1 for c in succeeded.values())
    won, lost = sum(p > 0.5 for p in points), sum(p < 0.5 for p in points)
    tied = len(points) - won - lost
    detail = f"won {won}, tied {tied}, lost {lost} of {len(comparisons)} comparisons"
    if faults:
        detail += f"; {len(faults)} failed: {faults[0]}"
    extras = {"won": won, "tied": tied, "lost": lost, "failed": len(faults), "order_decided": flips}
    return Score(sum(points) / len(points), detail=detail, extras={**extras, **receipt.to_extras()})
