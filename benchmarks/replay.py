"""Gain of replaying hard groups at equal numbers of samples.

    python benchmarks/replay.py [--steps 60] [--seeds 3] [--generations 4] [--temperature 0.6] [KEY=VALUE ...]

Runs of the embedded model on the built-in word problems, with few completions of each prompt at a low temperature, so
that many groups are dead. Without and with replay they sample the same number of completions. For each seed the script
prints the accuracy on 500 held-out problems before and after, the mean over the evaluations between, the share of
sampled groups that are dead, and the share of trained groups that are replayed; at the end the mean gain over seeds
and its standard error. Further overrides apply to all runs.
"""

import argparse
import tempfile

import numpy as np

import agent_tunix


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.6)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    gains = []
    for seed in range(options.seeds):
        plain, replayed = (train(options, seed, groups) for groups in (0, 32))
        gains.append([replayed[0] - plain[0], replayed[1] - plain[1]])
    for name, values in zip(("at the end", "between"), np.array(gains).T, strict=True):
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        print(f"gain {name}: {values.mean():+.3f} ± {error:.3f}, of seeds {np.round(values, 3).tolist()}", flush=True)


def train(options: argparse.Namespace, seed: int, groups: int) -> tuple[float, float]:
    """Return the accuracy at the end of a run, and the mean over its evaluations after the first."""
    with tempfile.TemporaryDirectory() as directory:
        run = agent_tunix.train(
            *(f"seed={seed}", f"grpo.replay_groups={groups}", f"grpo.num_generations={options.generations}"),
            *(f"training.num_batches={options.steps}", f"training.eval_every_n_steps={max(1, options.steps // 6)}"),
            *(f"generation.temperature={options.temperature}", "training.save_interval_steps=1000"),
            *("tracking.report=false", "tracking.tensorboard=false", *options.overrides),
            directory=f"{directory}/run",
        )
        rows = run.metrics
    dead, again = rows["rewards/dead_groups"].mean(), 0.0
    if groups:
        dead = (rows["sampling/dead_groups"] / rows["sampling/groups"]).mean()
        again = (rows["replay/groups"] / rows["sampling/groups"]).mean()
    accuracies = rows["eval/accuracy"].dropna()
    end, between = float(accuracies.iloc[-1]), float(accuracies.iloc[1:].mean())
    print(
        f"seed {seed}, {groups} groups kept: {accuracies.iloc[0]:.3f} to {end:.3f}, between {between:.3f}; dead "
        f"{dead:.2f}, replayed {again:.2f}",
        flush=True,
    )
    return end, between


if __name__ == "__main__":
    main()
