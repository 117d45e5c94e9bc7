"""Checks of a reward of any kind: deterministic, bounded, arguments untouched, a score for every response."""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from agent_tunix.rewards.conventions import Convention
from agent_tunix.rewards.execution.runner import PlacedReward
from agent_tunix.rewards.kinds import format_range
from agent_tunix.rewards.mixture import Component, Mixture
from agent_tunix.rewards.recipe import RewardRecipe
from agent_tunix.rewards.sample import Outcome, Score
from agent_tunix.workbench.checks.problems import CheckProblem
from agent_tunix.workbench.checks.report import CheckExample, CheckFinding, Status
from agent_tunix.workbench.checks.responses import adversarial
from agent_tunix.workbench.checks.scoring import HangingRewardError
from agent_tunix.workbench.checks.trial import EPSILON, MOST_EXAMPLES, Trial

_SLOW_S = 1.0


def check_deterministic(trial: Trial) -> CheckFinding:
    """Check that a response earns the same each time, in any order of the responses."""
    problems = trial.problems[:16]
    trials = [(p, r) for p in problems for r in (trial.solve(p), p.prompt, "", trial.solve(p, work="", answer="7"))]
    first = [trial.score(problem, response) for problem, response in trials]
    for _ in range(2):
        trials.reverse()
        first.reverse()
        for (problem, response), before in zip(trials, first, strict=True):
            now = trial.score(problem, response)
            if (now.value, now.outcome) != (before.value, before.outcome):
                values = f"{_show(before)} at first and {_show(now)} later"
                example = CheckExample(response, problem.answer, now.value, detail=values)
                return CheckFinding(
                    "deterministic", Status.FAILED, "the same response earned different scores", (example,)
                )
    return CheckFinding("deterministic", Status.PASSED, f"{len(trials)} responses, three times each, in changing order")


def check_untouched(trial: Trial) -> CheckFinding:
    """Check that the reward does not change its arguments."""
    watched = [_watch(component) for component in trial.scorer.mixture.components]
    components = [component for component in watched if component is not None]
    if not components:
        return CheckFinding("arguments untouched", Status.SKIPPED, "only functions can be checked")
    scorer = replace(trial.scorer, mixture=Mixture(components))
    for problem in trial.problems[:4]:
        nested = replace(problem, columns={**problem.columns, "nested": {"list": [1, 2], "map": {"a": 1}}})
        for response in (trial.solve(problem), problem.prompt, ""):
            score = scorer(nested, response)
            touched = [match[0] for part in score.parts.values() if (match := _TOUCHED.search(part.detail))]
            if touched:
                example = CheckExample(response, problem.answer, None)
                return CheckFinding("arguments untouched", Status.FAILED, touched[0], (example,))
    return CheckFinding(
        "arguments untouched", Status.PASSED, "the row and the arguments were as before after each call"
    )


def gave_up(error: HangingRewardError) -> CheckFinding:
    """Return the finding about a reward that repeatedly hangs or ends its process."""
    examples = tuple(CheckExample(r, problem.answer, None, detail=score.detail) for problem, r, score in error.lost)
    text = f"{len(examples)} responses hung or ended the process; the check stops here and skips its remaining parts"
    return CheckFinding("never raises", Status.FAILED, text, examples)


def check_robust(trial: Trial) -> CheckFinding:
    """Check that every response has a score: no exception, no timeout, and no response that is slow each time."""
    failures: list[CheckExample] = []
    slowest, slow_name, num_tried = 0.0, "", 0
    for problem in trial.problems[:2]:
        for name, response in adversarial(trial.style, trial.scorer.template):
            score = trial.score(problem, response)
            num_tried += 1
            # Once one response is known to be slow, the others need no second measurement.
            seconds = score.seconds if slowest > _SLOW_S else _lasting_seconds(trial, problem, response, score)
            if seconds > slowest:
                slowest, slow_name = seconds, name
            if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT):
                failures.append(CheckExample(response, problem.answer, None, detail=f"{name}: {score.detail}"))
    for problem, response, score in trial.seen:
        if score.outcome in (Outcome.ERROR, Outcome.TIMEOUT) and len(failures) < MOST_EXAMPLES:
            failures.append(CheckExample(response, problem.answer, None, detail=score.detail))
    if failures:
        text = "a response went unscored; a malformed one earns a documented score"
        return CheckFinding("never raises", Status.FAILED, text, tuple(failures[:MOST_EXAMPLES]))
    if slowest > _SLOW_S:
        return CheckFinding(
            "never raises", Status.FAILED, f"{slow_name} took {slowest:.1f} s; no call should take over 1 s"
        )
    return CheckFinding(
        "never raises", Status.PASSED, f"{num_tried} hostile strings; the slowest took {1000 * slowest:.1f} ms"
    )


def _lasting_seconds(trial: Trial, problem: CheckProblem, response: str, first: Score) -> float:
    """Return the time that the reward itself takes: the least of up to three calls.

    A busy machine or a first import slows down only some of the calls. Line ends are added to the response, so that a
    cache of the reward does not answer.
    """
    seconds = first.seconds
    for number in (1, 2):
        if seconds > _SLOW_S and first.outcome is not Outcome.TIMEOUT:
            seconds = min(seconds, trial.score(problem, response + "\n" * number).seconds)
    return seconds


def check_bounded(trial: Trial) -> CheckFinding:
    """Check that all values lie in the declared range; without one, that values do not grow with the length."""
    problem = trial.problems[0]
    growth = [(unit, [trial.score(problem, unit * 10**n).value for n in range(1, 5)]) for unit in ("so 1 = 1 ", "a ")]
    scored = [(p, r, s) for p, r, s in trial.seen if s.value is not None]
    values = [score.value for _, _, score in scored if score.value is not None]
    if not values:
        return CheckFinding("bounded", Status.FAILED, "no response was scored", _unscored_example(trial))
    observed = (min(values), max(values))
    summary = f"{len(values)} values from {observed[0]:g} to {observed[1]:g}"
    if trial.range is not None:
        low, high = trial.range
        outside = [(p, r, s) for p, r, s in scored if not low - EPSILON <= (s.value or 0.0) <= high + EPSILON]
        if outside:
            p, r, s = outside[0]
            text = f"{len(outside)} values are outside the declared range {format_range(trial.range)}"
            return CheckFinding("bounded", Status.FAILED, text, (CheckExample(r, p.answer, s.value, detail=s.detail),))
        return CheckFinding("bounded", Status.PASSED, f"{summary}, in the declared range {format_range(trial.range)}")
    for unit, earned in growth:
        one, ten, hundred, thousand = (0.0 if value is None else abs(value) for value in earned)
        if thousand - hundred > hundred - ten + EPSILON and hundred > one:
            text = f"the value grows with the length without bound: {shorten_values(earned)}"
            return CheckFinding(
                "bounded", Status.FAILED, text, (CheckExample(unit * 10_000, problem.answer, earned[-1]),)
            )
    advice = "declare the range in the docstring, for example `Range [0, 1]`"
    return CheckFinding("bounded", Status.NOTED, f"{summary}; {advice}")


def shorten_values(values: Iterable[float | None]) -> str:
    """Return values as text, such as `1, 10, 100`."""
    return ", ".join("none" if value is None else f"{value:g}" for value in values)


def check_levels(trial: Trial) -> CheckFinding:
    """Note how many different values the reward takes. Only a constant reward fails."""
    values = {round(score.value, 6) for _, _, score in trial.seen if score.value is not None}
    if not values:
        return CheckFinding("levels", Status.SKIPPED, "no response was scored")
    if len(values) == 1:
        return CheckFinding(
            "levels", Status.FAILED, f"every response earned {values.pop():g}; there is no learning signal"
        )
    if len(values) == 2:
        low, high = sorted(values)
        return CheckFinding(
            "levels",
            Status.NOTED,
            f"only two values, {low:g} and {high:g}, on the responses tried: a model that never earns the higher one "
            "has no learning signal; add partial credit or a second component",
        )
    return CheckFinding("levels", Status.PASSED, f"{len(values)} different values")


def _watch(component: Component) -> Component | None:
    placed: Any = component.reward
    reward = placed.written if isinstance(placed, PlacedReward) else placed
    watched = _watched(reward)
    if watched is None:
        return None
    return Component(component.name, placed.beside(watched) if isinstance(placed, PlacedReward) else watched)


def _watched(reward: Any) -> Any:
    """Return the reward with a wrapper that fails if a call changes an argument; None if it has no function."""
    function = getattr(reward, "function", None)
    if not isinstance(reward, Convention) or not inspect.isfunction(function):
        return None
    recipe = None if reward.recipe is None else _WatchedRecipe(*(getattr(reward.recipe, f.name) for f in _FIELDS))
    return type(reward)(_spy(function), reward.name, reward.args, reward.settings, recipe)


class _WatchedRecipe(RewardRecipe):
    """Recipe of a reward that is watched in the worker that makes it."""

    __slots__ = ()

    def finish(self, reward: Any) -> Any:
        """Return the reward, watched."""
        return _watched(reward)


_FIELDS = fields(RewardRecipe)
_TOUCHED = re.compile(r"the argument '[^']*' was changed by the call")


class _TouchedError(Exception):
    """A call changed one of its arguments."""


def _spy(function: Callable[..., Any]) -> Callable[..., Any]:
    def compare(before: dict[str, Any], after: dict[str, Any]) -> None:
        for name in before:
            if _differs(before[name], after.get(name)):
                raise _TouchedError(f"the argument {name!r} was changed by the call")

    def by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**{f"{place}": value for place, value in enumerate(args, start=1)}, **kwargs}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def spy_async(*args: Any, **kwargs: Any) -> Any:
            before = _copies(by_name(args, kwargs))
            result = await function(*args, **kwargs)
            compare(before, by_name(args, kwargs))
            return result

        return spy_async

    @functools.wraps(function)
    def spy(*args: Any, **kwargs: Any) -> Any:
        before = _copies(by_name(args, kwargs))
        result = function(*args, **kwargs)
        compare(before, by_name(args, kwargs))
        return result

    return spy


def _copies(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return deep copies of arguments; one that cannot be copied, such as a lock, is itself."""
    copies = {}
    for name, value in arguments.items():
        try:
            copies[name] = copy.deepcopy(value)
        except Exception:  # of the class of a value
            copies[name] = value
    return copies


def _differs(before: Any, after: Any) -> bool:
    """Return True if two values differ as data. Functions, and objects that equal only themselves, never do."""
    if before is after:
        return False
    if type(before) is not type(after):
        return True
    if isinstance(after, Mapping):
        return before.keys() != after.keys() or any(_differs(before[key], after[key]) for key in before)
    if isinstance(after, list | tuple):
        return len(before) != len(after) or any(map(_differs, before, after))
    if isinstance(after, np.ndarray):
        return _differs(before.tolist(), after.tolist())
    equality: object = type(after).__eq__
    if callable(after) or equality is object.__eq__:
        return False
    return bool(before != after) and not (before != before and after != after)


def _unscored_example(trial: Trial) -> tuple[CheckExample, ...]:
    if not trial.seen:
        return ()
    problem, response, score = trial.seen[0]
    return (CheckExample(response, problem.answer, None, detail=f"{score.outcome}: {score.detail}"),)


def _show(score: Score) -> str:
    return score.outcome.value if score.value is None else f"{score.value:g}"
