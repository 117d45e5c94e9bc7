"""Options that commands of `agent-tunix rewards` share: how a reward is found, where it runs, and its problems."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_tunix.cli.options import Decorator, grouped, modules_option, place_option, timeout_option
from agent_tunix.errors import RewardError

if TYPE_CHECKING:
    from agent_tunix.rewards import Mixture
    from agent_tunix.rewards.uploaded import UploadedSource
    from agent_tunix.workbench.checks import CheckProblem

# Written out, because importing them takes time.
CONVENTIONS = (*("plain", "trl", "miles", "environment", "verl"), *("openrlhf", "ms_swift", "verifiers", "benchmax"))


@dataclass(frozen=True, slots=True)
class ListedFinding:
    """Options that decide how a NAME is found and called: `rewards.modules`, `rewards.args` and so on."""

    modules: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    convention: str = "auto"
    completions: str = "auto"
    reward_key: str | None = None

    def keywords(self, name: str | None) -> dict[str, Any]:
        """Return the arguments of `resolve_reward` for a NAME; None if it is not known yet."""
        return {
            "modules": self.modules,
            "args": read_args(name, self.args),
            "reward_directories": reward_directories(),
            "convention": self.convention,
            "completions": self.completions,
            "reward_key": self.reward_key,
            "fetch": _fetch,
        }


@dataclass(frozen=True, slots=True)
class Execution:
    """Options that decide where a reward runs and within which limits: `rewards.execution` and so on."""

    place: str
    timeout_s: float
    allow_unsandboxed: bool

    @contextlib.contextmanager
    def placed(
        self,
        mixture: "Mixture",
        problem: "CheckProblem",
        response: str = "",
        template: str | None = None,
        num_workers: int | None = None,
    ) -> "Iterator[Mixture]":
        """Yield the reward, in this process or in workers as the options say.

        In workers, trial calls on the problem and the response first decide the form of completions.
        """
        from agent_tunix.rewards.execution import make_runner
        from agent_tunix.workbench.checks.problems import DEFAULT_FORMAT
        from agent_tunix.workbench.checks.scoring import settle_forms

        if self.place != "inline":
            settle_forms(
                mixture,
                problem,
                response,
                template or DEFAULT_FORMAT,
                timeout_s=self.timeout_s,
                allow_unsandboxed=self.allow_unsandboxed,
            )
        with make_runner(
            mixture,
            self.place,
            timeout_s=self.timeout_s,
            num_workers=num_workers,
            allow_unsandboxed=self.allow_unsandboxed,
        ) as runner:
            yield runner.reward


def finding_options(completions: str = "--completions", *further: Decorator) -> Decorator:
    """Return the options of `ListedFinding`; `completions` is the name of one of them."""
    return grouped(
        "finding",
        ListedFinding,
        *further,
        modules_option,
        click.option(
            "--convention",
            type=click.Choice(["auto", *CONVENTIONS]),
            default="auto",
            help="Convention of an ambiguous signature; same as rewards.convention.",
        ),
        click.option(
            completions,
            "completions",
            type=click.Choice(["auto", "text", "messages"]),
            default="auto",
            help="Form of the completions that functions get; same as rewards.completions.",
        ),
        click.option("--reward-key", help="Key of the reward in a returned dict; same as rewards.reward_key."),
    )


arg_option = click.option(
    "--arg", "args", multiple=True, metavar="[COMPONENT.]PARAM=VALUE", help="Set an argument; YAML."
)
finding_option = finding_options("--completions", arg_option)
execution_option = grouped(
    "execution",
    Execution,
    place_option,
    timeout_option,
    click.option(
        "--allow-unsandboxed",
        is_flag=True,
        help="Run uploaded code with all your permissions if this machine cannot isolate it.",
    ),
)


def problem_options(num_rows: int) -> Decorator:
    """Return the options of problems, passed as the function `load_problems`; `num_rows` is the default number."""
    return grouped(
        "load_problems",
        _problem_loader,
        click.option(
            "--data", help="JSONL, CSV or Parquet file of problems with references; default: generated word problems."
        ),
        click.option(
            "--rows",
            type=click.IntRange(min=1),
            default=num_rows,
            help="Number of problems, spread evenly over the file.",
        ),
        click.option("--prompt-column", help="Column with the problem; default: question, prompt or problem."),
        click.option("--answer-column", help="Column with the reference; default: answer, ground_truth or label."),
    )


def _problem_loader(
    data: str | None, rows: int, prompt_column: str | None, answer_column: str | None
) -> "Callable[[], list[CheckProblem]]":
    def load() -> "list[CheckProblem]":
        from agent_tunix.cli.rewards.problems import load_problems

        return load_problems(data, rows, prompt_column, answer_column)

    return load


late_step_option = click.option("--step", type=int, default=1_000_000, help="Training step to pass to the reward.")
template_option = click.option(
    "--format", "template", default=None, help="Template of responses; same as prompt.format."
)


def resolve(name: str, finding: ListedFinding) -> "Mixture":
    """Return the reward that a command's NAME means."""
    from agent_tunix.rewards import resolve_reward

    return resolve_reward(read_spec(name), **finding.keywords(name))


def _fetch(name: str) -> "UploadedSource | None":
    """Return an uploaded reward from this machine's store or the server of AGENT_TUNIX_URL; None if it is not one."""
    from agent_tunix.store.fetching import fetch_uploaded

    return fetch_uploaded(name)


def reward_directories() -> list[Path]:
    """Return the directories of component files: in the working directory, then in the package or its checkout."""
    package = Path(__file__).resolve().parents[2]
    own = package / "conf" if (package / "conf").is_dir() else package.parents[1] / "conf"
    return [Path.cwd() / "conf" / "reward", own / "reward"]


def read_spec(name: str) -> Any:
    """Return a name unchanged; a list or mapping of components is parsed as YAML."""
    return read_yaml(name) if name.lstrip().startswith(("[", "{")) else name


def read_args(name: str | None, args: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Return `--arg` options as `rewards.args`: by component, or for the one named reward."""
    from agent_tunix.rewards.finding import function_name

    arguments: dict[str, dict[str, Any]] = {}
    for arg in args:
        key, value = split_assignment(arg, "--arg")
        component, _, parameter = key.rpartition(".")
        if not component and (name is None or name.lstrip().startswith(("[", "{"))):
            raise click.UsageError(f"--arg {arg} must name a component; write --arg COMPONENT.{key}=…")
        arguments.setdefault(component or function_name(name), {})[parameter] = read_yaml(value)
    return arguments


def split_assignment(assignment: str, option: str) -> tuple[str, str]:
    """Return the name and the value of `NAME=VALUE`."""
    key, sign, value = assignment.partition("=")
    if not sign or not key:
        raise click.UsageError(f"{option} must have the form NAME=VALUE, not {assignment!r}")
    return key, value


def read_yaml(text: str) -> Any:
    """Return a value written in YAML; raise RewardError if it is not."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RewardError(f"{text!r} is not YAML: {error}", code="invalid_cases") from error
