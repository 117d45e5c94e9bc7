"""Agreement of the samples of a problem: the share that gives its most common answer.

Correct samples give one answer, however they write it. Incorrect samples give one answer if the measure of correctness
accepts one of them with the other's answer as the reference. Measures without an `answer` column to replace, such as
`code_tests` and rewards of the user, compare incorrect answers as text.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards import Sample, extract_answer
from agent_tunix.rewards.answers import extract_choice, read_number, read_reference
from agent_tunix.rewards.builtin.code import extract_code
from agent_tunix.rewards.builtin.correctness import marked_answer

# Decides for each sample whether it is correct.
Accepts = Callable[[Sequence[Sample]], Sequence[bool]]

# Built-in measures that compare the answer with the column `answer`.
_COMPARING = ("math", "answer_correctness", "multiple_choice", "exact_match")

# Incorrect answers that the others of the problem are compared with. It bounds the number of comparisons, and it is
# exact for up to as many samples. Answers beyond it are compared as text.
_MOST_COMPARED = 16
_LONGEST_NUMBER = 40


def share_of_most_common(
    samples: Sequence[Sequence[Sample]], right_PN: np.ndarray, correct: str, accepts: Accepts
) -> np.ndarray:
    """Return for each problem the share of its samples that give its most common answer, [P].

    Samples without an answer agree with no other sample.

    Args:
        samples: [P][N] samples.
        right_PN: [P, N], True for correct samples.
        correct: Name of the measure of correctness if it is built in, else "".
        accepts: That measure; called only if it is built in.
    """
    problems = [_Problem(row, right, correct) for row, right in zip(samples, right_PN, strict=True)]
    for _ in range(_MOST_COMPARED if correct in _COMPARING else 0):
        if not (undecided := [problem for problem in problems if problem.is_undecided]):
            break
        questions = [problem.questions() for problem in undecided]
        judgements = iter(accepts([question for of_problem in questions for question in of_problem]))
        for problem, of_problem in zip(undecided, questions, strict=True):
            problem.merge([next(judgements) for _ in of_problem])
    return np.array([problem.most_common / len(problem.samples) for problem in problems])


class _Problem:
    """The answers of a problem's samples, most common first."""

    def __init__(self, samples: Sequence[Sample], right: np.ndarray, correct: str) -> None:
        self.samples = samples
        self._largest = int(right.sum())  # samples of the most common answer found so far
        answers = [(_answer(sample, correct), sample) for sample, hit in zip(samples, right, strict=True) if not hit]
        counts = Counter(answer for answer, _ in answers if answer)
        self._counts = dict(counts.most_common())  # incorrect answer → samples that write it so
        self._writers = {answer: sample for answer, sample in answers if answer}

    @property
    def is_undecided(self) -> bool:
        """True if the answers not yet compared could together exceed the most common one."""
        return len(self._counts) > 1 and sum(self._counts.values()) > self._largest

    @property
    def most_common(self) -> int:
        """Number of samples that give the most common answer."""
        return max(self._largest, *self._counts.values(), 0)

    def questions(self) -> list[Sample]:
        """Return the writers of all other answers, with the most common answer as the reference."""
        reference, *others = self._counts
        return [
            replace(writer, columns={**writer.columns, "answer": reference})
            for writer in map(self._writers.__getitem__, others)
        ]

    def merge(self, judgements: Sequence[bool]) -> None:
        """Remove the most common answer and those that are the same."""
        first, *others = self._counts
        same = [first, *(answer for answer, is_same in zip(others, judgements, strict=True) if is_same)]
        self._largest = max(self._largest, sum(self._counts.pop(answer) for answer in same))


def _answer(sample: Sample, correct: str) -> str | None:
    """Return the answer of a sample as the measure of correctness finds it; None or "" if there is none."""
    response = sample.response
    if correct == "multiple_choice":
        return extract_choice(response)
    if correct == "code_tests":
        return extract_code(response)
    if correct == "exact_match" or (correct == "answer_correctness" and not _is_mathematical(sample.answer)):
        return marked_answer(response)
    answer = extract_answer(response)
    return _plain_number(answer) if answer and correct in _COMPARING else answer


def _plain_number(answer: str) -> str:
    """Return a number without unit in its shortest form, so that its spellings need no comparison: `1/2` for `0.50`."""
    number = read_number(answer) if len(answer) <= _LONGEST_NUMBER else None
    is_plain = number is not None and not number.percent and not any(map(str.isalpha, answer))
    return str(number.value) if number is not None and is_plain else answer


def _is_mathematical(reference: object) -> bool:
    try:
        read_reference(reference)
    except BadReferenceError:
        return False
    return True
