"""Accuracy of the default job with the policy as its own teacher, against GRPO alone at equal samples.

    python benchmarks/self_distillation.py [--steps 60] [--seeds 3] [--reader 0] [--prompts 16]

The teacher is shown the worked solution. Each line has the held-out accuracy before and after a run of `--steps` steps,
and the teacher's own accuracy before it, which is that of the policy when it is shown the solutions of the held-out
problems. With `--reader N`, all runs start from the embedded model after N supervised steps on problems with their
solutions, because a model of 0.3 million weights does not read a solution otherwise.
"""

import argparse
import tempfile
from statistics import mean
from typing import Any

import agent_tunix

SHOWN = "{question}\n\nThis is a correct solution:\n{worked_solution}\n\nNow solve it yourself."
TEACHER = f"grpo.teacher_prompt={SHOWN.replace('{', '{{').replace('}', '}}')!r}"
VARIANTS = {
    "GRPO": (),
    "GRPO + 0.1 self": ("grpo.teacher=self", TEACHER, "grpo.teacher_coefficient=0.1"),
    "GRPO + 1 self": ("grpo.teacher=self", TEACHER, "grpo.teacher_coefficient=1"),
    "self alone": ("grpo.teacher=self", TEACHER, "grpo.loss=none", "grpo.beta=0"),
}


def main() -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--reader", type=int, default=0)
    parser.add_argument("--prompts", type=int, default=16)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        start: tuple[str, ...] = ()
        if options.reader:
            rates = ("optimizer.learning_rate=1e-3", "evaluation.num_samples=0", f"prompt.template={SHOWN!r}")
            steps = (f"training.num_batches={options.reader}", "training.batch_size=64")
            agent_tunix.sft(*steps, *rates, "training.eval_every_n_steps=0", directory=f"{root}/reader")
            start = (f"training.init_checkpoint={root}/reader",)
        shown = train((*start, f"prompt.template={SHOWN!r}"), 1, 1, 0, f"{root}/shown")
        print(f"the teacher before training: {shown[0]:.1%}", flush=True)
        for name, overrides in VARIANTS.items():
            found = []
            for seed in range(options.seeds):
                directory = f"{root}/{name.replace(' ', '_')}_{seed}"
                before, after = train((*start, *overrides), options.steps, options.prompts, seed, directory)
                print(f"{name}, seed {seed}: {before:.1%} before, {after:.1%} after", flush=True)
                found.append(after)
            print(f"{name}: {mean(found):.1%} in the mean", flush=True)


def train(overrides: tuple[str, ...], steps: int, prompts: int, seed: int, directory: str) -> tuple[float, float]:
    """Return the accuracy before and after a run of the default job."""
    size = (f"training.num_batches={steps}", f"training.batch_size={prompts}", f"seed={seed}")
    quiet = (
        "training.eval_every_n_steps=0",
        "tracking.report=false",
        "tracking.tensorboard=false",
        "tracking.progress=none",
    )
    run = agent_tunix.train(*overrides, *size, *quiet, "evaluation.num_samples=500", directory=directory)
    accuracies: Any = run.metrics["eval/accuracy"].dropna().tolist()
    return accuracies[0], accuracies[-1]


if __name__ == "__main__":
    main()
