"""`agent-tunix rewards …`: commands that show, try, test, attack and calibrate a reward, without JAX.

Importing this loads only Click; each command loads what it needs.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from agent_tunix.cli.options import ErrorGroup, json_option, modules_option
from agent_tunix.cli.printing import echo, echo_json, print_table
from agent_tunix.cli.rewards.options import (
    Execution,
    ListedFinding,
    execution_option,
    finding_option,
    finding_options,
    late_step_option,
    problem_options,
    read_spec,
    read_yaml,
    resolve,
    reward_directories,
    split_assignment,
    template_option,
)
from agent_tunix.errors import AgentTunixError, RewardSignatureError

if TYPE_CHECKING:
    from agent_tunix.workbench.checks import CheckProblem

_WHENCE_COLUMNS = {
    "try": "--answer TEXT and --column NAME=VALUE",
    "test": "all other keys of a case",
    "check": "the rows of --data FILE",
    "calibrate": "the rows of --data FILE or --completions FILE",
}


class _Rewards(ErrorGroup):
    """Command group that says where columns come from if a reward lacks one."""

    def conclude(self, error: AgentTunixError, ctx: click.Context) -> int:
        if isinstance(error, RewardSignatureError) and ctx.invoked_subcommand in _WHENCE_COLUMNS:
            echo(f"Here columns come from {_WHENCE_COLUMNS[ctx.invoked_subcommand]}.", err=True)
        return 2


@click.group(cls=_Rewards)
def rewards() -> None:
    """Look at, try, test, attack and calibrate a reward, offline and without JAX.

    NAME is anything that training.reward_function accepts: a registered name, a file of conf/reward, a dotted path,
    file.py:function, the name or id of an uploaded reward function, or a list or mapping of components in YAML.
    """


@rewards.command("list")
@modules_option
@json_option
def list_rewards(modules: tuple[str, ...], as_json: bool) -> None:
    """List the available rewards: built-in, registered by your modules or custom_rewards.py, and files of conf/reward.

    Exit status: 0; 2 a module cannot be imported.
    """
    from agent_tunix.rewards.finding import Finder
    from agent_tunix.rewards.kinds import declared_kind, declared_range, format_range, show_kind, summary_of
    from agent_tunix.rewards.registry import get_reward_function, list_reward_functions

    finder = Finder(tuple(reward_directories()), Path.cwd())
    for module in (*modules, *(["custom_rewards.py"] if Path("custom_rewards.py").is_file() else [])):
        finder.import_module(module)
    entries = []
    for name in list_reward_functions():
        reward = get_reward_function(name)
        entries.append((name, show_kind(declared_kind(reward)), declared_range(reward), summary_of(reward)))
    for name in sorted({file.stem for directory in reward_directories() for file in directory.glob("*.yaml")}):
        entries.append((name, "composite", None, "a file of conf/reward"))
    if as_json:
        echo_json([dict(zip(("name", "kind", "range", "summary"), entry, strict=True)) for entry in entries])
        return
    print_table(
        ("NAME", "KIND", "RANGE", ""),
        [(name, kind, format_range(span), summary) for name, kind, span, summary in entries],
    )


@rewards.command()
@click.argument("name")
@finding_option
@json_option
def show(name: str, finding: ListedFinding, as_json: bool) -> None:
    """Show a reward: signature, range, source, documentation with its example, and the values that it receives.

    Exit status: 0; 2 there is no such reward.
    """
    from agent_tunix.cli.rewards.pages import describe_reward, reward_page

    mixture = resolve(name, finding)
    if as_json:
        echo_json(describe_reward(mixture))
    else:
        echo(reward_page(mixture))


@rewards.command("try")
@click.argument("name")
@click.option("--response", required=True, help="The completion's text; `-` reads it from standard input.")
@click.option("--answer", default=None, help="The reference.")
@click.option("--prompt", default="", show_default=False, help="The problem.")
@click.option("--column", "columns", multiple=True, metavar="NAME=VALUE", help="A further column of the row; YAML.")
@click.option("--step", type=int, default=0, help="Training step to pass to the reward.")
@template_option
@execution_option
@finding_option
@json_option
def try_reward(
    name: str,
    response: str,
    answer: str | None,
    prompt: str,
    columns: tuple[str, ...],
    step: int,
    template: str | None,
    finding: ListedFinding,
    execution: Execution,
    as_json: bool,
) -> None:
    """Score one response and explain the score, component by component.

    Exit status: 0 the response has a score, or the reward does not apply; 1 it has none: an error, a timeout, a bad
    reference; 2 the command or the reward cannot be used.
    """
    from agent_tunix.cli.rewards.pages import explain_score, score_data
    from agent_tunix.rewards import Outcome
    from agent_tunix.workbench.checks import CheckProblem
    from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT
    from agent_tunix.workbench.checks.scoring import Scorer

    mixture = resolve(name, finding)
    row = {key: read_yaml(value) for key, value in (split_assignment(column, "--column") for column in columns)}
    row |= {} if answer is None else {"answer": answer}
    mixture.check_parameters(row)
    text = sys.stdin.read() if response == "-" else response
    limit_s = execution.timeout_s if execution.place == "inline" else None  # built-ins have no time limit
    problem = CheckProblem(prompt, row)
    with execution.placed(mixture, problem, text, template, num_workers=1) as placed:
        score = Scorer(placed, step, template or DEFAULT_FORMAT, limit_s)(problem, text)
    if as_json:
        echo_json(score_data(mixture, score, step))
    else:
        echo(explain_score(mixture, score, step))
    _exit(score.outcome in (Outcome.SCORED, Outcome.NOT_APPLICABLE))


@rewards.command()
@click.argument("arguments", metavar="[NAME] CASES", nargs=-1, required=True)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=None,
    help="Tolerance of cases without their own; default: 1e-6.",
)
@click.option("--verbose", "-v", is_flag=True, help="List passed cases too.")
@execution_option
@finding_option
@json_option
def test(
    arguments: tuple[str, ...],
    tolerance: float | None,
    verbose: bool,
    finding: ListedFinding,
    execution: Execution,
    as_json: bool,
) -> None:
    """Score the cases of a table and compare with the expected scores.

    NAME scores the cases that name no reward. CASES is a .yaml, .jsonl or .csv file. A case has `response` and
    `expected` — a number, null for "not applicable", or an outcome: bad_reference, error, timeout — and optionally
    `answer` and other columns, `prompt`, `step`, `name`, `tolerance` and `reward`.

    Exit status: 0 every case passed; 1 one did not; 2 the table or a reward cannot be used.
    """
    from agent_tunix.workbench.checks import load_cases, run_cases

    if len(arguments) > 2:
        raise click.UsageError(f"give CASES, or NAME and CASES, not {len(arguments)} arguments")
    reward = arguments[0] if len(arguments) == 2 else None
    cases = load_cases(arguments[-1])
    names = {str(case.reward) for case in cases if case.reward} | ({reward} if reward else set())
    report = run_cases(
        cases,
        read_spec(reward) if reward else None,
        tolerance=tolerance,
        execution=execution.place,
        timeout_s=execution.timeout_s,
        allow_unsandboxed=execution.allow_unsandboxed,
        **finding.keywords(next(iter(names)) if len(names) == 1 else None),
    )
    if as_json:
        echo_json({"passed": report.passed, "cases": [result.to_data() for result in report.results]})
    else:
        echo("".join(f"{result.text}\n" for result in report.results if verbose and result.passed), nl=False)
        echo(report.text)
    _exit(report.passed)


@rewards.command()
@click.argument("name")
@problem_options(64)
@click.option(
    "--kind",
    type=click.Choice(["correctness", "form", "length", "quality", "composite"]),
    default=None,
    help="Kind of the reward, which decides the checks; default: the kind that it declares.",
)
@late_step_option
@template_option
@click.option("--seed", default=0, help="Seed of the exploit search.")
@click.option(
    "--tries", type=click.IntRange(min=0), default=600, help="Most tries of the exploit search; 0: no search."
)
@click.option("--budget", type=float, default=20.0, help="Time limit of the exploit search, in seconds.")
@click.option(
    "--max-exploit",
    type=click.FloatRange(0, 1),
    default=0.5,
    help=(
        "Largest share of the difference between wrong and right that a string without the answer may earn, apart "
        "from guessing."
    ),
)
@click.option(
    "--rollouts",
    metavar="RUN",
    help="Run, or JSONL file with `response` per line, whose most frequent completions are tried on every problem.",
)
@click.option("--skip", multiple=True, metavar="CHECK", help="Skip a check; repeatable.")
@execution_option
@finding_option
@json_option
def check(
    name: str,
    load_problems: "Callable[[], list[CheckProblem]]",
    kind: str | None,
    step: int,
    template: str | None,
    seed: int,
    tries: int,
    budget: float,
    max_exploit: float,
    rollouts: str | None,
    skip: tuple[str, ...],
    finding: ListedFinding,
    execution: Execution,
    as_json: bool,
) -> None:
    """Check the properties that a reward of its kind must have, and search for cheap strings that earn without solving.

    Every kind: the reward is deterministic, stays within its range and scores hostile strings.
    Correctness and composite: the gold solution earns the most; an empty response, an echo of the prompt, tags, a list
    of every answer, the reference of another row and near misses earn less, and one string for all problems earns
    little. Composite: a correct long answer beats a
    wrong short one. Form: the filled form beats tags alone. Notes never make the check fail.

    Exit status: 0 nothing failed; 1 a check failed; 2 the command, the reward or the data cannot be used.
    """
    from agent_tunix.cli.rewards.problems import load_responses
    from agent_tunix.rewards.execution.probe import announce_if_slow
    from agent_tunix.workbench.checks import Budget, Kind, check_reward
    from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT

    mixture, problems = resolve(name, finding), load_problems()
    advice = (
        f"checking {mixture.name} with some thousands of responses to {len(problems)} problems, each call with at most "
        f"{execution.timeout_s:g} s (--timeout); --rows 2 --tries 0 needs the fewest"
    )
    with execution.placed(mixture, problems[0], template=template) as placed, announce_if_slow(advice):
        report = check_reward(
            placed,
            problems,
            kind=None if kind is None else Kind(kind),
            step=step,
            template=template or DEFAULT_FORMAT,
            seed=seed,
            budget=Budget(tries, budget),
            max_exploit=max_exploit,
            completions=load_responses(rollouts) if rollouts else (),
            skip=skip,
            timeout_s=execution.timeout_s,
        )
    if as_json:
        echo_json(report.to_data())
    else:
        echo(report.text)
    _exit(report.passed)


@rewards.command()
@click.argument("first")
@click.argument("second")
@click.option(
    "--completions",
    "labelled",
    type=click.Path(dir_okay=False),
    default=None,
    help=(
        "JSONL file with `response` and `answer` per line, and `label` (true: right) if known; default: generated "
        "from the problems."
    ),
)
@problem_options(32)
@click.option(
    "--threshold",
    "thresholds",
    type=float,
    multiple=True,
    help=(
        "Lowest value that counts as accepted; give it once for both verifiers, or twice. Default: the top of the "
        "verifier's range."
    ),
)
@click.option("--show", "most", type=click.IntRange(min=0), default=10, help="Number of disagreements to print.")
@late_step_option
@template_option
@execution_option
@finding_options("--completions-as")
@json_option
def calibrate(
    first: str,
    second: str,
    labelled: str | None,
    load_problems: "Callable[[], list[CheckProblem]]",
    thresholds: tuple[float, ...],
    most: int,
    step: int,
    template: str | None,
    finding: ListedFinding,
    execution: Execution,
    as_json: bool,
) -> None:
    """Compare two verifiers on the same completions: confusion, disagreements, and right answers that each misses.

    Misses are counted against the labels if every completion has one (those made from the problems do), and otherwise
    against the other verifier. Answers that could not be read are counted apart from those judged wrong.

    Exit status: 0; 2 the command, a reward or the data cannot be used.
    """
    from agent_tunix.cli.rewards.problems import load_completions
    from agent_tunix.workbench.checks import calibrate as compare
    from agent_tunix.workbench.checks import generate_completions
    from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT

    if len(thresholds) > 2:
        raise click.UsageError("--threshold must be given at most twice")
    limits = (thresholds[0], thresholds[-1]) if thresholds else (None, None)
    template = template or DEFAULT_FORMAT
    if labelled is not None:
        judged = load_completions(labelled)
    else:
        judged = list(generate_completions(load_problems(), template))
    mixtures = resolve(first, finding), resolve(second, finding)
    places = [execution.placed(mixture, judged[0].problem, judged[0].response, template) for mixture in mixtures]
    with places[0] as one, places[1] as other:
        report = compare(
            one, other, judged, thresholds=limits, template=template, step=step, timeout_s=execution.timeout_s
        )
    if as_json:
        echo_json(report.to_data())
    else:
        echo(report.text(most))


def _exit(passed: bool) -> NoReturn:
    sys.exit(0 if passed else 1)
