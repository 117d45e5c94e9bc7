"""Metrics of an evaluation: accuracy, partial accuracy, format accuracy, pass@k and consistency.

A reward of correctness (`evaluation.correct`) and `format` score the completions. So an evaluation measures the same
thing whatever reward the run trains on. A figure is None if fewer than half of what it should cover could be scored,
because the scored minority may be quite different from the rest. pass@k is the unbiased estimator of https://arxiv.org/abs/2107.03374,
equation 1: if c of the n samples of a problem are correct, 1 - C(n - c, k) / C(n, k), averaged over the problems.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_tunix.evaluation.agreement import share_of_most_common
from agent_tunix.evaluation.intervals import Interval, mean_interval, share_interval
from agent_tunix.rewards import Outcome, Sample, Score, extract_answer, get_builtin
from agent_tunix.rewards.builtin.form import has_tags
from agent_tunix.rewards.rounding import lowest_reaching

_LOGGER = logging.getLogger("agent_tunix.evaluation")

_LEAST_SCORED = 0.5


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation. A share is between 0 and 1, or None if too few completions were scored."""

    accuracy: float | None  # share of correct completions: those with a score of at least `evaluation.correct_at`
    # Share of completions with at least half of that score. With `math`, a number within 10 % of the reference has it.
    partial_accuracy: float | None
    # Share of completions that follow `prompt.format` exactly, whatever their correctness; None if it has no tags.
    format_accuracy: float | None
    # k → share of problems that at least one of k samples solves; empty with one pass
    pass_at_k: dict[int, float | None]
    consistency: float | None  # mean share of a problem's samples that give its most common answer; None with one pass
    num_problems: int
    # Number of completions without a score, because the reference is invalid or the reward failed. Only the format
    # accuracy counts them.
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
        return _scored(self.verdicts)

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

    @property
    def compared_with_format(self) -> np.ndarray:
        """[P, N], True for completions whose format was scored."""
        return _scored(self.forms)

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
                    "format": None if form.value is None else form.value == 1.0,
                    "outcome": str(verdict.outcome),
                    "detail": verdict.detail,
                    "num_tokens": sample.num_tokens,
                    "ended": sample.ended,
                }
                for place, (sample, verdict, form) in enumerate(zip(samples, verdicts, forms, strict=True))
            ]
            yield {"problem": samples[0].prompt, "reference": samples[0].answer, "completions": completions}


def is_enough(num_scored: int, num: int) -> bool:
    """Return True if enough of some completions or problems were scored, at least half, for a figure about all."""
    return num > 0 and num_scored >= _LEAST_SCORED * num


def reason_not_to_judge(correct: str, columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason why a measure of correctness can use too few references of the rows; "" if it can use enough.

    Args:
        correct: Name of the built-in reward.
        columns: Columns of the rows.
    """
    scores = get_builtin(correct).score([Sample("", columns=row) for row in columns])
    num_usable = sum(score.outcome is Outcome.SCORED for score in scores)
    if is_enough(num_usable, len(scores)):
        return ""
    if not scores:
        return "there are no held-out rows"
    example = next(score.detail for score in scores if score.outcome is not Outcome.SCORED)
    return f"{correct} can use {num_usable} of the {len(scores)} references of the held-out rows ({example})"


def judge(
    samples: Sequence[Sequence[Sample]],
    correct: str = "math",
    verdicts: Sequence[Score] | None = None,
    correct_at: float = 1.0,
) -> Evaluation:
    """Score the samples of each problem and compute the metrics.

    Args:
        samples: [P][N] samples, the same number for each problem.
        correct: Name of the reward that measures correctness.
        verdicts: [P * N] scores of that reward; None if it is built in.
        correct_at: The least score of a correct completion.
    """
    passes = len(samples[0])
    flat = [sample for of_problem in samples for sample in of_problem]
    is_builtin = verdicts is None
    verdicts = get_builtin(correct).score(flat) if verdicts is None else verdicts
    judged = Judged(
        samples, _rows_of(_without_faults(flat, verdicts), passes), _rows_of(_forms(flat), passes), correct_at
    )
    scored = judged.scored
    shares = {
        "accuracy": (judged.right, scored),
        "partial_accuracy": (judged.partly_right, scored),
        "format_accuracy": (judged.formed, judged.compared_with_format),
    }
    sufficient = {leaf: share for leaf, share in shares.items() if is_enough(share[1].sum(), share[1].size)}
    values = {leaf: float(hits[counted].mean()) for leaf, (hits, counted) in sufficient.items()}
    intervals = {leaf: share_interval(hits, counted) for leaf, (hits, counted) in sufficient.items()}
    if passes > 1:
        of_problems = _shares_of_problems(judged, correct if is_builtin else "")
        values |= {leaf: float(shares_P.mean()) for leaf, shares_P in of_problems.items()}
        intervals |= {leaf: mean_interval(shares_P, is_share=True) for leaf, shares_P in of_problems.items()}
    return Evaluation(
        accuracy=values.get("accuracy"),
        partial_accuracy=values.get("partial_accuracy"),
        format_accuracy=values.get("format_accuracy"),
        pass_at_k={k: values.get(f"pass_at_{k}") for k in _ks(passes)} if passes > 1 else {},
        consistency=values.get("consistency"),
        num_problems=len(samples),
        num_unscored=int((~scored).sum()),
        intervals={leaf: interval for leaf, interval in intervals.items() if interval is not None},
        judged=judged,
    )


def _shares_of_problems(judged: Judged, builtin: str) -> dict[str, np.ndarray]:
    """Return pass@k and consistency of each problem whose samples were all scored; nothing if these are too few.

    Args:
        judged: Scores of at least two samples of each problem.
        builtin: Name of the measure of correctness if it is built in, else "".
    """
    is_complete = np.asarray(judged.scored.all(axis=1))
    if not is_enough(is_complete.sum(), is_complete.size):
        return {}
    right_PN = judged.right[is_complete]
    passes = right_PN.shape[1]
    shares = {f"pass_at_{k}": _pass_at_k_of_each(right_PN.sum(axis=1), passes, k) for k in _ks(passes)}
    shares["pass_at_k"] = shares[f"pass_at_{passes}"]
    shares["consistency"] = share_of_most_common(
        [row for row, is_kept in zip(judged.samples, is_complete, strict=True) if is_kept],
        right_PN,
        builtin,
        lambda several: [_reaches(one.value, judged.correct_at) for one in get_builtin(builtin).score(several)],
    )
    return shares


def warn_if_unknown(evaluation: Evaluation, correct: str) -> None:
    """Log a warning if the accuracy is unknown, with the reason for the first completion without a score."""
    if evaluation.accuracy is not None:
        return
    verdicts = [verdict for row in evaluation.judged.verdicts for verdict in row]
    _LOGGER.warning(
        "%d of %d completions of the held-out problems could not be scored, so the accuracy is n/a;"
        " set evaluation.correct to a reward that can score them, or evaluation.with_rewards=true; for the"
        " first one %s reported: %s",
        evaluation.num_unscored,
        len(verdicts),
        correct,
        next(one.detail for one in verdicts if one.outcome is not Outcome.SCORED),
    )


def _without_faults(samples: Sequence[Sample], scores: Sequence[Score]) -> list[Score]:
    """Return the scores without those of failed episodes, which say nothing about the policy."""
    return [
        Score.failed(Outcome.ERROR, sample.fault) if sample.fault else score
        for sample, score in zip(samples, scores, strict=True)
    ]


def _forms(samples: Sequence[Sample]) -> list[Score]:
    """Return the scores of `format`; none if the format has no tags."""
    if not all(has_tags(sample.format) for sample in samples):
        return [Score.failed(Outcome.NOT_APPLICABLE, "prompt.format has no tags")] * len(samples)
    return _without_faults(samples, get_builtin("format").score(samples))


def _scored(scores: Sequence[Sequence[Score]]) -> np.ndarray:
    return np.array([[one.outcome is Outcome.SCORED for one in row] for row in scores])


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


def _rows_of(scores: Sequence[Score], passes: int) -> list[Sequence[Score]]:
    return [scores[start : start + passes] for start in range(0, len(scores), passes)]


def _reaches(value: float | None, least: float) -> bool:
    return value is not None and value >= lowest_reaching(least)
