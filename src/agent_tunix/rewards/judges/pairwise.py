"""Judge that compares the completions of a group in pairs."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards.faults import describe_fault
from agent_tunix.rewards.judges import prompts, ranking
from agent_tunix.rewards.judges.accounts import Receipt, Usage
from agent_tunix.rewards.judges.arguments import JudgeArguments
from agent_tunix.rewards.judges.base import Judge, receipt_extras
from agent_tunix.rewards.judges.faults import JudgeFault
from agent_tunix.rewards.judges.ranking import Pair
from agent_tunix.rewards.judges.verdicts import Form
from agent_tunix.rewards.sample import Outcome, Sample, Score

if TYPE_CHECKING:
    from agent_tunix.rewards.judges.asking import Asker

ORDERS = ("both", "random")

_FORM = Form({"better": ("first", "second", "tie")})
_POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(slots=True)
class _Comparison:
    """Comparison of two members, in one order or in both."""

    points: list[float] = field(default_factory=list)  # points of the pair's first member, one for each order asked
    # Account of each question, with the member that was shown first.
    receipts: list[tuple[int, Receipt]] = field(default_factory=list)
    fault: JudgeFault | None = None  # reason why there is no result; None if there is one

    @property
    def result(self) -> float:
        """Mean points of the pair's first member over the orders asked."""
        return sum(self.points) / len(self.points)


class PairwiseJudge(Judge):
    """A language model compares the completions of a group, two at a time. Range [0, 1].

    The value is the share of comparisons won (`win_rate`, a tie counts half) or the chance to beat an average member of
    the group (`bradley_terry`). It ranks the completions of a group but does not say whether any is good. Values of
    different groups are not comparable. The judge does not apply to a group of one.

    Judges tend to favour one position. With `orders: both` each pair is compared in both orders and the mean is taken,
    so that the bias cancels out. With `orders: random` each pair is compared once, in an order drawn by `seed`.

    In a configuration:

        better:
          function: pairwise_judge
          args: {model: gpt-4o-mini, rubric: "Which explanation is clearer?", opponents: 4}

    Its own arguments are `rubric` (the question to decide by, a text), `method`, `orders`, `opponents` (the number of
    others to compare each completion with, by default all), and `columns` (columns of the dataset that the judge sees).
    For other arguments see `EndpointSettings`. A group of n takes n · (n − 1) requests, or n · opponents with
    `opponents`; `orders: random` halves that. Equal completions tie without a request.

    A failed comparison does not count. A completion is scored if at least half of its comparisons succeed. Otherwise
    its outcome is that of the failure.
    """

    needs_group = True

    def _read_own(self, arguments: JudgeArguments) -> None:
        example = '{rubric: "Which explanation is clearer?"}'
        self.measure = arguments.require("rubric", arguments.take_text("rubric"), example)
        self.method = arguments.take_text("method", choices=ranking.METHODS) or "win_rate"
        self.orders = arguments.take_text("orders", choices=ORDERS) or "both"
        self.opponents = arguments.take_optional_count("opponents")

    def describe(self) -> str:
        """Return class, model, endpoint and method."""
        if self.endpoint is None:
            return super().describe()
        return f"{super().describe()}, {self.method}, orders: {self.orders}"

    async def _judge_all(self, asker: "Asker", samples: Sequence[Sample], gate: asyncio.Semaphore) -> list[Score]:
        groups: dict[int, list[int]] = {}
        for position, sample in enumerate(samples):
            groups.setdefault(sample.group_id, []).append(position)
        scores: list[Score | None] = [None] * len(samples)

        async def judge_group(positions: list[int]) -> None:
            judged = await self._judge_group(asker, [samples[position] for position in positions], gate)
            for position, score in zip(positions, judged, strict=True):
                scores[position] = score

        await asyncio.gather(*(judge_group(positions) for positions in groups.values()))
        return [score for score in scores if score is not None]

    async def _judge_group(self, asker: "Asker", members: list[Sample], gate: asyncio.Semaphore) -> list[Score]:
        if len(members) < 2:
            return [Score.failed(Outcome.NOT_APPLICABLE, "a group of one completion has no pair to compare")]
        try:
            return await self._rank_group(asker, members, gate)
        except BadReferenceError as error:
            return [Score.failed(Outcome.BAD_REFERENCE, str(error))] * len(members)
        except Exception as error:  # the fault of one group must not affect the batch
            return [Score.failed(Outcome.ERROR, describe_fault(error))] * len(members)

    async def _rank_group(self, asker: "Asker", members: list[Sample], gate: asyncio.Semaphore) -> list[Score]:
        shared = self._shared_sections(members[0])
        texts = [member.response for member in members]
        order = sorted(range(len(texts)), key=lambda member: (self._draw(texts[member]), member))
        pairs = ranking.choose_pairs(order, self.opponents)
        comparisons = await asyncio.gather(*(self._compare(asker, shared, texts, pair, gate) for pair in pairs))
        return self._scores(len(members), dict(zip(pairs, comparisons, strict=True)))

    async def _compare(
        self, asker: "Asker", shared: Mapping[str, str], texts: Sequence[str], pair: Pair, gate: asyncio.Semaphore
    ) -> _Comparison:
        i, j = pair
        comparison = _Comparison()
        if texts[i] == texts[j]:
            comparison.points.append(0.5)
            return comparison
        in_order = self._draw(*sorted((texts[i], texts[j]))) % 2 == (texts[i] < texts[j])
        orders = {"both": [(i, j), (j, i)], "random": [(i, j) if in_order else (j, i)]}[self.orders]

        async def ask(first: int, second: int) -> float:
            receipt = Receipt()
            comparison.receipts.append((first, receipt))
            messages, code = prompts.comparison_messages(self.measure, shared, texts[first], texts[second])
            async with gate:
                verdict = await asker.ask(messages, _FORM.schema(), lambda reply: _FORM.read(reply, code), receipt)
            points = _POINTS[verdict.labels["better"]]
            return points if first == i else 1 - points

        answers = await asyncio.gather(*(ask(*order) for order in orders), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, JudgeFault):
                comparison.fault = comparison.fault or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                comparison.points.append(answer)
        return comparison

    def _scores(self, num_members: int, comparisons: Mapping[Pair, _Comparison]) -> list[Score]:
        results = {pair: comparison.result for pair, comparison in comparisons.items() if comparison.fault is None}
        rank = ranking.bradley_terry if self.method == "bradley_terry" else ranking.win_rates
        values = rank(num_members, results)
        return [
            self._score(member, value, {pair: c for pair, c in comparisons.items() if member in pair})
            for member, value in enumerate(values)
        ]

    def _score(self, member: int, value: float, comparisons: Mapping[Pair, _Comparison]) -> Score:
        faults = [comparison.fault for comparison in comparisons.values() if comparison.fault is not None]
        succeeded = {pair: c for pair, c in comparisons.items() if c.fault is None}
        if 2 * len(succeeded) < len(comparisons):
            slow = next((fault for fault in faults if fault.outcome is Outcome.TIMEOUT), faults[0])
            return Score.failed(slow.outcome, f"{len(faults)} of {len(comparisons)} comparisons failed: {slow}")
        points = [c.result if pair[0] == member else 1 - c.result for pair, c in succeeded.items()]
        flips = sum(len(set(c.points)) > 1 for c in succeeded.values())
        own = [receipt for c in comparisons.values() for first, receipt in c.receipts if first == member]
        won, lost = sum(p > 0.5 for p in points), sum(p < 0.5 for p in points)
        tied = len(points) - won - lost
        detail = f"won {won}, tied {tied}, lost {lost} of {len(comparisons)} comparisons"
        if faults:
            detail += f"; {len(faults)} failed: {faults[0]}"
        extras = {"won": won, "tied": tied, "lost": lost, "failed": len(faults), "order_decided": flips}
        return Score(value, detail=detail, extras={**extras, **_sum_extras(own)})

    def _draw(self, *texts: str) -> int:
        """Return a pseudo-random number that depends only on the texts and the seed."""
        digest = hashlib.sha256(f"{self._the_endpoint().seed}".encode())
        for text in texts:
            digest.update(b"\0" + text.encode("utf-8", "backslashreplace"))
        return int.from_bytes(digest.digest()[:8], "big")


def _sum_extras(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Return the account of comparisons that showed a member first, so that a group's sum counts each question once."""
    total = Receipt(
        usage=sum((receipt.usage for receipt in receipts), Usage()),
        cost=sum(receipt.cost for receipt in receipts),
        requests=sum(receipt.requests for receipt in receipts),
        latency_s=max((receipt.latency_s for receipt in receipts), default=0.0),
        is_cached=bool(receipts) and all(receipt.is_cached for receipt in receipts),
    )
    return receipt_extras(total)
