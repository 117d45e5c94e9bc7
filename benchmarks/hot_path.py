"""Breakdown of the time of a training step, and the share of it that waits for outputs.

    python benchmarks/hot_path.py
    python benchmarks/hot_path.py --long
    python benchmarks/hot_path.py --quick generation.temperature=0.7

The benchmark measures a real run with all outputs of the default run, on the thread that takes the steps. The time of a
part is the time in its functions without the nested functions of other parts. *Device* is waiting for results of the
device: the completions and the last update. *Outputs* is everything that is only looked at later: the row of metrics,
handing over the row and the completions, the checkpoint, the diagnosis. Other threads count only while the step waits
for them. The figures are medians over the steps that neither evaluate nor save, without the first three. Steps that
save have a separate line.

The exit status is 1 if a step waits for outputs for more than `--bar` percent of its time. `--long` samples completions
of 384 tokens from the default model, in micro-batches of 4 prompts. Other arguments are overrides of the configuration.
"""

import argparse
import collections
import functools
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from hydra import compose, initialize_config_dir

from agent_tunix.config.compose import find_conf_directory, register_schema, to_typed
from agent_tunix.config.schema import Config
from agent_tunix.startup.devices import prepare

WARM_UP = 3
LONG = (
    "generation.max_generation_steps=384",
    "generation.temperature=1.6",
    "training.micro_batch_size=4",
    "optimizer.learning_rate=1e-9",  # keeps completions long
)
DEVICE, HOST, OUTPUTS = "device", "host", "outputs"


class Stopwatch:
    """Stopwatch of nested parts. The time of a part excludes the parts inside it."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._spent: dict[str, float] = collections.defaultdict(float)
        self._inside: list[float] = []
        self._began = time.perf_counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time counted for a part."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            self._inside.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                seconds = time.perf_counter() - started
                self._spent[part] += seconds - self._inside.pop()
                if self._inside:
                    self._inside[-1] += seconds

        return call

    def stepped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that ends a step, with a record of the parts since the step before after each call."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            finally:
                ended = time.perf_counter()
                rest = ended - self._began - sum(self._spent.values())
                self.steps.append({**self._spent, "all else": rest})
                self._spent.clear()
                self._began = ended

        return call


def parts() -> list[tuple[str, str, Any, str]]:
    """Return kind, name, owner and attribute of each part's function."""
    import jax

    from agent_tunix.grpo import step as grpo_step
    from agent_tunix.grpo.step import GrpoTrainer
    from agent_tunix.grpo.updater import PolicyUpdater
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.rewards import Mixture
    from agent_tunix.runs.weights.saving import CheckpointSaver
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.tracking import Recorder
    from agent_tunix.training import checkpointing, train
    from agent_tunix.training.metrics import StepMetrics
    from agent_tunix.training.session import RunSession

    return [
        (DEVICE, "completions and updates", jax, "device_get"),
        (HOST, "prompts", RunSession, "batch"),
        (HOST, "beginning the rollout", Sampler, "sample"),
        (HOST, "texts of completions", Tokenizer, "decode_batch"),
        (HOST, "samples", grpo_step, "make_samples"),
        (HOST, "rewards", Mixture, "score"),
        (HOST, "advantages", Mixture, "advantages"),
        (HOST, "beginning the reference pass", GrpoTrainer, "place"),
        (HOST, "placing arrays", grpo_step, "make_loss_inputs"),
        (HOST, "beginning the updates", PolicyUpdater, "dispatch"),
        (HOST, "evaluation", RunSession, "_evaluate"),
        (OUTPUTS, "metrics of the updates", grpo_step, "describe_updates"),
        (OUTPUTS, "row of metrics", StepMetrics, "row"),
        (OUTPUTS, "learning rate", RunSession, "learning_rate"),
        (OUTPUTS, "log of scores", train, "_log_scores"),
        (OUTPUTS, "completions handed over", Recorder, "store"),
        (OUTPUTS, "completions made ready", train, "to_stored"),
        (OUTPUTS, "row handed over", Recorder, "record"),
        (OUTPUTS, "checkpoint: what comes before it", Recorder, "barrier"),
        (OUTPUTS, "checkpoint: arrays", checkpointing, "read_state"),
        (OUTPUTS, "checkpoint: copy, and the one before", CheckpointSaver, "save"),
    ]


@contextmanager
def watched() -> Iterator[Stopwatch]:
    """Time every part of the steps that are taken inside."""
    from contextlib import ExitStack

    from agent_tunix.training.session import RunSession

    watch = Stopwatch()
    with ExitStack() as stack:
        for _, name, owner, attribute in parts():
            stack.enter_context(mock.patch.object(owner, attribute, watch.timed(name, getattr(owner, attribute))))
        stack.enter_context(mock.patch.object(RunSession, "finish_step", watch.stepped(RunSession.finish_step)))
        yield watch


def make_config(arguments: argparse.Namespace) -> Config:
    """Return the default run with enough steps for the medians."""
    register_schema()
    steps = 10 if arguments.quick else arguments.steps + WARM_UP
    overrides = [
        f"training.num_batches={steps}",
        "training.eval_every_n_steps=0",
        f"training.save_interval_steps={5 if arguments.quick else 10}",
        "tracking.report=false",
        *(LONG if arguments.long else ()),
        *arguments.overrides,
    ]
    with initialize_config_dir(str(find_conf_directory()), version_base=None):
        return to_typed(compose("config", overrides))


def report(watch: Stopwatch, bar: float) -> int:
    """Print the breakdown; return 1 if outputs take more than the bar, else 0."""
    taken = watch.steps[WARM_UP:]
    saving = [step for step in taken if step.get("checkpoint: arrays")]
    plain = [step for step in taken if not step.get("checkpoint: arrays") and not step.get("evaluation")]
    whole = statistics.median(sum(step.values()) for step in plain)

    def median(*names: str, of: list[dict[str, float]] = plain) -> float:
        return statistics.median(sum(step.get(name, 0.0) for name in names) for step in of) if of else 0.0

    def line(name: str, seconds: float) -> str:
        return f"{name:<42}{1e3 * seconds:>10.2f} ms{100 * seconds / whole:>8.2f} %"

    print(f"{len(plain)} steps that neither evaluate nor save, {len(saving)} that save")
    print(line("a step", whole))
    named = parts()
    for kind in (DEVICE, HOST, OUTPUTS):
        names = [name for its_kind, name, _, _ in named if its_kind == kind]
        print(line(kind, median(*names)))
        for name in sorted(names, key=median, reverse=True):
            if median(name) > 0:
                print(line(f"  {name}", median(name)))
    print(line("all else", median("all else")))
    outputs = [name for kind, name, _, _ in named if kind == OUTPUTS]
    if saving:
        print(line("outputs, in a step that saves", median(*outputs, of=saving)))
        for name in sorted(outputs, key=lambda name: median(name, of=saving), reverse=True)[:4]:
            print(line(f"  {name}", median(name, of=saving)))
    share = 100 * median(*outputs) / whole
    print(f"waiting for outputs: {share:.2f} % of a step, bar {bar:g} %: {'met' if share <= bar else 'MISSED'}")
    return int(share > bar)


def main() -> int:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="steps besides the three that warm up")
    parser.add_argument("--quick", action="store_true", help="seven steps")
    parser.add_argument("--long", action="store_true", help="long completions in micro-batches")
    parser.add_argument("--bar", type=float, default=2.0, help="percent of a step that may be waiting for outputs")
    arguments, overrides = parser.parse_known_args()
    arguments.overrides = overrides
    config = make_config(arguments)
    prepare(config.distributed)
    logging.disable(logging.WARNING)
    from agent_tunix.runs.preflight import preflight
    from agent_tunix.training.train import train

    with tempfile.TemporaryDirectory() as directory, watched() as watch:
        train(preflight(config, Path.cwd()), Path(directory) / "run")
    return report(watch, arguments.bar)


if __name__ == "__main__":
    sys.exit(main())
