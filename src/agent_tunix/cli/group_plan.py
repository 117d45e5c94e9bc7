"""`agent-tunix rewards plan`: forecast of the groups that teach nothing, before a run is paid for."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agent_tunix.cli.options import json_option
from agent_tunix.cli.printing import echo
from agent_tunix.errors import ConfigError
from agent_tunix.overrides import assign

if TYPE_CHECKING:
    from agent_tunix.config.schema import Config
    from agent_tunix.training.pilot import Pilot
    from agent_tunix.workbench.group_plan import Plan

_MANY_CUT = 0.1


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--data", default=None, help="File of problems, or a directory with a file named train; same as data.path."
)
@click.option("--model", default=None, help="A Hugging Face model directory; same as model.path.")
@click.option("--reward", default=None, help="Any value of training.reward_function.")
@click.option("--problems", type=click.IntRange(min=1), default=64, help="Number of problems to try.")
@click.option("--samples", type=click.IntRange(min=2), default=16, help="K: completions per problem.")
@click.option(
    "--group-size",
    "group_sizes",
    type=click.IntRange(min=2),
    multiple=True,
    help="A group size to forecast; repeatable. Default: 2, 4, 8, … up to K.",
)
@click.option(
    "--temperature",
    "temperatures",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="A sampling temperature to try; repeatable. Default: generation.temperature.",
)
@click.option(
    "--target",
    type=click.FloatRange(0, 1),
    default=0.25,
    help="Largest acceptable share of dead groups.",
)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="Write each problem with its totals to this JSONL file, to select problems with.",
)
@json_option
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def plan(
    data: str | None,
    model: str | None,
    reward: str | None,
    problems: int,
    samples: int,
    group_sizes: tuple[int, ...],
    temperatures: tuple[float, ...],
    target: float,
    write: Path | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Sample a few problems with the model as it is, and forecast dead groups by group size and temperature.

    Recommends grpo.num_generations, generation.temperature and training.batch_size, and lists the problems that are too
    easy or too hard to learn from. OVERRIDES are those of the run that is planned: KEY=VALUE.

    Exit status: 0; 1 no group size keeps the dead groups within the target; 2 the command, the reward, the data or the
    model cannot be used.
    """
    sizes = group_sizes or tuple(2**power for power in range(1, samples.bit_length()) if 2**power <= samples)
    too_large = [size for size in sizes if size > samples]
    if too_large:
        raise click.UsageError(f"--group-size must be at most --samples {samples}, not {too_large[0]}")
    shortcuts = _shortcuts(data, model, reward)
    pilot = _pilot(_compose([*shortcuts, *overrides]), problems, samples, temperatures)
    from agent_tunix.workbench.group_plan import make_plan

    group_plan = make_plan(pilot.totals, sizes, target)
    if write is not None:
        write.write_text("".join(f"{line}\n" for line in _problem_lines(pilot)), encoding="utf-8")
    if as_json:
        echo(json.dumps({**group_plan.to_data(), "clipped_share": pilot.clipped_share}, indent=2))
    else:
        _print(group_plan, pilot)
    raise SystemExit(0 if group_plan.within_target else 1)


def _shortcuts(data: str | None, model: str | None, reward: str | None) -> list[str]:
    """Return the options as Hydra overrides, with quoted values."""
    shortcuts = []
    if data is not None:
        from agent_tunix.cli.rewards.problems import source_of

        shortcuts += [f"data.source={source_of(data)}", assign("data.path", data)]
    if model is not None:
        shortcuts.append(assign("model.path", model))
    if reward is not None:
        is_list = reward.lstrip().startswith(("[", "{"))
        shortcuts.append(
            f"training.reward_function={reward}" if is_list else assign("training.reward_function", reward)
        )
    return shortcuts


def _compose(overrides: list[str]) -> "Config":
    from agent_tunix.config.working_directory import find_own_conf
    from agent_tunix.runs.starting_run import compose_start

    find_own_conf()
    return compose_start(overrides)


def _pilot(config: "Config", problems: int, samples: int, temperatures: tuple[float, ...]) -> "Pilot":
    from agent_tunix.config.episodes import has_environment
    from agent_tunix.runs.preflight import preflight
    from agent_tunix.startup import devices

    if has_environment(config):
        raise ConfigError(
            "agent-tunix rewards plan requires a run without environment.name, environment.tools and environment.mcp, "
            "because it samples completions of one turn, not episodes; take the share of dead groups from a short run "
            "(rewards/dead_groups)",
            code="invalid_request",
        )
    validated = preflight(config, Path.cwd())
    devices.prepare(config.distributed)

    import absl.logging

    from agent_tunix.runs.reward_setup import make_reward_runner
    from agent_tunix.training.pilot import run_pilot

    absl.logging.set_verbosity(absl.logging.ERROR)

    with make_reward_runner(validated.mixture, config.rewards) as runner:
        return run_pilot(
            config,
            runner.reward,
            num_problems=problems,
            num_samples=samples,
            temperatures=list(dict.fromkeys(temperatures)) or [config.generation.temperature],
        )


def _problem_lines(pilot: "Pilot") -> list[str]:
    """Return a JSON line per problem, with its totals by temperature; null for unscored ones."""
    lines = []
    for problem, prompt in enumerate(pilot.prompts):
        totals: dict[str, Any] = {
            f"{temperature:g}": [None if total != total else total for total in totals_PK[problem].tolist()]
            for temperature, totals_PK in pilot.totals.items()
        }
        lines.append(json.dumps({"prompt": prompt, "totals": totals}, ensure_ascii=False))
    return lines


def _print(group_plan: "Plan", pilot: "Pilot") -> None:
    echo(f"{len(pilot.prompts)} problems, {group_plan.num_samples} completions of each")
    for temperature, share in pilot.clipped_share.items():
        if share > _MANY_CUT:
            share_cut = "of the completions are cut at generation.max_generation_steps"
            echo(f"temperature {temperature:g}: {share:.0%} {share_cut}")
    for line in group_plan.lines():
        echo(line)
