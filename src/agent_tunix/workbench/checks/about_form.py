"""Checks of a reward that pays for the form of a response."""

from collections.abc import Iterator

from agent_tunix.workbench.checks.problems import respond, tags_of
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import Response
from agent_tunix.workbench.checks.scoring import mean
from agent_tunix.workbench.checks.trial import EPSILON, Trial, judge, wins_of

_MOST_PROBLEMS = 16


def check_form(trial: Trial) -> Iterator[CheckFinding]:
    """Check that the filled form earns more than an empty response, an echo of the prompt, or its repeated tags."""
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
