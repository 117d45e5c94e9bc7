"""Gain of replaying hard groups at equal numbers of samples.

    python benchmarks/replay.py [--steps 30] [--seeds 3] [KEY=VALUE ...]

Runs of the embedded model on the built-in word problems, with two completions of each prompt, a low temperature and a
low learning rate, so that many groups are dead. Without and with replay they sample the same number of completions.
For each seed the script prints the accuracy on held-out problems before and after, the mean over the evaluations, the
share of sampled groups that are dead and the share of trained groups that are replayed; at the end the mean gains and
their standard errors. Further overrides apply to all runs; with `grpo.num_iterations=2`, all completions train twice.
"""

import argparse
import tempfile

import numpy as np

import agent_tunix


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    found = np.array([[train(options, seed, groups) for groups in (0, 32)] for seed in range(options.seeds)])
    for name, values in zip(("at the end", "in the mean"), (found[:, 1] - found[:, 0]).T, strict=True):
        error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
        print(f"gain {name}: {values.mean():+.3f} ± {error:.3f}, of seeds {np.round(values, 3).tolist()}", flush=True)


def train(options: argparse.Namespace, seed: int, groups: int) -> tuple[float, float]:
    """Return the accuracy at the end of a run, and the mean over its evaluations after the first."""
    with tempfile.TemporaryDirectory() as directory:
        run = agent_tunix.train(
            *(f"seed={seed}", f"grpo.replay_groups={groups}", "grpo.num_generations=2", "training.batch_size=8"),
            *(f"training.num_batches={options.steps}", f"training.eval_every_n_steps={max(1, options.steps // 6)}"),
            *(
                "generation.temperature=0.6",
                "optimizer.learning_rate=2e-5",
                "evaluation.num_samples=200",
                "training.save_interval_steps=1000",
            ),
            *("tracking.report=false", "tracking.tensorboard=false", *options.overrides),
            directory=f"{directory}/run",
        )
        rows, dead, again = run.metrics, run.metrics["rewards/dead_groups"].mean(), 0.0
    if groups:
        dead = (rows["sampling/dead_groups"] / rows["sampling/groups"]).mean()
        again = (rows["replay/groups"] / rows["sampling/groups"]).mean()
    accuracies = rows["eval/accuracy"].dropna()
    end, mean = float(accuracies.iloc[-1]), float(accuracies.iloc[1:].mean())
    shares = f"dead {dead:.2f}, replayed {again:.2f}"
    print(f"seed {seed}, {groups} kept: {accuracies.iloc[0]:.3f} to {end:.3f}, mean {mean:.3f}; {shares}", flush=True)
    return end, mean


if __name__ == "__main__":
    main()
