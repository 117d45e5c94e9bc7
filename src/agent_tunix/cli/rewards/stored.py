"""`agent-tunix rewards replay | diff`: rewards on completions that runs have stored, without JAX.

Importing this loads only Click; each command loads what it needs.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_tunix.cli.options import json_option, modules_option, show_option, trust_option
from agent_tunix.cli.printing import echo, echo_json
from agent_tunix.visible_text import one_line

if TYPE_CHECKING:
    from agent_tunix.rewards import Mixture

_SAME, _DIFFERS = 0, 1

_steps_option = click.option(
    "--steps", default=None, metavar="FIRST:LAST", help="Use only these steps; either end may be omitted."
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--reward", default=None, help="Any value of training.reward_function; default: the run's own.")
@click.option("--reuse", is_flag=True, help="Reuse the stored scores of unchanged components.")
@click.option("--twice", is_flag=True, help="Score twice, without the cache of judges, and compare the two scorings.")
@_steps_option
@show_option
@json_option
@trust_option
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def replay(
    run: Path,
    reward: str | None,
    reuse: bool,
    twice: bool,
    steps: str | None,
    num_shown: int,
    as_json: bool,
    trust: bool,
    overrides: tuple[str, ...],
) -> None:
    """Score the stored completions of RUN with a changed reward, and show which totals and advantages change.

    OVERRIDES change the run's own configuration: reward.components.brevity.weight=0.3,
    rewards.args.conciseness.limit=80, grpo.advantage_scaling=none, grpo.credit=turn. Only settings that decide totals
    and advantages of given completions can be changed. Without changes the run's own reward scores again, and every
    total and advantage should equal the stored one to the last bit.

    Exit status: 0 every total and advantage is the stored one, or with --twice the first scoring's; 1 some differ; 2
    the command, the run or the reward cannot be used.
    """
    from agent_tunix.cli.rewards.options import read_spec
    from agent_tunix.runs import stored_rewards
    from agent_tunix.tracking.stored_run import StoredRun

    if reuse and twice:
        raise click.UsageError(
            "only one of --reuse, which scores no component again, and --twice, which scores all, is allowed; remove "
            "one of them"
        )
    stored = StoredRun(run)
    change = stored_rewards.RewardChange(None if reward is None else read_spec(reward), overrides)
    if twice:
        comparison = stored_rewards.score_twice(stored, change, steps=steps, num_shown=num_shown, trust=trust)
        told = [*comparison.lines("the first scoring's")]
    else:
        comparison, changed = stored_rewards.replay_run(
            stored, change, steps=steps, num_shown=num_shown, reuse=reuse, trust=trust
        )
        told = [*(f"changed: {line}" for line in changed), *comparison.lines()]
    if as_json:
        echo_json(comparison.to_data())
    else:
        echo("\n".join(map(one_line, told)))
    raise SystemExit(_SAME if comparison.identical else _DIFFERS)


@click.command()
@click.argument("first")
@click.argument("second")
@click.option(
    "--run", type=click.Path(path_type=Path), default=None, help="Run on whose completions to compare the scores."
)
@_steps_option
@show_option
@modules_option
@click.option(
    "--allow-unsandboxed",
    is_flag=True,
    help="With --run: run uploaded code with all your permissions if this machine cannot isolate it.",
)
@json_option
@trust_option
def diff(
    first: str,
    second: str,
    run: Path | None,
    steps: str | None,
    num_shown: int,
    modules: tuple[str, ...],
    allow_unsandboxed: bool,
    as_json: bool,
    trust: bool,
) -> None:
    """Compare two rewards: code, arguments, mixture and versions, and, with --run, where their verdicts differ.

    FIRST and SECOND are anything that training.reward_function accepts, or the directory of a run. A run's reward is
    taken with its files as they are now.

    Exit status: 0 they are the same; 1 they differ; 2 one of them, or the run, cannot be used.
    """
    from agent_tunix.config.compose import with_overrides
    from agent_tunix.rewards.comparison import compare_rewards
    from agent_tunix.runs import stored_rewards
    from agent_tunix.runs.algorithm_setup import algorithm_parts, register_own_algorithm
    from agent_tunix.runs.trust import is_own_run, require_trust
    from agent_tunix.tracking.stored_run import StoredRun

    mixtures = [_reward_of(each, modules, trust) for each in (first, second)]
    difference = compare_rewards(*mixtures)
    comparison = None
    if run is not None:
        stored = StoredRun(run)
        config = stored.config
        require_trust(stored.root, algorithm_parts(config, Path.cwd(), with_loss=False), trust=trust)
        register_own_algorithm(config, Path.cwd(), with_loss=False)
        if allow_unsandboxed or not is_own_run(stored.root):  # others do not decide how the user's uploads run
            config = with_overrides(config, [f"rewards.allow_unsandboxed={allow_unsandboxed}"])
        with stored_rewards.placed(mixtures, config) as (before, after):
            comparison = stored_rewards.contrast_on_run(before, after, stored, config, steps=steps, num_shown=num_shown)
    if as_json:
        echo_json({**difference.to_data(), "run": None if comparison is None else comparison.to_data()})
    else:
        told = [*difference.lines(), *([] if comparison is None else ["", *comparison.lines("the first reward's")])]
        echo("\n".join(map(one_line, told)))
    raise SystemExit(_DIFFERS if difference or (comparison and not comparison.identical) else _SAME)


def _reward_of(named: str, modules: tuple[str, ...], trust: bool) -> "Mixture":
    """Return the reward of a specification or of a run's directory."""
    from agent_tunix.cli.rewards.options import ListedFinding, resolve
    from agent_tunix.runs.reward_setup import resolve_from_config
    from agent_tunix.runs.stored_rewards import changed_since_run, resolve_for_replay
    from agent_tunix.runs.trust import require_trust, reward_parts
    from agent_tunix.tracking.stored_run import StoredRun

    if not (Path(named) / "config.yaml").is_file():
        return resolve(named, ListedFinding(modules))
    stored = StoredRun(named)
    config = stored.config
    require_trust(stored.root, reward_parts(config, Path.cwd()), trust=trust)
    for line in changed_since_run(stored, resolve_for_replay(config, stored)):
        echo(f"since {named} was trained: {line}", err=True)
    return resolve_from_config(config, Path.cwd(), stored.root)
