"""Checks of stuffing (responses that only repeat the values of the row's columns) and of rewards of form."""

from collections.abc import Iterator

from agent_tunix.workbench.checks.problems import CheckProblem, respond, tags_of
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import Response
from agent_tunix.workbench.checks.scoring import mean
from agent_tunix.workbench.checks.trial import EPSILON, Trial, judge, mean_or_none, show_value, wins_of

_OWN = ("answer", "prompt", "question", "problem", "messages", "worked_solution", "solution")
_REPEATS = 3
_FULL = 0.95


def check_stuffing(trial: Trial) -> Iterator[CheckFinding]:
    """Note each column whose values, repeated without other text, earn nearly the reward's maximum.

    A reward that pays in full for a list of keywords teaches lists of keywords. The check serves rewards of form, of
    quality and without a kind. It would say nothing about a reward of correctness, for which the reference must earn.
    """
    names = sorted({name for problem in trial.problems for name in problem.columns} - {*_OWN})
    most = trial.range[1] if trial.range else max((gold for _, _, gold in trial.solved()), default=0.0)
    for name in names if most > 0 else ():
        scores = [trial.score(problem, _stuffed(problem, name)) for problem in trial.problems]
        mean = mean_or_none([score.value for score in scores])
        if mean is not None and mean >= _FULL * most:
            first, its = next(
                (problem, score)
                for problem, score in zip(trial.problems, scores, strict=True)
                if name in problem.columns
            )
            example = CheckExample(_stuffed(first, name), str(first.columns[name]), its.value, detail="")
            yield CheckFinding(
                "stuffing",
                Status.NOTED,
                f"the column {name} alone, repeated {_REPEATS} times, earns {show_value(mean)} of {show_value(most)}:"
                " reward each value once, and sentences rather than lists",
                (example,),
            )


def _stuffed(problem: CheckProblem, name: str) -> str:
    value = problem.columns.get(name, "")
    words = map(str, value) if isinstance(value, list | tuple) else [str(value)]
    return " ".join([" ".join(words)] * _REPEATS)


_MOST_PROBLEMS = 16


def check_form(trial: Trial) -> Iterator[CheckFinding]:
    """Check that the filled form earns more than an empty response, an echo of the prompt, or its tags repeated."""
    solved = list(trial.solved())[:_MOST_PROBLEMS]
    golds = [gold for _, _, gold in solved]
    nothing = mean([trial.score(problem, "").value or 0.0 for _, problem, _ in solved])
    if not golds or mean(golds) <= nothing + EPSILON:
        yield CheckFinding("filled form", Status.NOTED, "no form known to this check earns more than an empty response")
        return
    if trial.range is not None and mean(golds) < trial.range[1] - EPSILON:
        text = f"no form known to this check earns the maximum; {trial.style!r} comes nearest with {mean(golds):.3g}"
        yield CheckFinding("filled form", Status.NOTED, text)
    else:
        yield CheckFinding("filled form", Status.PASSED, f"{trial.style!r} earns {mean(golds):.3g}")
    tags = "".join(tags_of(respond(trial.style, "", "", trial.scorer.template)))
    spam: dict[str, Response] = {"its tags, eight times": lambda _: tags * 8} if tags else {}
    bad: dict[str, dict[str, Response]] = {
        "empty": {"nothing": lambda _: "", "white space": lambda _: " \n \n"},
        "prompt echo": {"the prompt": lambda problem: problem.prompt},
        "tag spam": spam,
    }
    for check, responses in bad.items():
        wins: list[CheckExample] = []
        for name, response in responses.items():
            for _, problem, gold in solved:
                wins += wins_of(trial, problem, response(problem), gold, name)
        yield judge(check, wins, len(responses) * len(solved))
