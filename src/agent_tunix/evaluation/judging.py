"""Metrics of an evaluation: accuracy, partial accuracy, format accuracy, pass@k and consistency.

A reward of correctness (`evaluation.correct`) and `format` score the completions. So an evaluation measures the same
thing whatever reward the run trains on. pass@k is the unbiased estimator of https://arxiv.org/abs/2107.03374,
equation 1: if c of the n samples of a problem are correct, 1 - C(n - c, k) / C(n, k), averaged over the problems.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_tunix.evaluation.intervals import Interval, mean_interval, share_interval
from agent_tunix.rewards import Outcome, Sample, Score, extract_answer, get_builtin
from agent_tunix.rewards.rounding import lowest_reaching

_LOGGER = logging.getLogger("agent_tunix.evaluation")


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation. A share is between 0 and 1, or None if no completion was scored."""

    accuracy: float | None  # share of correct completions: those with a score of at least `evaluation.correct_at`
    # Share of completions with at least half of that score. With `math`, a number within 10 % of the reference has it.
    partial_accuracy: float | None
    format_accuracy: float | None  # share of completions that follow `prompt.format` exactly
    pass_at_k: dict[int, float]  # k → share of problems that at least one of k samples solves; empty with one pass
    consistency: float | None  # mean share of a problem's samples that give its most common answer; None with one pass
    num_problems: int
    # Number of completions without a score, because the reference is invalid or the reward failed. No share counts
    # them.
    num_unscored: int
    intervals: Mapping[str, Interval]  # last part of a metric's name → its 95 % interval
    judged: "Judged" = field(repr=False, compare=False)

    def metrics(self) -> dict[str, float | None]:
        """Return the metrics by the names that every tracker uses; None for unknown values."""
        values: dict[str, float | None] = {
            "eval/accuracy": self.accuracy,
            "eval/partial_accuracy": self.partial_accuracy,
            "eval/format_accuracy": self.format_accuracy,
            "eval/num_problems": self.num_problems,
            "eval/num_unscored": self.num_unscored,
        }
        if self.pass_at_k:
            values["eval/pass_at_k"] = self.pass_at_k[max(self.pass_at_k)]
            values |= {f"eval/pass_at_{k}": share for k, share in self.pass_at_k.items()}
        if self.consistency is not None:
            values["eval/consistency"] = self.consistency
        for leaf, (low, high) in self.intervals.items():
            values |= {f"eval/{leaf}_low": low, f"eval/{leaf}_high": high}
        return values


@dataclass(frozen=True)
class Judged:
    """Scores of the completions of P problems, N for each."""

    samples: Sequence[Sequence[Sample]]  # [P][N] completions
    verdicts: Sequence[Sequence[Score]]  # [P][N] scores of the measure of correctness
    forms: Sequence[Sequence[Score]]  # [P][N] scores of `format`
    correct_at: float = 1.0

    @property
    def scored(self) -> np.ndarray:
        """[P, N], True for completions whose correctness was scored."""
        return np.array([[one.outcome is Outcome.SCORED for one in row] for row in self.verdicts])

    @property
    def right(self) -> np.ndarray:
        """[P, N], True for correct completions."""
        return self._reach(self.correct_at)

    @property
    def partly_right(self) -> np.ndarray:
        """[P, N], True for completions with at least half the score of a correct one, correct ones included."""
        return self._reach(min(self.correct_at, self.correct_at / 2))

    def _reach(self, least: float) -> np.ndarray:
        return np.array([[_reaches(one.value, least) for one in row] for row in self.verdicts])

    @property
    def formed(self) -> np.ndarray:
        """[P, N], True for completions that follow the format exactly."""
        return np.array([[one.value == 1.0 for one in row] for row in self.forms])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield for each problem its text, its reference, and its completions with their scores."""
        right, partly = self.right.tolist(), self.partly_right.tolist()
        for number, (samples, verdicts, forms) in enumerate(zip(self.samples, self.verdicts, self.forms, strict=True)):
            completions = [
                {
                    "response": sample.response,
                    "answer": extract_answer(sample.response),
                    "correct": None if verdict.value is None else right[number][place],
                    "partial": None if verdict.value is None else partly[number][place],
                    "score": verdict.value,
                    "format": form.value == 1.0,
                    "outcome": str(verdict.outcome),
                    "detail": verdict.detail,
                    "num_tokens": sample.num_tokens,
                    "ended": sample.ended,
                }
                for place, (sample, verdict, form) in enumerate(zip(samples, verdicts, forms, strict=True))
            ]
            yield {"problem": samples[0].prompt, "reference": samples[0].answer, "completions": completions}


def reason_not_to_judge(correct: str, columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why a measure of correctness can use no reference of some rows; "" if it can use one.

    Args:
        correct: Name of the built-in reward.
        columns: Columns of the rows.
    """
    scores = get_builtin(correct).score([Sample("", columns=row) for row in columns])
    if any(score.outcome is Outcome.SCORED for score in scores):
        return ""
    return scores[0].detail if scores else "there are no rows"


def judge(
    samples: Sequence[Sequence[Sample]],
    correct: str = "math",
    verdicts: Sequence[Score] | None = None,
    correct_at: float = 1.0,
) -> Evaluation:
    """Score the samples of each problem and compute the metrics. Log a warning if no sample can be scored.

    Args:
        samples: [P][N] samples, the same number for each problem.
        correct: Name of the reward that measures correctness.
        verdicts: [P * N] scores of that reward; None if it is built in.
        correct_at: The least score of a correct completion.
    """
    passes = len(samples[0])
    flat = [sample for of_problem in samples for sample in of_problem]
    verdicts = get_builtin(correct).score(flat) if verdicts is None else verdicts
    # An episode whose environment failed says nothing about the policy.
    verdicts = [
        Score.failed(Outcome.ERROR, sample.fault) if sample.fault else verdict
        for sample, verdict in zip(flat, verdicts, strict=True)
    ]
    forms = get_builtin("format").score(flat)
    judged = Judged(samples, _rows_of(verdicts, passes), _rows_of(forms, passes), correct_at)
    scored, right, formed = judged.scored, judged.right, judged.formed
    if not scored.any():
        _LOGGER.warning(
            "none of the %d completions of the held-out problems could be scored, so the accuracy is unknown;"
            " set evaluation.correct to a reward that can score them, or evaluation.with_rewards=true; for the"
            " first one %s reported: %s",
            len(flat),
            correct,
            verdicts[0].detail,
        )
    shares = {"accuracy": right, "partial_accuracy": judged.partly_right, "format_accuracy": formed}
    intervals = {leaf: share_interval(hits, scored) for leaf, hits in shares.items()}
    kept = scored.all(axis=1)
    several = passes > 1 and bool(kept.any())
    solved = {k: _pass_at_k_of_each(right[kept].sum(axis=1), passes, k) for k in _ks(passes)} if several else {}
    agreement = _consistency_of_each(samples) if several else None
    for k, of_problems in solved.items():
        intervals[f"pass_at_{k}"] = mean_interval(of_problems, is_share=True)
    if solved:
        intervals["pass_at_k"] = intervals[f"pass_at_{max(solved)}"]
    if agreement is not None:
        intervals["consistency"] = mean_interval(agreement, is_share=True)
    return Evaluation(
        accuracy=_mean(right[scored]),
        partial_accuracy=_mean(shares["partial_accuracy"][scored]),
        format_accuracy=_mean(formed[scored]),
        pass_at_k={k: float(of_problems.mean()) for k, of_problems in solved.items()},
        consistency=None if agreement is None else float(agreement.mean()),
        num_problems=len(samples),
        num_unscored=int((~scored).sum()),
        intervals={leaf: interval for leaf, interval in intervals.items() if interval is not None},
        judged=judged,
    )


def pass_at_k(num_right: np.ndarray, num_samples: int, k: int) -> float:
    """Return the unbiased estimate of the share of problems that at least one of k samples solves.

    Args:
        num_right: [P] number of correct samples of each problem.
        num_samples: Number n of samples of each problem.
        k: Number of samples to draw, at most n.
    """
    return float(_pass_at_k_of_each(num_right, num_samples, k).mean())


def _pass_at_k_of_each(num_right: np.ndarray, num_samples: int, k: int) -> np.ndarray:
    all_subsets = math.comb(num_samples, k)
    return np.array([1.0 - math.comb(num_samples - int(c), k) / all_subsets for c in num_right])


def _ks(passes: int) -> list[int]:
    return sorted({k for k in (1, 2, 4, 8, 16, 32, 64, 128) if k < passes} | {passes})


def _consistency_of_each(samples: Sequence[Sequence[Sample]]) -> np.ndarray:
    shares = []
    for of_problem in samples:
        answers = Counter(extract_answer(sample.response) for sample in of_problem)
        del answers[None]
        shares.append(max(answers.values(), default=0) / len(of_problem))
    return np.array(shares)


def _rows_of(scores: Sequence[Score], passes: int) -> list[Sequence[Score]]:
    return [scores[start : start + passes] for start in range(0, len(scores), passes)]


def _reaches(value: float | None, least: float) -> bool:
    return value is not None and value >= lowest_reaching(least)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
