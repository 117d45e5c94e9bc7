"""Two processes compared with one on the same global batch: metrics, and time of a step by number of cores.

    python benchmarks/processes.py [--quick] [--steps 20] [--cores 1 2 4]

The processes communicate over the loopback with gloo, on CPUs. For each number of cores, to which all processes of a
run are pinned together, runs of one process and of two take turns. The benchmark prints the medians of `time/step_s`
without the first step, which compiles, their ratio, and the largest deviation of any metric of any row, relative to 1
or to the metric if it is larger. The bar is 1e-4. On one machine, a second process gains nothing over a second thread,
so the ratio is the cost of the exchange.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.training.process_runs import largest_deviation, run

BAR = 1e-4
BATCH = ("training.batch_size=16", "training.micro_batch_size=16", "grpo.num_generations=8")
LENGTH = ("generation.max_generation_steps=24", "training.eval_every_n_steps=0", "training.save_interval_steps=0")


def measure(count: int, cores: Sequence[int], steps: int, root: Path) -> list[dict[str, Any]]:
    """Return the rows of a run of `count` processes on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)  # child processes inherit it
    try:
        return run(count, root, *BATCH, *LENGTH, f"training.num_batches={steps + 1}", f"model.mesh_shape=[{count},1,1]")
    finally:
        os.sched_setaffinity(0, before)


def step_time(rows: Sequence[dict[str, Any]]) -> float:
    """Return the median seconds of a step, without the first one."""
    return statistics.median(float(row["time/step_s"]) for row in rows if row["step"] > 1)


def main() -> None:
    """Print the table; exit with status 1 if metrics deviate too far."""
    available = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 steps, on all cores alone")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2, help="turns that each takes for each number of cores")
    parser.add_argument("--cores", type=int, nargs="+")
    arguments = parser.parse_args()
    steps, rounds = (3, 1) if arguments.quick else (arguments.steps, arguments.rounds)
    numbers = arguments.cores or ([len(available)] if arguments.quick else range(1, len(available) + 1))
    print(f"{'cores':>5} {'one, s':>8} {'two, s':>8} {'two / one':>10} {'largest deviation':>18}", flush=True)
    largest = 0.0
    for number in numbers:
        times: dict[int, list[float]] = {1: [], 2: []}
        deviation = 0.0
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as directory:
                rows = {
                    count: measure(count, available[:number], steps, Path(directory) / str(count)) for count in (1, 2)
                }
            deviation = max(deviation, largest_deviation(rows[1], rows[2]))
            for count in (1, 2):
                times[count].append(step_time(rows[count]))
        one, two = (statistics.median(times[count]) for count in (1, 2))
        print(f"{number:5} {one:8.3f} {two:8.3f} {two / one:10.2f} {deviation:18.1e}", flush=True)
        largest = max(largest, deviation)
    verdict = "within" if largest < BAR else "OVER"
    print(f"largest deviation {largest:.1e}, {verdict} the bar of {BAR:.0e}")
    sys.exit(largest >= BAR)


if __name__ == "__main__":
    main()
