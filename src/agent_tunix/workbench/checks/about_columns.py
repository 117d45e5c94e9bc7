"""Check of stuffing: responses that only repeat the values of the row's columns."""

from collections.abc import Iterator

from agent_tunix.workbench.checks.problems import CheckProblem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.trial import Trial, mean_or_none, show_value

_OWN = ("answer", "prompt", "question", "problem", "messages", "worked_solution", "solution")
_REPEATS = 3
_FULL = 0.95


def check_stuffing(trial: Trial) -> Iterator[CheckFinding]:
    """Note each column whose values alone, repeated, earn nearly the most that the reward gives.

    A reward that pays in full for a list of keywords teaches lists of keywords. For a reward of correctness this says
    nothing, since a reference must earn, so the check serves rewards of form, of quality and without a kind.
    """
    names = sorted({name for problem in trial.problems for name in problem.columns} - {*_OWN})
    most = trial.range[1] if trial.range else max((gold for _, _, gold in trial.solved()), default=0.0)
    for name in names if most > 0 else ():
        scores = [trial.score(problem, _stuffed(problem, name)) for problem in trial.problems]
        mean = mean_or_none([score.value for score in scores])
        if mean is not None and mean >= _FULL * most:
            first = trial.problems[0]
            example = CheckExample(_stuffed(first, name), str(first.columns[name]), scores[0].value, detail="")
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
