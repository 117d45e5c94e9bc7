"""Growth of each phase's time with G, the lengths, the width and the vocabulary, compared with the arithmetic.

    python benchmarks/cost.py [--repeats 5] [--only prompt width] [--quick]

Each sweep varies one size of a step of 4 prompts × 8 completions, prompts of 128 tokens, completions of 32, 2 layers of
width 256 and 2,048 words. Models are random and no completion ends early. The sizes of a sweep take turns, so a change
of the machine's speed affects all of them.

The medians of rollout, reference pass and update over all sweeps are fitted by non-negative least squares in the terms
of the algorithm: a constant; the operations (`arithmetic.py`) on prompts, on completions, in the attention of each to
each and on logits; and for the rollout its T steps, each of which reads all weights. Coefficients are printed as
rates.

For each sweep the benchmark prints the medians, the operations, and three exponents, which are slopes of logarithms
over the three largest sizes: of the time, of all operations, and of the fit, in which every term has its own rate (so
the softmax between the products of attention is accounted for). If a time's exponent exceeds the fit's by more than
0.2, the time has a term that the algorithm does not have. It is flagged, and the exit status is 1.
"""

import argparse
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import absl.logging
import numpy as np
from scipy.optimize import nnls

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.arithmetic import PASSES, Shapes, forward_terms, step_operations
from benchmarks.made_model import build, make_config, write_model
from benchmarks.phases import make_phases

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.planning.work import count_operations
from agent_tunix.policy.families import read_architecture
from agent_tunix.startup.devices import prepare

TOLERANCE = 0.2
_LARGEST = 3


@dataclass(frozen=True)
class Case:
    """Sizes of a step."""

    prompts: int = 4
    group: int = 8
    prompt: int = 128
    completion: int = 32
    width: int = 256
    words: int = 2048
    layers: int = 2

    @property
    def shapes(self) -> Shapes:
        """Shapes for `arithmetic.py`."""
        return Shapes(self.prompts, self.group, self.prompt, self.completion)


BASE = Case()
# Name → size that varies, its values, and the fixed sizes.
SWEEPS: dict[str, tuple[str, tuple[int, ...], Case]] = {
    "group": ("group", (4, 8, 16, 32, 64, 128, 256), BASE),
    # The cost of a prompt must not grow with G. With completions of one token there is no other cost.
    "group, prompt alone": ("group", (2, 4, 8, 16, 32), replace(BASE, prompt=1024, completion=1)),
    "prompt": ("prompt", (64, 128, 256, 512, 1024), BASE),
    "completion": ("completion", (16, 32, 64, 128, 256), BASE),
    "width": ("width", (128, 256, 512, 1024), BASE),
    "words": ("words", (2048, 8192, 32768, 65536), BASE),
    "prompts": ("prompts", (2, 4, 8, 16, 32), BASE),
}


@dataclass(frozen=True)
class Measured:
    """Measurements of a case: seconds and operations by phase, terms of a forward pass, and bytes that sampling reads.

    Sampling reads all weights once for each token.
    """

    case: Case
    seconds: dict[str, float]
    operations: dict[str, float]
    terms: dict[str, float]
    bytes_read: float


class Bench:
    """A prepared case: its trainer and batch, and the times of its phases."""

    def __init__(self, case: Case) -> None:
        """Make the model and run each phase once."""
        self._case = case
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary) / "model"
            write_model(directory, words=case.words, width=case.width, layers=case.layers)
            self._architecture = read_architecture(directory)
            config = make_config(
                directory, prompts=case.prompts, group=case.group, prompt_tokens=case.prompt, tokens=case.completion
            )
            learner, batch = build(config)
            self._phases = make_phases(learner, batch).run
        self._taken: dict[str, list[float]] = {name: [] for name in self._phases}
        for run in self._phases.values():
            run()

    def measure(self) -> None:
        """Run each phase once more."""
        for name, run in self._phases.items():
            started = time.perf_counter()
            run()
            self._taken[name].append(time.perf_counter() - started)

    def measured(self) -> Measured:
        """Return the medians."""
        counts = count_operations(self._architecture)
        return Measured(
            self._case,
            {name: statistics.median(taken) for name, taken in self._taken.items()},
            step_operations(self._architecture, self._case.shapes),
            forward_terms(self._architecture, self._case.shapes),
            # A weight has four bytes and takes two operations.
            bytes_read=2.0 * (counts.of_token + counts.of_logits) * (self._case.completion - 1),
        )


def measure(cases: Sequence[Case], rounds: int) -> list[Measured]:
    """Return the medians of cases that take turns."""
    benches = [Bench(case) for case in cases]
    for _ in range(rounds):
        for bench in benches:
            bench.measure()
    return [bench.measured() for bench in benches]


@dataclass(frozen=True)
class Fit:
    """Coefficients of a phase's terms, in seconds."""

    phase: str
    coefficients: dict[str, float]

    def seconds(self, one: Measured) -> float:
        """Return the predicted seconds of a case."""
        return sum(self.coefficients[name] * value for name, value in terms_of(self.phase, one).items())


def terms_of(phase: str, one: Measured) -> dict[str, float]:
    """Return the terms of a phase: operations, and for the rollout also its steps and the bytes that they read."""
    # The attention of completions to their shared prompt is a product of matrices. In sampling, attention to the own
    # tokens is a product with a vector, one row at a time, and only a sixth as fast (`breakdown.py`).
    terms = {"constant": 1.0, **{name: PASSES[phase] * value for name, value in one.terms.items()}}
    if phase == "rollout":
        terms |= {"steps": float(one.case.completion), "weights read": one.bytes_read}
    return terms


def fit(phase: str, found: Sequence[Measured]) -> Fit:
    """Fit the terms of a phase over all sweeps by least squares, print the fit and return it."""
    names = list(terms_of(phase, found[0]))
    seconds = np.array([one.seconds[phase] for one in found])
    # Divide by the times, so that all relative errors have equal weight.
    matrix = np.array([list(terms_of(phase, one).values()) for one in found]) / seconds[:, None]
    # A term that no case has is 0 everywhere.
    scale = np.maximum(matrix.max(axis=0), np.finfo(float).tiny)
    coefficients = nnls(matrix / scale, np.ones(len(found)))[0] / scale
    off = np.abs(matrix @ coefficients - 1)
    said = []
    for name, value in zip(names, coefficients, strict=True):
        if name in ("constant", "steps"):
            said.append(f"{name} {value * 1e3:.2f} ms")
        else:
            unit = "GB/s" if name == "weights read" else "GFLOP/s"
            said.append(f"{name} {1e-9 / value:.0f} {unit}" if value > 0 else f"{name} nothing")
    print(f"{phase}: {', '.join(said)}")
    print(f"  off by {np.median(off):.0%} (median), {off.max():.0%} (largest)")
    return Fit(phase, dict(zip(names, coefficients, strict=True)))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of logarithms over the largest sizes."""
    return float(np.polyfit(np.log(sizes[-_LARGEST:]), np.log(values[-_LARGEST:]), 1)[0])


def describe(name: str, size: str, found: Sequence[Measured], fits: dict[str, Fit]) -> list[str]:
    """Print a sweep, and return a line for each phase that grows faster than its terms."""
    values = [getattr(one.case, size) for one in found]
    print(f"\n{name}: " + "".join(f"{phase:>26}" for phase in PASSES))
    for value, one in zip(values, found, strict=True):
        cells = [f"{one.seconds[p] * 1e3:9.1f} ms {one.operations[p] / 1e9:8.2f} GFLOP" for p in PASSES]
        print(f"{value:>8}  " + "  ".join(cells))
    worse = []
    cells = []
    for phase in PASSES:
        time_grows = exponent(values, [one.seconds[phase] for one in found])
        needed = exponent(values, [one.operations[phase] for one in found])
        fitted = exponent(values, [fits[phase].seconds(one) for one in found])
        cells.append(f"{time_grows:.2f}; {needed:.2f}; {fitted:.2f}")
        if time_grows > fitted + TOLERANCE:
            worse.append(f"{name}: {phase} grows with the power {time_grows:.2f}, its terms with {fitted:.2f}")
    print("exponents " + "  ".join(f"{cell:>26}" for cell in cells))
    return worse


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=list(SWEEPS), default=list(SWEEPS))
    parser.add_argument("--quick", action="store_true", help="leave out the extreme sizes of each sweep")
    arguments = parser.parse_args()
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.disable(logging.WARNING)
    # The same setup as a run.
    prepare(DistributedConfig(compilation_cache=None))
    sweeps: dict[str, list[Measured]] = {}
    for name in arguments.only:
        size, values, base = SWEEPS[name]
        cases = [replace(base, **{size: value}) for value in (values[1:-1] if arguments.quick else values)]
        sweeps[name] = measure(cases, 2 if arguments.quick else arguments.repeats)
    everything = [one for found in sweeps.values() for one in found]
    fits = {phase: fit(phase, everything) for phase in PASSES}
    worse = [line for name, found in sweeps.items() for line in describe(name, SWEEPS[name][0], found, fits)]
    print("\nworse than the terms of the algorithm: " + ("; ".join(worse) if worse else "nothing"))
    raise SystemExit(1 if worse else 0)


if __name__ == "__main__":
    main()
