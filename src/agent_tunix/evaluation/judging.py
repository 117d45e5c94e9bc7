"""Metrics of an evaluation: accuracy, partial accuracy, format accuracy, pass@k and consistency.

A built-in reward of correctness (`evaluation.correct`) and `format` score the completions. So an evaluation measures
the same thing whatever reward the run trains on. pass@k is the unbiased estimator of https://arxiv.org/abs/2107.03374,
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

_LOGGER = logging.getLogger("agent_tunix.evaluation")


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation. A share is between 0 and 1, or None if no completion was scored.

    Attributes:
        accuracy: Share of completions whose answer is exactly right.
        partial_accuracy: Share of completions with a value of at least 0.5; of `math`, those within 10 % of the
            reference.
        format_accuracy: Share of completions that follow `prompt.format` exactly.
        pass_at_k: k → share of problems that at least one of k samples solves; empty with one pass.
        consistency: Mean share of a problem's samples that give its most common answer; None with one pass.
        num_problems: Number of problems.
        num_unscored: Number of completions without a score, because the reference is invalid. No share counts them.
        intervals: Last part of a metric's name → its 95 % interval.
        judged: The completions and their scores.
    """

    accuracy: float | None
    partial_accuracy: float | None
    format_accuracy: float | None
    pass_at_k: dict[int, float]
    consistency: float | None
    num_problems: int
    num_unscored: int
    intervals: Mapping[str, Interval]
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
    """Scores of the completions of P problems, N for each.

    Attributes:
        samples: [P][N] completions.
        verdicts: [P][N] scores of the measure of correctness.
        forms: [P][N] scores of `format`.
    """

    samples: Sequence[Sequence[Sample]]
    verdicts: Sequence[Sequence[Score]]
    forms: Sequence[Sequence[Score]]

    @property
    def scored(self) -> np.ndarray:
        """[P, N], True for completions whose correctness was scored."""
        return np.array([[one.outcome is Outcome.SCORED for one in row] for row in self.verdicts])

    @property
    def values(self) -> np.ndarray:
        """[P, N], 1 for a correct answer, less for a partly correct one, 0 for a wrong or unscored one."""
        return np.array([[one.value or 0.0 for one in row] for row in self.verdicts])

    @property
    def formed(self) -> np.ndarray:
        """[P, N], True for completions that follow the format exactly."""
        return np.array([[one.value == 1.0 for one in row] for row in self.forms])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield for each problem its text, its reference, and its completions with their scores."""
        for samples, verdicts, forms in zip(self.samples, self.verdicts, self.forms, strict=True):
            completions = [
                {
                    "response": sample.response,
                    "answer": extract_answer(sample.response),
                    "correct": None if verdict.value is None else verdict.value == 1.0,
                    "partial": None if verdict.value is None else verdict.value >= 0.5,
                    "format": form.value == 1.0,
                    "outcome": str(verdict.outcome),
                    "detail": verdict.detail,
                    "num_tokens": sample.num_tokens,
                    "ended": sample.ended,
                }
                for sample, verdict, form in zip(samples, verdicts, forms, strict=True)
            ]
            yield {"problem": samples[0].prompt, "reference": samples[0].answer, "completions": completions}


def can_judge(correct: str, columns: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if a measure of correctness can use a reference among some rows.

    Args:
        correct: Name of the built-in reward.
        columns: Columns of the rows.
    """
    probes = [Sample("", columns=row) for row in columns]
    return any(score.outcome is Outcome.SCORED for score in get_builtin(correct).score(probes))


def judge(samples: Sequence[Sequence[Sample]], correct: str = "math") -> Evaluation:
    """Score the samples of each problem and compute the metrics. Log a warning if no sample can be scored.

    Args:
        samples: [P][N] samples, the same number for each problem.
        correct: Name of the built-in reward that measures correctness.
    """
    passes = len(samples[0])
    flat = [sample for of_problem in samples for sample in of_problem]
    verdicts, forms = (get_builtin(name).score(flat) for name in (correct, "format"))
    judged = Judged(samples, _rows_of(verdicts, passes), _rows_of(forms, passes))
    scored, values, formed = judged.scored, judged.values, judged.formed
    if not scored.any():
        _LOGGER.warning(
            "none of the %d completions of the held-out problems could be judged, so their accuracy is not known;"
            " set evaluation.correct to a reward that fits the references, or evaluation.with_rewards=true; of the"
            " first one %s said: %s",
            len(flat),
            correct,
            verdicts[0].detail,
        )
    right = values == 1.0
    shares = {"accuracy": right, "partial_accuracy": values >= 0.5, "format_accuracy": formed}
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
        shares.append(answers.most_common(1)[0][1] / len(of_problem))
    return np.array(shares)


def _rows_of(scores: Sequence[Score], passes: int) -> list[Sequence[Score]]:
    return [scores[start : start + passes] for start in range(0, len(scores), passes)]


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None
