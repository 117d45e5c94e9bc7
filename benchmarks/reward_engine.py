"""Overhead of the reward engine over a bare call of the function.

    python benchmarks/reward_engine.py [--completions 1024] [--repeats 7] [--uploads]

Bare calls and ours alternate in one process, so other load on the machine affects both. The benchmark prints medians.
Each line ends with its bar:

- the overhead per completion of a trivial function, in this process and in workers, for one reward and for a mixture
  with that one component;
- an async reward that sleeps 50 ms, over 256 completions, 64 at once, compared with the ideal 0.2 s;
- a reward that keeps a core busy, on one worker per core compared with a single worker.

`--uploads` measures instead the cost of isolating uploaded code. One worker runs the same function as a local file and
as an upload. The figures are the times until the first score, for a fresh worker, and for each completion.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from agent_tunix.rewards import Sample, resolve_reward
from agent_tunix.rewards.execution import make_runner
from agent_tunix.rewards.sample import Reward
from agent_tunix.rewards.uploaded import UploadedSource

CODE = """
import asyncio, time

def trivial(response, answer=""):
    return float(len(response))

def busy(response):
    end = time.process_time() + 0.02
    while time.process_time() < end:
        pass
    return 1.0

async def sleepy(args, sample):
    await asyncio.sleep(0.05)
    return 1.0
"""
UPLOAD = """
def reward(completions, **kwargs):
    return [float(len(completion)) for completion in completions]
"""
ASYNC_COMPLETIONS, ASYNC_LIMIT, ASYNC_SLEEP_S = 256, 64, 0.05


def make_samples(count: int) -> list[Sample]:
    """Return completions of about the length that a small model writes."""
    text = "<reasoning>" + "so much and so much make " * 8 + "</reasoning><answer>4</answer>"
    return [
        Sample(
            text,
            prompt="How much is it?",
            messages=({"role": "user", "content": "How much is it?"}, {"role": "assistant", "content": text}),
            columns={"question": "How much is it?", "answer": "4"},
            step=1,
            max_steps=100,
            group_id=number // 8,
            rollout_id=f"1_{number // 8}_{number % 8}",
        )
        for number in range(count)
    ]


def seconds(action: Callable[[], object]) -> float:
    """Return the wall time of an action."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def alternate(repeats: int, *actions: Callable[[], object]) -> list[list[float]]:
    """Return the wall times of each action, in turns after one round to warm up."""
    rounds = [[seconds(action) for action in actions] for _ in range(repeats + 1)][1:]
    return [list(times) for times in zip(*rounds, strict=True)]


def measure_overhead(directory: Path, samples: Sequence[Sample], execution: str, repeats: int) -> tuple[float, float]:
    """Return microseconds per completion over the bare function: of a reward alone, and of a mixture with it."""
    mixture = resolve_reward(f"{directory}/rewards.py:trivial")
    alone: Reward = mixture.components[0].reward
    function = alone.function  # type: ignore[attr-defined]

    def bare() -> list[float]:
        return [function(sample.response, sample.columns["answer"]) for sample in samples]

    with make_runner(alone, execution) as one, make_runner(mixture, execution) as mixed:
        times = alternate(repeats, bare, lambda: one.reward.score(samples), lambda: mixed.reward.score(samples))
    plain, single, whole = (statistics.median(each) for each in times)
    return (single - plain) / len(samples) * 1e6, (whole - plain) / len(samples) * 1e6


def measure_async(directory: Path, execution: str, repeats: int) -> float:
    """Return the wall time divided by the ideal one."""
    reward = resolve_reward(f"{directory}/rewards.py:sleepy").components[0].reward
    samples = make_samples(ASYNC_COMPLETIONS)
    ideal = ASYNC_COMPLETIONS / ASYNC_LIMIT * ASYNC_SLEEP_S
    with make_runner(reward, execution, max_concurrency=ASYNC_LIMIT) as runner:
        (times,) = alternate(repeats, lambda: runner.reward.score(samples))
    return statistics.median(times) / ideal


def measure_scaling(directory: Path, repeats: int) -> float:
    """Return the throughput of one worker per core, divided by that of one worker and by the number of cores."""
    reward = resolve_reward(f"{directory}/rewards.py:busy").components[0].reward
    cores = len(os.sched_getaffinity(0))
    samples = make_samples(16 * cores)
    with (
        make_runner(reward, "process", num_workers=1) as one,
        make_runner(reward, "process", num_workers=cores) as many,
    ):
        single, several = alternate(repeats, lambda: one.reward.score(samples), lambda: many.reward.score(samples))
    return statistics.median(single) / statistics.median(several) / cores


def measure_isolation(directory: Path, samples: Sequence[Sample], repeats: int) -> None:
    """Print the cost of an upload and of the same file without isolation."""
    file = directory / "upload.py"
    file.write_text(UPLOAD, encoding="utf-8")
    upload = UploadedSource("rf_benchmark", "upload", "trl", 1, UPLOAD.encode(), "here")
    rewards: list[Reward] = [
        resolve_reward(f"{file}:reward", completions="text").components[0].reward,
        resolve_reward("rf_benchmark", fetch=lambda _: upload, completions="text").components[0].reward,
    ]

    def start(reward: Reward) -> None:
        with make_runner(reward, "process", num_workers=1) as runner:
            runner.reward.score(samples[:1])

    starts = alternate(repeats, *(partial(start, reward) for reward in rewards))
    with (
        make_runner(rewards[0], "process", num_workers=1, recycle_after=1) as own,
        make_runner(rewards[1], "process", num_workers=1, recycle_after=1) as uploaded,
    ):
        # Each call waits for the worker that replaces the one of the previous call.
        both = (own.reward, uploaded.reward)
        fresh = alternate(10 * repeats, *(partial(reward.score, samples[:1]) for reward in both))
    with (
        make_runner(rewards[0], "process", num_workers=1) as own,
        make_runner(rewards[1], "process", num_workers=1) as uploaded,
    ):
        calls = alternate(repeats, *(partial(reward.score, samples) for reward in (own.reward, uploaded.reward)))
    for name, times, scale, unit in (
        ("from nothing to a score", starts, 1e3, "ms"),
        ("a fresh worker and a score", fresh, 1e3, "ms"),
        ("a completion", calls, 1e6 / len(samples), "µs"),
    ):
        own_s, uploaded_s = (statistics.median(each) for each in times)
        print(f"{name:27} own {own_s * scale:8.1f} {unit}; uploaded, isolated {uploaded_s * scale:8.1f} {unit}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--uploads", action="store_true", help="what isolating uploaded code costs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if arguments.uploads:
            measure_isolation(directory, make_samples(arguments.completions), arguments.repeats)
            return
        (directory / "rewards.py").write_text(CODE, encoding="utf-8")
        samples = make_samples(arguments.completions)
        for execution, bar in (("inline", 20), ("process", 200)):
            single, whole = measure_overhead(directory, samples, execution, arguments.repeats)
            print(
                f"overhead a completion, {execution:8} {single:7.1f} µs; in a mixture {whole:7.1f} µs (bar: {bar} µs)"
            )
        for execution in ("inline", "process"):
            ratio = measure_async(directory, execution, arguments.repeats)
            print(f"async,    {execution:8} {ratio:7.2f} × the ideal time (bar: 1.3 ×)")
        scaling = measure_scaling(directory, 3)
        print(f"busy,     process  {scaling:7.2f} × the throughput of one worker, for each core (bar: 0.75 ×)")


if __name__ == "__main__":
    main()
