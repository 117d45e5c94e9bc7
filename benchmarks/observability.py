"""Cost of observing a run: statistics, rollouts and diagnosis, compared with the training step.

    python benchmarks/observability.py
    python benchmarks/observability.py --steps 5000

Without `--steps`, the benchmark takes real steps of the tiny model, by default 64 prompts × 16 completions with five
components. After each step it times every part of the observation on that step, so all are measured under the same
load. *Here* is the time for which training waits. *In all* adds the time until the part's own thread is done, which
training may not notice. Statistics are timed with and without `training.log_reward_stats`. Figures are medians, with
their share of the median step.

`benchmarks/hot_path.py` shows how long a whole run waits for all its outputs.

With `--steps`, that many synthetic steps of the same size go through the same parts, and memory is printed ten times:
the traced size of Python's objects, and the resident size of the process. The exit status is 1 if the traced size grows
by more than `--limit` MB after the first fifth.
"""

import argparse
import dataclasses
import gc
import importlib.util
import logging
import os
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import absl.logging
import numpy as np

from agent_tunix.config.schema import Config
from agent_tunix.grpo.step import StepResult
from agent_tunix.rewards import Component, Mixture, Sample, fingerprint
from agent_tunix.rewards.conventions.plain import PlainReward
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.reporter import scoring_settings, to_stored
from agent_tunix.sampling.sampler import Completions
from agent_tunix.tracking.rollouts import RolloutWriter
from agent_tunix.training.components import build_components, make_trainer
from agent_tunix.training.metrics import StepMetrics

COMPONENTS: dict[str, dict[str, Any]] = {
    "correct": {"function": "math"},
    "tags": {"function": "format", "weight": 0.2},
    "brevity": {"function": "conciseness", "weight": 0.1},
    "numbers": {"function": "check_numbers", "weight": 0.3},
    "oracle": {"function": "exact_match", "weight": 0.0},
}
WARM_UP = 3


# --- the parts -------------------------------------------------------------------------------------------------------


class Part(Protocol):
    """Observer of steps."""

    def take(self, step: int, result: StepResult, row: dict[str, Any]) -> None:
        """Observe a step; `row` has the metrics of the parts before."""
        ...

    def settle(self) -> None:
        """Return when no work of the part is in progress."""
        ...

    def close(self) -> None:
        """Close the part."""
        ...


class Statistics:
    """Reward metrics of the row."""

    def __init__(self, mixture: Mixture, config: Config, *, detailed: bool) -> None:
        training = dataclasses.replace(config.training, log_reward_stats=detailed)
        self._metrics = StepMetrics(mixture, dataclasses.replace(config, training=training))

    def take(self, step: int, result: StepResult, row: dict[str, Any]) -> None:
        """Add the reward metrics to the row."""
        row |= self._metrics.of_rewards.measure(step, result.samples, result.scores, result.totals, result.advantages)

    def settle(self) -> None:
        """Do nothing; the part has no thread."""

    def close(self) -> None:
        """Do nothing; the part holds nothing."""


class Rollouts:
    """Writer of every completion to Parquet."""

    def __init__(self, mixture: Mixture, config: Config, directory: Path) -> None:
        self._settings = scoring_settings(config, fingerprint(mixture))
        self._writer = RolloutWriter(directory, config.rollouts, config.seed)

    def take(self, step: int, result: StepResult, row: dict[str, Any]) -> None:
        """Write the completions of the step."""
        self._writer.write(to_stored(step, result, self._settings))

    def settle(self) -> None:
        """Wait until everything is written."""
        self._writer.flush()

    def close(self) -> None:
        """Close the writer."""
        self._writer.close()


class Diagnosis:
    """Live diagnosis."""

    def __init__(self, mixture: Mixture, num_steps: int) -> None:
        from agent_tunix.workbench.diagnosis import RunContext, Watch

        self._watch = Watch(RunContext.of(mixture, written=COMPONENTS, num_steps=num_steps))

    def take(self, step: int, result: StepResult, row: dict[str, Any]) -> None:
        """Show the row and the completions to the watch."""
        from agent_tunix.workbench.diagnosis import RolloutView

        views = (RolloutView.of(sample, score) for sample, score in zip(result.samples, result.scores, strict=True))
        self._watch.observe(step, row, views)

    def settle(self) -> None:
        """Do nothing; the part has no thread."""

    def close(self) -> None:
        """Do nothing; the part holds nothing."""


def open_parts(mixture: Mixture, config: Config, directory: Path, num_steps: int) -> dict[str, Part]:
    """Return the parts that this version has, in the order of a step."""
    parts: dict[str, Part] = {
        "statistics": Statistics(mixture, config, detailed=True),
        "rollouts": Rollouts(mixture, config, directory / "rollouts"),
    }
    if importlib.util.find_spec("agent_tunix.workbench.diagnosis"):
        parts["diagnosis"] = Diagnosis(mixture, num_steps)
    return parts


# --- during real steps -----------------------------------------------------------------------------------------------


def make_config(arguments: argparse.Namespace) -> Config:
    """Return the default run with the batch and the reward of this benchmark."""
    config = Config()
    return dataclasses.replace(
        config,
        training=dataclasses.replace(
            config.training,
            batch_size=arguments.prompts,
            num_batches=arguments.measured + WARM_UP,
            reward_function=COMPONENTS,
        ),
        grpo=dataclasses.replace(config.grpo, num_generations=arguments.generations),
        rewards=dataclasses.replace(config.rewards, execution="inline"),
    )


def take_real_steps(config: Config, mixture: Mixture) -> Iterator[tuple[int, StepResult, dict[str, Any], float]]:
    """Yield the number, result, policy metrics and seconds of real steps."""
    components = build_components(config)
    trainer = make_trainer(components, mixture)
    for step in range(1, components.batches.num_steps + 1):
        started = time.perf_counter()
        batch = components.batches.batch(step)
        result = trainer.take_step(step, batch)
        seconds = time.perf_counter() - started
        yield step, result, {f"policy/{name}": value for name, value in result.policy.items()}, seconds


def measure(arguments: argparse.Namespace) -> None:
    """Print the cost of each part beside a real step."""
    config = make_config(arguments)
    mixture = preflight(config, Path.cwd()).mixture
    steps: list[float] = []
    here: dict[str, list[float]] = {}
    in_all: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        parts = open_parts(mixture, config, Path(directory), arguments.measured + WARM_UP)
        timed = {"plain statistics": Statistics(mixture, config, detailed=False), **parts}
        for step, result, row, seconds in take_real_steps(config, mixture):
            steps.append(seconds)
            for name, part in timed.items():
                started = time.perf_counter()
                part.take(step, result, row)
                here.setdefault(name, []).append(time.perf_counter() - started)
                part.settle()
                in_all.setdefault(name, []).append(time.perf_counter() - started)
        for part in timed.values():
            part.close()
    step_s = statistics.median(steps[WARM_UP:])
    completions = arguments.prompts * arguments.generations
    print(f"{len(steps) - WARM_UP} steps of {completions:,} completions under {len(COMPONENTS)} components")
    print(f"{'':<18}{'here':>12}{'of a step':>11}{'in all':>12}{'of a step':>11}")
    print(f"{'training step':<18}{1e3 * step_s:>9.2f} ms")
    for name in timed:
        print(_line(name, statistics.median(here[name][WARM_UP:]), statistics.median(in_all[name][WARM_UP:]), step_s))
    sums = [sum(statistics.median(times[name][WARM_UP:]) for name in parts) for times in (here, in_all)]
    print(_line("together", sums[0], sums[1], step_s))


def _line(name: str, here_s: float, in_all_s: float, step_s: float) -> str:
    cells = (f"{1e3 * seconds:>9.2f} ms{100 * seconds / step_s:>9.2f} %" for seconds in (here_s, in_all_s))
    return f"{name:<18}{''.join(cells)}"


# --- memory over many steps ------------------------------------------------------------------------------------------


def synthetic_mixture() -> Mixture:
    """Return a mixture of five components that return the value of a column of the sample."""

    def reader(name: str) -> Callable[[str, Mapping[str, Any]], float]:
        return lambda response, metadata: float(metadata[name])

    weights = {name: float(settings.get("weight", 1.0)) for name, settings in COMPONENTS.items()}
    return Mixture(Component(name, PlainReward(reader(name), name), weight) for name, weight in weights.items())


def synthetic_step(step: int, config: Config, mixture: Mixture) -> StepResult:
    """Return a step of random completions, different for each number."""
    rng = np.random.default_rng(step)
    G, T = config.grpo.num_generations, config.generation.max_generation_steps
    N = config.training.batch_size * G
    lengths_N, tokens_NT = rng.integers(1, T + 1, N), rng.integers(1, 500, (N, T))
    values_CN = rng.choice(9, (len(COMPONENTS), N)) / 8
    texts = [" ".join(map(str, row[:length])) for row, length in zip(tokens_NT.tolist(), lengths_N, strict=True)]
    samples = [
        Sample(
            text,
            prompt=f"Problem {row // G} of step {step}",
            columns={"answer": "4", **dict(zip(COMPONENTS, values_CN[:, row].tolist(), strict=True))},
            step=step,
            group_id=row // G,
            rollout_id=f"{step}_{row // G}_{row % G}",
            num_tokens=int(lengths_N[row]),
            tokens=tuple(tokens_NT[row, : lengths_N[row]].tolist()),
        )
        for row, text in enumerate(texts)
    ]
    scores = mixture.score(samples)
    return StepResult(
        samples=samples,
        scores=scores,
        totals=mixture.totals(scores),
        advantages=mixture.advantages(scores, G).astype(np.float32),
        completions=Completions(
            prompt_tokens=np.zeros((N, 1), int),
            prompt_lengths=np.ones(N, int),
            tokens=tokens_NT,
            lengths=lengths_N,
            ended=lengths_N < T,
            texts=texts,
            logps=np.full((N, T), -1.0, np.float32),
        ),
        policy={"kl": 0.01, "entropy": 1.0, "loss": 0.0, "clip_share": 0.0, "grad_norm": 0.1},
        finite=True,
        updates_applied=1,
        updates_skipped=0,
        seconds={},
    )


def watch_memory(arguments: argparse.Namespace) -> int:
    """Print memory ten times over the synthetic steps; return 1 if it grew too much, else 0."""
    config, mixture = make_config(arguments), synthetic_mixture()
    interval = max(arguments.steps // 10, 1)
    traced: list[float] = []
    tracemalloc.start()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        parts = open_parts(mixture, config, Path(directory), arguments.steps)
        print(f"parts: {', '.join(parts)}")
        for step in range(1, arguments.steps + 1):
            result = synthetic_step(step, config, mixture)
            row = {f"policy/{name}": value for name, value in result.policy.items()}
            for part in parts.values():
                part.take(step, result, row)
            if step % interval == 0:
                for part in parts.values():
                    part.settle()
                del result, row
                gc.collect()
                traced.append(tracemalloc.get_traced_memory()[0] / 2**20)
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
                sizes = f"traced {traced[-1]:8.2f} MB  resident {_resident_mb():8.1f} MB  peak {peak:8.1f} MB"
                print(f"step {step:>6}  {sizes}", flush=True)
        for part in parts.values():
            part.close()
    grown = traced[-1] - traced[min(1, len(traced) - 1)]
    print(f"traced memory grew by {grown:.2f} MB after step {2 * interval}")
    return int(grown > arguments.limit)


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=int, default=12, help="real steps, besides those that warm up")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--generations", type=int, default=16)
    parser.add_argument("--steps", type=int, default=0, help="synthetic steps over which memory is watched")
    parser.add_argument("--limit", type=float, default=2.0, help="MB by which traced memory may grow")
    parser.add_argument("--directory", type=Path, help="where synthetic rollouts go while it runs")
    arguments = parser.parse_args()
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    if arguments.steps:
        return watch_memory(arguments)
    measure(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
