"""Checks of a reward that pays for the right answer, alone or among other things.

- The gold solution earns the most. An empty response, an echo of the prompt, tags, every answer listed, the reference
  of another row and a number that only looks like the reference earn less.
- References such as 0 and -3 work as others do.
- With a composite reward, a correct long answer beats a wrong short one.
"""

import math
from collections.abc import Iterator

from agent_tunix.rewards.builtin import Kind
from agent_tunix.workbench.checks.problems import is_numeric, near_misses
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import cheats, long_work, variations
from agent_tunix.workbench.checks.trial import EPSILON, MOST_EXAMPLES, Trial, judge, mean_or_none, show_value, wins_of

_MOST_PROBLEMS = 32


def check_gold(trial: Trial) -> CheckFinding:
    """Check that gold solutions earn the top of the declared range, or else the maximum over all responses.

    A composite reward passes if every gold solution earns at least half of the top of the declared range, or else of
    what the best one earns.
    """
    bad = [p for p, gold in zip(trial.problems, trial.gold, strict=True) if gold is None]
    if bad:
        score = trial.score(bad[0], trial.solve(bad[0]))
        example = CheckExample(trial.solve(bad[0]), bad[0].answer, None, detail=f"{score.outcome}: {score.detail}")
        text = f"{len(bad)} of {len(trial.problems)} gold solutions are unscored"
        return CheckFinding("gold solution", Status.FAILED, text, (example,))
    observed = [score.value for _, _, score in trial.seen if score.value is not None]
    golds = [gold for _, _, gold in trial.solved()]
    if trial.range is not None and trial.kind is Kind.CORRECTNESS:
        top, which = trial.range[1], "the top of the range"
    elif trial.kind is Kind.CORRECTNESS:
        top, which = max([*observed, *golds]), "the highest score seen"
    else:
        top, which = max(golds), "half the score of the best of them"
        if trial.range is not None and math.isfinite(trial.range[1]) and trial.range[1] > top:
            top, which = trial.range[1], "half the top of the range"
        top -= 0.5 * abs(top)
        if min(golds) >= top - EPSILON:
            return CheckFinding("gold solution", Status.PASSED, f"they earn {min(golds):g} to {max(golds):g}")
    short = [(p, gold) for _, p, gold in trial.solved() if gold < top - EPSILON]
    if not short:
        return CheckFinding("gold solution", Status.PASSED, f"all {len(golds)} earn {top:g}")
    examples = tuple(
        CheckExample(trial.solve(p), p.answer, gold, detail=trial.scorer(p, trial.solve(p)).detail)
        for p, gold in short[:MOST_EXAMPLES]
    )
    text = f"{len(short)} of {len(golds)} gold solutions earn less than {top:g}, {which}"
    return CheckFinding("gold solution", Status.FAILED, text, examples)


def check_cheats(trial: Trial) -> Iterator[CheckFinding]:
    """Check that cheats (nothing, an echo of the prompt, tags, every answer listed) earn less than the gold solution.

    A response that wins for only one reference was a guess, not a fault of the reward. An echo is not tried on prompts
    that contain the reference.
    """
    solved = list(trial.solved())[:_MOST_PROBLEMS]
    references = {problem.answer for _, problem, _ in solved}
    for check, responses in cheats(trial.problems, trial.style, trial.scorer.template).items():
        wins: list[CheckExample] = []
        num_tried = 0
        for name, response in responses.items():
            examples: list[CheckExample] = []
            for _, problem, gold in solved:
                if check == "prompt echo" and problem.answer in problem.prompt:
                    continue
                num_tried += 1
                examples += wins_of(trial, problem, response(problem), gold, name)
            guessed = len(references) > 1 and len({example.answer for example in examples}) == 1
            wins += [] if guessed else examples
        yield judge(check, wins, num_tried)


def check_other_reference(trial: Trial) -> CheckFinding:
    """Check that the solution of another row earns less than the gold solution."""
    wins: list[CheckExample] = []
    for index, problem, gold in trial.solved():
        other = trial.wrong(index)
        for work in (other.work, ""):
            wins += wins_of(trial, problem, trial.solve(other, work=work), gold, f"the answer is {other.answer}")
    return judge("another reference", wins, 2 * len(trial.problems))


def check_near_misses(trial: Trial) -> CheckFinding:
    """Check that a number that only looks like the reference earns less than the gold solution."""
    if not is_numeric(trial.problems):
        return CheckFinding("near misses", Status.SKIPPED, "the references are not all numbers")
    wins: list[CheckExample] = []
    num_tried = 0
    for _, problem, gold in trial.solved():
        for change, answer in near_misses(problem.answer).items():
            num_tried += 1
            wins += wins_of(trial, problem, trial.solve(problem, answer=answer), gold, change)
    return judge("near misses", wins, num_tried)


# References as they occur in data sets; True if a reward that cannot read one fails the check.
_EDGE_REFERENCES = {"0": True, "-3": True, "1,200": False, "2.5": False}


def check_edge_references(trial: Trial) -> CheckFinding:
    """Check that references such as 0 and -3 earn the maximum for the right answer, and only for it."""
    if not is_numeric(trial.problems):
        return CheckFinding("edge references", Status.SKIPPED, "the references are not all numbers")
    golds = [gold for _, _, gold in trial.solved()]
    if not golds:
        return CheckFinding("edge references", Status.SKIPPED, "no gold solution has a score")
    top = max(golds)
    failures: list[CheckExample] = []
    notes: list[CheckExample] = []
    for reference, must in _EDGE_REFERENCES.items():
        problem = trial.problems[0].with_reference(reference, f"We work it out: it is {reference}.")
        score = trial.score(problem, trial.solve(problem))
        if score.value is None or score.value < top - max(EPSILON, 0.25 * abs(top)):
            example = CheckExample(trial.solve(problem), reference, score.value, top, score.detail)
            (failures if must else notes).append(example)
            continue
        for answer in ("7", "", *near_misses(reference.replace(",", "")).values()):
            failures += wins_of(trial, problem, trial.solve(problem, work="", answer=answer), score.value, "")
    if failures:
        text = "a reference of an unusual form is scored differently"
        return CheckFinding("edge references", Status.FAILED, text, tuple(failures[:MOST_EXAMPLES]))
    if notes:
        return CheckFinding(
            "edge references", Status.NOTED, "these forms of a reference are not supported", tuple(notes)
        )
    return CheckFinding("edge references", Status.PASSED, ", ".join(_EDGE_REFERENCES))


def check_long_beats_short(trial: Trial) -> CheckFinding:
    """Check that a correct long answer earns more than a wrong short one."""
    losses: list[CheckExample] = []
    num_tried = 0
    for index, problem, _ in trial.solved():
        other = trial.wrong(index)
        long = trial.score(problem, trial.solve(problem, work=long_work(problem))).value
        for work in (other.work, "It is so.", ""):
            num_tried += 1
            short = trial.solve(other, work=work)
            score = trial.score(problem, short)
            if score.value is not None and (long is None or score.value >= long - EPSILON):
                detail = f"a correct answer in 300 words earns {show_value(long)}; {score.detail}"
                losses.append(CheckExample(short, problem.answer, score.value, detail=detail))
    if losses:
        text = f"{len(losses)} of {num_tried} wrong short answers earn as much as a correct long one"
        return CheckFinding("long beats short", Status.FAILED, text, tuple(losses[:MOST_EXAMPLES]))
    return CheckFinding(
        "long beats short", Status.PASSED, f"a correct long answer beats each of {num_tried} wrong short ones"
    )


def note_variations(trial: Trial) -> CheckFinding:
    """Report the scores of variations of the gold solution; this never fails."""
    wrong = {id(problem): trial.wrong(index).answer for index, problem in enumerate(trial.problems)}
    shares = []
    for name, response in variations(trial.style, trial.scorer.template, lambda p: wrong[id(p)]).items():
        values = [trial.score(problem, response(problem)).value for _, problem, _ in trial.solved()]
        shares.append(f"{name} {show_value(mean_or_none(values))}")
    gold = mean_or_none([gold for _, _, gold in trial.solved()])
    return CheckFinding("variations", Status.NOTED, f"the gold solution earns {show_value(gold)}; {'; '.join(shares)}")
