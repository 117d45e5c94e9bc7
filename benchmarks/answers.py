r"""The `math` reward compared with math-verify: completions per second, and every difference of verdicts.

    python benchmarks/answers.py [--data DIR_OR_FILE] [--references FILE] [--completions 8192] [--seed 0]

The completions are worked solutions in the style of GSM8K, in groups of eight that share a problem, each with one of
several endings (`#### 18`, "The answer is 18.", `\boxed{18}`, a bare last number). Two of five have a wrong answer. The
problems are generated. `--data` names a JSONL file of GSM8K, or a directory of them, with the columns `question` and
`answer`. Their solutions are then measured too: first as published, then with right and wrong answers after GSM8K's own
`####`, then with all endings.

math-verify is called as documented: `verify(parse(reference), parse(completion))`. It is compared with

- the public call, `get_reward_function("math")(response, answer=…)`;
- the function of the reward alone;
- the reward as a run calls it: placed by a runner, with its arguments looked up and its outcomes kept;
- a run's whole mixture of that one component, with totals and all stored data.

One of these four and math-verify score each batch in turns, so other load affects both, and neither profits from the
other's caches. The benchmark prints the rates, the median ratio of the batches, the required ratio, and every
completion on which the verdicts differ. The truth is known, because the completions are generated. The exit status is 1
if `math` is wrong on any of these.

`--references` names a JSONL file with LaTeX references in the column `answer`, such as MATH-500. The public call
compares each with itself and with the reference after it. Then it compares each formula with itself, doubled and
halved, and with a neighbour of it. Only evaluation can decide these comparisons.

The pairs of `benchmarks/answer_pairs.tsv` follow, LaTeX answers with LaTeX references. On these the verdicts may differ
only if the file says so.
"""

import argparse
import csv
import gc
import json
import logging
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from math_verify import parse, verify

from agent_tunix.errors import BadReferenceError
from agent_tunix.rewards import Sample, get_reward_function, resolve_reward
from agent_tunix.rewards.answers import compare_answers, read_reference
from agent_tunix.rewards.answers.scalars import SCALARS
from agent_tunix.rewards.execution import make_runner

PAIRS = Path(__file__).with_name("answer_pairs.tsv")
GSM8K_ENDING = "#### {}"
ENDINGS = (
    GSM8K_ENDING,
    "The answer is {}.",
    r"So the answer is \boxed{{{}}}.",
    "In total that is {}",
    "Final answer: ${}",
)
WANTED = 60
WANTED_ON_REFERENCES = 15
WANTED_ON_FORMULAS = 5
GROUP = 8
BATCH = 64 * GROUP
PAIRS_BATCH = 64

Score = Callable[[Sequence[Sample]], list[bool]]


class Problem(NamedTuple):
    """A worked solution without its answer line, and the answer."""

    working: str
    answer: str


def read_problems(data: Path) -> list[Problem]:
    """Return the problems of files in GSM8K's schema."""
    files = sorted(data.glob("*.jsonl")) if data.is_dir() else [data]
    rows = (json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines())
    solutions = (row["answer"].partition("\n####") for row in rows)
    return [Problem(working, answer.strip()) for working, _, answer in solutions]


def make_problem(rng: random.Random) -> Problem:
    """Return a chain of three calculations, annotated like GSM8K's."""
    lines, value = [], rng.randint(2, 90)
    for subject in rng.sample(["Ann", "Ben", "the shop", "each class", "the farm", "a box"], 3):
        sign, other = rng.choice("+*"), rng.randint(2, 40)
        result = value + other if sign == "+" else value * other
        thing = rng.choice(["apples", "dollars", "pages", "miles"])
        lines.append(f"Then {subject} has {value}{sign}{other}=<<{value}{sign}{other}={result}>>{result:,} {thing}.")
        value = result
    return Problem("\n".join(lines), f"{value:,}")


def make_samples(problems: Sequence[Problem], endings: Sequence[str], count: int, rng: random.Random) -> list[Sample]:
    """Return groups of right and wrong completions with their references."""
    samples = []
    for group in range(count // GROUP):
        working, answer = rng.choice(problems)
        for number in range(GROUP):
            given = answer
            is_wrong = rng.random() < 0.4
            if is_wrong:
                given = str(int(float(answer.replace(",", ""))) + rng.choice([-10, -1, 1, 2, 100]))
            response = f"{working}\n{rng.choice(endings).format(given)}"
            columns = {"answer": answer, "is_right": not is_wrong}
            samples.append(Sample(response, columns=columns, step=1, group_id=group, rollout_id=f"1_{group}_{number}"))
    return samples


def publish(problems: Sequence[Problem]) -> list[Sample]:
    """Return each solution as it is, with its own answer."""
    return [
        Sample(
            f"{working}\n{GSM8K_ENDING.format(answer)}",
            columns={"answer": answer, "is_right": True},
            step=1,
            group_id=number,
            rollout_id=f"1_{number}_0",
        )
        for number, (working, answer) in enumerate(problems)
    ]


class Difference(NamedTuple):
    """A completion on which the verdicts differ."""

    sample: Sample
    ours: bool
    theirs: bool

    @property
    def ours_is_wrong(self) -> bool:
        """True if our verdict is wrong."""
        return self.ours is not self.sample.columns["is_right"]

    def __str__(self) -> str:
        truth = "right" if self.sample.columns["is_right"] else "wrong"
        return (
            f"{truth}; ours: {self.ours}, math-verify's: {self.theirs}: {self.sample.response[-100:]!r} "
            f"for {self.sample.answer!r}"
        )


def race(
    samples: Sequence[Sample], name: str, score: Score, wanted: int = WANTED, batch_size: int = BATCH
) -> list[Difference]:
    """Let ours and math-verify judge batches in turns, print their speeds, and return the differences."""
    ours_s: list[float] = []
    theirs_s: list[float] = []
    differing = []
    for number, start in enumerate(range(0, len(samples), batch_size)):
        batch = samples[start : start + batch_size]
        verdicts = {}
        for who in (score, verify_all) if number % 2 else (verify_all, score):
            started = time.process_time()
            verdicts[who] = who(batch)
            (ours_s if who is score else theirs_s).append(time.process_time() - started)
        judged = zip(batch, verdicts[score], verdicts[verify_all], strict=True)
        differing += [Difference(*found) for found in judged if found[1] is not found[2]]
    ratios = [theirs / ours for theirs, ours in zip(theirs_s, ours_s, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    met = "met" if middle >= wanted else "MISSED"
    print(
        f"  {name}: {len(samples) / sum(ours_s):,.0f} completions a second beside {len(samples) / sum(theirs_s):,.0f}: "
        f"{middle:.1f} times as many (quartiles {low:.1f} to {high:.1f}); wanted {wanted}: {met}"
    )
    return differing


def verify_all(samples: Sequence[Sample]) -> list[bool]:
    """Return the verdicts of math-verify."""
    return [bool(verify(parse(sample.answer), parse(sample.response))) for sample in samples]


def compare_on(title: str, samples: Sequence[Sample]) -> bool:
    """Compare with math-verify on these completions; return True if ours is right on every difference."""
    print(title)
    reward = get_reward_function("math")
    function = reward.function
    with make_runner(resolve_reward("math")) as runner:
        placed = runner.reward.components[0].reward
        contenders: list[tuple[str, Score]] = [
            ("the public call", lambda batch: [reward(s.response, answer=s.answer) == 1.0 for s in batch]),
            ("its function alone", lambda batch: [function(s.response, s.answer).value == 1.0 for s in batch]),
            ("as a run calls it", lambda batch: [score.value == 1.0 for score in placed.score(batch)]),
            ("a run's mixture of it", lambda batch: [score.value == 1.0 for score in runner.reward.score(batch)]),
        ]
        share = -(-len(samples) // len(contenders))
        differing = [
            difference
            for number, contender in enumerate(contenders)
            for difference in race(samples[number * share : (number + 1) * share], *contender)
        ]
    mistaken = sum(difference.ours_is_wrong for difference in differing)
    worded = sum("answer" in difference.sample.response.lower() for difference in differing)
    print(
        f"  verdicts that differ: {len(differing)} of {len(samples)}, {worded} of them on solutions that speak of an "
        f"answer; ours is wrong on {mistaken}"
    )
    # Completions of a group may be equal.
    for text, times in Counter(map(str, differing)).items():
        print(f"    {text}" + (f" ({times} times)" if times > 1 else ""))
    return not mistaken


def compare_references(file: Path) -> None:
    """Compare the speeds on pairs of references, and on formulas that only evaluation can compare."""
    rows = [json.loads(line)["answer"] for line in file.read_text(encoding="utf-8").splitlines()]
    references = [text for text in rows if is_reference(text)]
    followers = [*references[1:], references[0]]
    formulas = [text for text in dict.fromkeys(references) if is_expression(text)]
    sets = [
        (
            "references, each with itself and with the one after it",
            [(text, given) for text, other in zip(references, followers, strict=True) for given in (text, other)],
            WANTED_ON_REFERENCES,
        ),
        (
            "formulas, each doubled and halved, and with a neighbour",
            [(text, rf"\frac{{2({text}){more}}}{{2}}") for text in formulas for more in ("", "+1")],
            WANTED_ON_FORMULAS,
        ),
    ]
    reward = get_reward_function("math")
    print(f"References of {file}")
    for title, pairs, wanted in sets:
        samples = [
            Sample(rf"\boxed{{{given}}}", columns={"answer": f"${text}$", "is_right": None}) for text, given in pairs
        ]
        differing = race(
            samples,
            title,
            lambda batch: [reward(s.response, answer=s.answer) == 1.0 for s in batch],
            wanted,
            PAIRS_BATCH,
        )
        print(f"    verdicts that differ: {len(differing)} of {len(samples)}")
        for difference in differing:
            print(
                f"      ours: {difference.ours}, math-verify's: {difference.theirs}: {difference.sample.response!r} "
                f"for {difference.sample.answer!r}"
            )


def is_reference(text: str) -> bool:
    """Return True for mathematics."""
    try:
        read_reference(text)
    except BadReferenceError:
        return False
    return True


def is_expression(text: str) -> bool:
    """Return True for a formula that is not a number and does not have several parts."""
    reference = read_reference(text)
    return reference.number is None and reference.node is not None and reference.node.kind in SCALARS


def compare_pairs() -> tuple[int, list[str], list[str]]:
    """Return the number of pairs, the listed differences, and the pairs that do not agree with the file."""
    listed, unlisted = [], []
    with PAIRS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        reference, answer, note = row["reference"], row["answer"], row["differs from math-verify"]
        ours = compare_answers(answer or None, read_reference(reference))
        theirs = bool(verify(parse(f"${reference}$"), parse(rf"\boxed{{{answer}}}")))
        text = f"{answer!r} for {reference!r}: ours {ours.verdict} ({ours.tier}), math-verify's {theirs}"
        if ours.verdict != row["verdict"] or (ours.equal != theirs) != bool(note):
            unlisted.append(text)
        elif note:
            listed.append(f"{note}: {text}")
    return len(rows), listed, unlisted


def main() -> int:
    """Run everything and print the results; return 1 if an unlisted verdict differs or ours is wrong, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--references", type=Path)
    parser.add_argument("--completions", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.completions < 8 * BATCH:
        parser.error(f"--completions must be at least {8 * BATCH}")
    logging.disable(logging.WARNING)
    rng = random.Random(arguments.seed)
    made = [make_problem(rng) for _ in range(2000)]
    sets = {"solutions made by code": make_samples(made, ENDINGS, arguments.completions, rng)}
    if arguments.data is not None:
        real = read_problems(arguments.data)
        sets["GSM8K's solutions, as published"] = publish(real)
        sets["GSM8K's solutions, right and wrong, with its own ending"] = make_samples(
            real, [GSM8K_ENDING], arguments.completions, rng
        )
        sets["GSM8K's solutions, right and wrong, with all endings"] = make_samples(
            real, ENDINGS, arguments.completions, rng
        )
    verify_all([Sample("$x+1$", columns={"answer": "$1$"})])  # imports and grammar
    gc.collect()
    gc.freeze()  # keeps the garbage collector from sweeping what the other program loaded
    held = [compare_on(title, samples) for title, samples in sets.items()]

    if arguments.references is not None:
        compare_references(arguments.references)
    total, listed, unlisted = compare_pairs()
    print(f"LaTeX pairs: {total}, of which {len(listed)} differ as listed and {len(unlisted)} otherwise")
    for text in unlisted:
        print(f"  {text}")
    return 0 if all(held) and not unlisted else 1


if __name__ == "__main__":
    sys.exit(main())
