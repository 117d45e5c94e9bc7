"""Start-up time of a run, with a cold and a warm compilation cache, and time of the default run on two cores.

    python benchmarks/start.py [--repeats 5] [--default-run] [--cores 0,1]

The first part times `python run_training.py training.reward_function=math training.num_batches=1` with an empty
compilation cache and with a warm one, and `import tunix` alone. They alternate, each in a separate process. It prints
medians: the wall time, the time without imports and its bar, and each phase from the run's `timings.json`. The second
part runs the 60 steps of the default run on the given cores, with accuracy before and after. Its bar is 90 s.

The figures are meaningful only on an idle machine. On a virtual machine, a row shows how many cores' time the host gave
to other machines.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = [sys.executable, str(ROOT / "run_training.py"), "training.reward_function=math"]
COLD_BAR_S, WARM_BAR_S, DEFAULT_RUN_BAR_S = 8.0, 3.0, 90.0
# Least gain of greedy accuracy in the default run.
ACCURACY_GAIN_BAR = 0.2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind")
    parser.add_argument("--default-run", action="store_true", help="also the default run, on --cores")
    parser.add_argument("--cores", default="0,1", help="cores of the default run")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure_start(Path(directory), args.repeats)
        if args.default_run:
            measure_default_run(Path(directory), args.cores)


def measure_start(directory: Path, repeats: int) -> None:
    """Measure cold starts, warm starts and `import tunix` in turn."""
    warm_cache = directory / "warm"
    run_once(directory / "first", warm_cache)  # fills the cache, and the disk's
    cold, warm, imports = [], [], []
    for number in range(repeats):
        imports.append(time_import())
        cold.append(run_once(directory / f"cold_{number}", directory / f"cache_{number}"))
        warm.append(run_once(directory / f"warm_{number}", warm_cache))
    print(f"medians of {repeats}, in seconds\n")
    print(f"{'import tunix alone':<28}{statistics.median(imports):8.2f}\n")
    print(f"{'':<28}{'cold':>8}{'warm':>8}")
    for phase in dict.fromkeys(name for told in (*cold, *warm) for name in told["phases_s"]):
        print_row(phase, [median_of(runs, phase) for runs in (cold, warm)])
    print_row(
        "in all, as the shell sees it", [statistics.median(told["wall_s"] for told in runs) for runs in (cold, warm)]
    )
    beyond = [statistics.median(told["wall_s"] - told["phases_s"]["imports"] for told in runs) for runs in (cold, warm)]
    print_row("beyond imports", beyond)
    print_row("  of its bar", [beyond[0] / COLD_BAR_S, beyond[1] / WARM_BAR_S])
    print_row(
        "cores taken by others", [statistics.median(told["taken_cores"] for told in runs) for runs in (cold, warm)]
    )
    for name in ("compiled", "from_cache"):
        print_row(f"programs {name}", [statistics.median(told["programs"][name] for told in r) for r in (cold, warm)])


def measure_default_run(directory: Path, cores: str) -> None:
    """Measure the default run on some cores, with an empty compilation cache."""
    root = directory / "default"
    chosen = {int(core) for core in cores.split(",")}
    began = time.perf_counter()
    subprocess.run(
        command(root, directory / "default_cache"),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        cwd=directory,
        env=surroundings(),
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    )
    seconds = time.perf_counter() - began
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    judged = [row["eval/accuracy"] for row in rows if "eval/accuracy" in row]
    gain = judged[-1] - judged[0]
    print(f"\ndefault run of {rows[-1]['step']} steps on cores {cores}")
    print(
        f"{'wall time, s':<28}{seconds:8.1f}  {seconds / DEFAULT_RUN_BAR_S:.2f} of its bar of {DEFAULT_RUN_BAR_S:.0f} s"
    )
    print(f"{'accuracy':<28}{judged[0]:8.3f} → {judged[-1]:.3f}, a gain of {gain:.3f} (bar {ACCURACY_GAIN_BAR})")
    for phase, spent in json.loads((root / "timings.json").read_text())["phases_s"].items():
        print(f"{phase:<28}{spent:8.2f}")


def command(root: Path, cache: Path, *overrides: str) -> list[str]:
    """Return the command of a run with a directory and a compilation cache."""
    return [*PROGRAM, f"hydra.run.dir={root}", f"distributed.compilation_cache={cache}", *overrides]


def surroundings() -> dict[str, str]:
    """Return the environment without variables that would override the compilation cache, and with Python's own cache.

    With PYTHONDONTWRITEBYTECODE, each start would compile every module of a checkout again.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAX_") and name != "PYTHONDONTWRITEBYTECODE"
    }


def run_once(root: Path, cache: Path) -> dict[str, Any]:
    """Run one step; return the content of `timings.json` with `wall_s` and `taken_cores`."""
    began, taken = time.perf_counter(), taken_s()
    subprocess.run(
        command(root, cache, "training.num_batches=1"),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        cwd=root.parent,
        env=surroundings(),
    )
    wall = time.perf_counter() - began
    told: dict[str, Any] = json.loads((root / "timings.json").read_text())
    return {**told, "wall_s": wall, "taken_cores": (taken_s() - taken) / wall}


def taken_s() -> float:
    """Return the seconds of this machine's cores that its host gave to other machines since boot; 0 if unknown."""
    try:
        ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]
    except (OSError, IndexError):
        return 0.0
    return int(ticks) / os.sysconf("SC_CLK_TCK")


def time_import() -> float:
    """Return the seconds of `import tunix` in a separate process, measured inside it."""
    code = "import time; began = time.perf_counter(); import tunix; print(time.perf_counter() - began)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=surroundings())
    return float(found.stdout)


def median_of(runs: Sequence[Mapping[str, Any]], phase: str) -> float:
    """Return the median time of a phase; runs without it count as 0."""
    return statistics.median(float(told["phases_s"].get(phase, 0.0)) for told in runs)


def print_row(name: str, values: Sequence[float]) -> None:
    """Print a row of the table."""
    print(f"{name:<28}" + "".join(f"{value:8.2f}" for value in values))


if __name__ == "__main__":
    main()
