"""The command `agent-tunix` and its subcommands. Importing this module loads neither Hydra nor JAX.

`train`, `sft`, `prefer` and `evaluate` pass Hydra overrides on unchanged.
"""

import logging
import sys

import click

from agent_tunix import early_interrupt  # first, because it handles Ctrl-C
from agent_tunix.cli import (
    comparing,
    data,
    engines,
    environments,
    group_plan,
    recorded_runs,
    rewards,
    run_plan,
    store,
)
from agent_tunix.cli.export import export
from agent_tunix.cli.generate import generate
from agent_tunix.cli.options import ErrorGroup
from agent_tunix.cli.printing import echo
from agent_tunix.cli.serve import serve
from agent_tunix.cli.serve_policy import serve_policy
from agent_tunix.version import __version__
from agent_tunix.visible_text import SafeFormatter, SafeLogRecord

_OVERRIDES = {"ignore_unknown_options": True, "help_option_names": []}


@click.group(cls=ErrorGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="agent-tunix")
def main() -> None:
    """GRPO fine-tuning on JAX and Tunix, with the reward function at its heart."""
    early_interrupt.end()
    logging.setLogRecordFactory(SafeLogRecord)  # libraries may have added handlers of their own
    if logging.lastResort is not None:  # prints warnings of commands without a log; they can contain names from runs
        logging.lastResort.setFormatter(SafeFormatter())


@main.command(context_settings=_OVERRIDES)
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def train(overrides: tuple[str, ...]) -> None:
    """Train a policy: `agent-tunix train training.reward_function=math`.

    OVERRIDES are Hydra's: KEY=VALUE, +experiment=NAME, --cfg job, --multirun, --help.
    """
    from agent_tunix.cli import hydra_programs

    hydra_programs.train(overrides)


@main.command(context_settings=_OVERRIDES)
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def sft(overrides: tuple[str, ...]) -> None:
    """Fine-tune a policy on target texts, before GRPO: `agent-tunix sft model.path=DIR`.

    By default the target of a prompt is `prompt.format` filled with the row's worked solution and answer. OVERRIDES are
    those of `agent-tunix train`, and sft.target_column and sft.max_target_length. `agent-tunix train
    model.from_run=RUN` starts from its result.
    """
    from agent_tunix.cli import hydra_programs

    hydra_programs.sft(overrides)


@main.command(context_settings=_OVERRIDES)
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def prefer(overrides: tuple[str, ...]) -> None:
    """Tune a policy on pairs of responses: `agent-tunix prefer prefer=simpo data.path=DIR`.

    The rows have a prompt and the columns `chosen` and `rejected`, or come from the completions of a run with
    prefer.from_rollouts=RUN. OVERRIDES are those of `agent-tunix train`, prefer=dpo|simpo|ipo, and the keys of the
    group `prefer`.
    """
    from agent_tunix.cli import hydra_programs

    hydra_programs.prefer(overrides)


@main.command(context_settings=_OVERRIDES)
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def evaluate(overrides: tuple[str, ...]) -> None:
    """Measure a trained policy: `agent-tunix evaluate checkpoint_dir=RUN`.

    OVERRIDES are Hydra's: checkpoint_dir=RUN, step=N, inference_config=greedy|standard|liberal, num_passes=N, --help.
    """
    from agent_tunix.cli import hydra_programs

    hydra_programs.evaluate(overrides)


@main.command("verify-resume", context_settings={"ignore_unknown_options": True})
@click.option("--kills", default=1, help="How many times to kill the second run with SIGKILL.")
@click.option("--random-seed", default=0, help="Seed of the times of the kills.")
@click.option(
    "--directory", type=click.Path(), default=None, help="Keep the two runs in this directory; default: remove them."
)
@click.option("--program", type=click.Choice(["train", "sft", "prefer"]), default="train", help="Command to run.")
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
def verify_resume(
    kills: int, random_seed: int, directory: str | None, program: str, overrides: tuple[str, ...]
) -> None:
    """Check that a killed and resumed run equals an uninterrupted one, for your own configuration.

    Runs `agent-tunix train OVERRIDES`, or `sft` or `prefer`, twice. Kills the second run with SIGKILL at random
    moments, resumes it each time, and compares the two metrics.jsonl, except timings. Reports the first difference, or
    that there is none. Exit status 0: equal; 1: different; 2: a run failed.
    """
    from agent_tunix.training.verification import verify

    report = verify(list(overrides), kills=kills, seed=random_seed, directory=directory, program=program)
    echo(report.text)
    sys.exit(0 if report.equal else 1)


for _command in (
    *(export, generate, recorded_runs.report, comparing.compare, run_plan.plan),
    *(rewards.rewards, environments.environments, engines.engines, store.keys, store.store, serve, serve_policy),
    data.data,
):
    main.add_command(_command)
for _command in (group_plan.plan, recorded_runs.diagnose, rewards.replay, rewards.diff):
    rewards.rewards.add_command(_command)
