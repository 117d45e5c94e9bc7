"""Accuracy of the forecast of `agent-tunix rewards plan`, compared with a run.

    python benchmarks/plan.py [--problems 128] [--samples 32] [--steps 20] [--group-sizes 4 8]

A pilot forecasts the share of dead groups. Then real steps with a learning rate of 0 keep the policy of the pilot, and
`rewards/dead_groups` is averaged over them. The benchmark prints both with their standard errors, and their difference
in units of the combined standard error, which should be at most 3.
"""

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import absl.logging
import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.reward_setup import make_reward_runner
from agent_tunix.tracking import read_rows
from agent_tunix.training.pilot import run_pilot
from agent_tunix.training.train import train
from agent_tunix.workbench.group_plan import make_plan

LARGEST_DISTANCE = 3.0


def make_config(group_size: int, steps: int) -> Config:
    """Return the default run with a policy that does not change."""
    config = Config()
    return replace(
        config,
        optimizer=replace(config.optimizer, learning_rate=0.0),
        grpo=replace(config.grpo, num_generations=group_size, beta=0.0),
        training=replace(config.training, num_batches=steps, eval_every_n_steps=0, save_interval_steps=0),
        evaluation=replace(config.evaluation, num_samples=8, batch_size=8),
        tracking=replace(config.tracking, tensorboard=False, progress="none"),
    )


def observe(group_size: int, steps: int) -> tuple[float, float]:
    """Return the mean of `rewards/dead_groups` over real steps, and its standard error."""
    with tempfile.TemporaryDirectory() as directory:
        checked = preflight(make_config(group_size, steps), Path.cwd())
        summary = train(checked, Path(directory) / "run")
        shares = [row["rewards/dead_groups"] for row in read_rows(summary.paths.metrics) if row["step"] > 0]
    return float(np.mean(shares)), float(np.std(shares, ddof=1)) / math.sqrt(len(shares))


def main() -> None:
    """Print the table; exit with status 1 if a forecast is too far off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=128)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--group-sizes", type=int, nargs="+", default=[4, 8])
    arguments = parser.parse_args()
    absl.logging.set_verbosity(absl.logging.ERROR)
    config = make_config(max(arguments.group_sizes), arguments.steps)
    checked = preflight(config, Path.cwd())
    with make_reward_runner(checked.mixture, config.rewards) as runner:
        pilot = run_pilot(
            config,
            runner.reward,
            num_problems=arguments.problems,
            num_samples=arguments.samples,
            temperatures=[config.generation.temperature],
        )
    plan = make_plan(pilot.totals, arguments.group_sizes)
    print("group  forecast         observed         distance")
    worst = 0.0
    for forecast in plan.forecasts:
        dead, error = observe(forecast.num_generations, arguments.steps)
        distance = abs(dead - forecast.dead_share) / max(math.hypot(error, forecast.standard_error), 1e-9)
        worst = max(worst, distance)
        print(
            f"{forecast.num_generations:>5}  {forecast.dead_share:>6.1%} ± {forecast.standard_error:<6.1%}"
            f"  {dead:>6.1%} ± {error:<6.1%}  {distance:.1f} standard errors"
        )
    raise SystemExit(0 if worst <= LARGEST_DISTANCE else 1)


if __name__ == "__main__":
    main()
