"""The check of a reward before it trains: all checks in one call."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from agent_tunix.errors import RewardError
from agent_tunix.rewards.builtin import Kind
from agent_tunix.rewards.kinds import component_kind, kind_of, needs_answer, range_of, show_kind, weighted
from agent_tunix.rewards.mixture import Mixture
from agent_tunix.workbench.checks import about_answers, about_columns, universal
from agent_tunix.workbench.checks.fuzzer import Budget, judge_exploit, search
from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT, CheckProblem
from agent_tunix.workbench.checks.report import CheckFinding, CheckReport, Status
from agent_tunix.workbench.checks.same_for_all import check_frequent_completions, check_same_reference
from agent_tunix.workbench.checks.scoring import LATE_STEP, HangingRewardError, Scorer
from agent_tunix.workbench.checks.trial import Trial, begin

Check = Callable[[Trial], CheckFinding | Iterator[CheckFinding]]

_ABOUT_ANSWERS: tuple[Check, ...] = (
    about_answers.check_cheats,
    about_answers.check_other_reference,
    about_answers.check_near_misses,
    about_answers.check_edge_references,
)
_OF_KIND: Mapping[Kind | None, tuple[Check, ...]] = {
    Kind.CORRECTNESS: (*_ABOUT_ANSWERS, about_answers.check_gold, about_answers.note_variations),
    Kind.COMPOSITE: (
        *_ABOUT_ANSWERS,
        about_answers.check_gold,
        about_answers.check_long_beats_short,
        about_answers.note_variations,
    ),
    Kind.FORM: (about_columns.check_form, about_answers.note_variations, about_columns.check_stuffing),
    Kind.LENGTH: (about_answers.note_variations,),
    Kind.QUALITY: (about_answers.note_variations, about_columns.check_stuffing),
    None: (about_answers.note_variations, about_columns.check_stuffing),
}
# These run last, because they look at all values of the other checks.
_LAST: tuple[Check, ...] = (universal.check_robust, universal.check_bounded, universal.check_levels)


def check_reward(
    mixture: Mixture,
    problems: Sequence[CheckProblem],
    *,
    kind: Kind | None = None,
    step: int = LATE_STEP,
    template: str = DEFAULT_FORMAT,
    seed: int = 0,
    budget: Budget | None = None,
    max_exploit: float = 0.5,
    completions: Sequence[str] = (),
    skip: Collection[str] = (),
    timeout_s: float = 5.0,
) -> CheckReport:
    """Try a reward on problems, attack it, and report what fails.

    Args:
        mixture: The reward: from `resolve_reward`, or placed by `make_runner` if its code may hang or end its
            process.
        problems: Problems with references, preferably with worked solutions. Without references, the checks that
            compare with the gold solution are skipped.
        kind: Kind that decides which checks apply; by default the kind that the reward declares.
        step: Training step passed to the reward. The default is late in training, where a curriculum demands
            everything.
        template: Format of responses, as `prompt.format`.
        seed: Seed of the exploit search.
        budget: Limits of the exploit search; 0 tries skip it.
        max_exploit: Share of the difference between wrong and right that a string without the answer may earn.
        completions: Completions of a policy. Those that are most frequent are tried on every problem.
        skip: Names of checks to leave out of the report.
        timeout_s: Time limit of a call in this process. Workers have their own limit.

    Raises:
        RewardError: There are no problems, or the reward declares an unknown kind.
        RewardSignatureError: The reward requires a parameter that the problems lack.
    """
    if not problems:
        raise RewardError("a check requires at least one problem", code="invalid_cases")
    mixture.check_parameters(set.intersection(*(set(problem.columns) for problem in problems)))
    budget = budget or Budget()
    kind = kind or kind_of(mixture)
    scorer, span = Scorer(mixture, step, template, timeout_s), range_of(mixture, step)
    style = "none found"
    results: list[CheckFinding] = []
    try:
        trial = begin(scorer, kind, span, problems)
        style = trial.style
        for finding in _findings(trial, seed, budget, max_exploit, completions):
            results += [finding] if finding.check not in skip else []
    except HangingRewardError as error:
        results.append(universal.gave_up(error))  # even if `skip` names it: the other checks did not run
    facts = {"seed": seed, "step": step}
    return CheckReport(mixture.name, kind, span, len(problems), style, tuple(results), facts)


def _findings(
    trial: Trial, seed: int, budget: Budget, max_exploit: float, completions: Sequence[str]
) -> Iterator[CheckFinding]:
    yield universal.check_deterministic(trial)
    exploit = search(trial, seed=seed, budget=budget) if budget.tries and any(trial.solved()) else None
    without = needs_answer(trial.kind) and not trial.has_references
    if without:
        yield CheckFinding("gold solution", Status.SKIPPED, "rows have no reference; the checks of answers did not run")
    for check in (*(() if without else _OF_KIND[trial.kind]), *_LAST):
        result = check(trial)
        yield from [result] if isinstance(result, CheckFinding) else result
    if trial.has_references and (trial.kind is None or needs_answer(trial.kind)):
        yield check_same_reference(trial, max_exploit)
    if completions:
        yield check_frequent_completions(trial, completions, max_exploit)
    if exploit:
        yield judge_exploit(trial, exploit, max_exploit)
    if trial.kind is None:
        yield CheckFinding("not run", Status.NOTED, f"the checks of a kind: {_how_to_say_kind(trial.scorer.mixture)}")


def _how_to_say_kind(mixture: Mixture) -> str:
    """Return the reason why a reward has no kind, and how to give it one."""
    kinds = {component.name: component_kind(component) for component in weighted(mixture)}
    option = "give --kind correctness, form, length, quality or composite"
    unknown = [name for name, kind in kinds.items() if kind is None]
    if not unknown:
        return f"the components are of several kinds ({', '.join(map(show_kind, kinds.values()))}); {option}"
    if len(kinds) == 1:
        return f'declare one with `{unknown[0]}.kind = "correctness"` beside the function, or {option}'
    return (
        f"{', '.join(unknown)} {'has' if len(unknown) == 1 else 'have'} none; set it in the mixture, for example"
        f" `{unknown[0]}: {{function: …, kind: quality}}`, or {option}"
    )
