"""How the time of each phase of a step grows with G, the lengths, the width and the vocabulary, against the arithmetic.

    python benchmarks/cost.py [--repeats 5] [--only prompt width] [--quick]

One size at a time is varied around a step of 4 prompts × 8 completions, prompts of 128 tokens, completions of 32,
2 layers of width 256 and 2,048 words; models are made on the spot and nothing ends early. The sizes of a
sweep take turns, so that a machine whose speed changes changes it for all.

The medians of rollout, reference pass and update over all sweeps together are fitted by least squares, with
coefficients at least 0, in the terms that the algorithm has: a constant, the operations (`arithmetic.py`) on prompts,
on completions, in the attention of each to each and on logits, and for the rollout its T steps, each of which reads all
weights. A coefficient is printed as the rate that it means.

For each sweep are printed the medians beside the operations, and three exponents, the slopes of logarithms over the
three largest sizes: of the time, of all operations, and of the fit, in which every term has the rate of its own, as the
softmax between attention's products has. A time whose exponent is above the fit's by more than 0.2 has a term that the
algorithm has not: it is flagged, and the status is 1.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import absl.logging
import numpy as np
from arithmetic import PASSES, Shapes, forward_terms, step_operations
from made_model import build, make_config, write_model
from phases import make_phases
from scipy.optimize import nnls

from agent_tunix.config.schema import DistributedConfig
from agent_tunix.planning.work import count_operations
from agent_tunix.policy.families import read_architecture
from agent_tunix.startup.devices import prepare

TOLERANCE = 0.2
_LARGEST = 3


@dataclass(frozen=True)
class Case:
    """The sizes of a step."""

    prompts: int = 4
    group: int = 8
    prompt: int = 128
    completion: int = 32
    width: int = 256
    words: int = 2048
    layers: int = 2

    @property
    def shapes(self) -> Shapes:
        """What the arithmetic is counted from."""
        return Shapes(self.prompts, self.group, self.prompt, self.completion)


BASE = Case()
# Name → the size that is varied, its values, and what is fixed.
SWEEPS: dict[str, tuple[str, tuple[int, ...], Case]] = {
    "group": ("group", (4, 8, 16, 32, 64, 128, 256), BASE),
    # What a prompt costs must not grow with G; completions of one token leave nothing else.
    "group, prompt alone": ("group", (2, 4, 8, 16, 32), replace(BASE, prompt=1024, completion=1)),
    "prompt": ("prompt", (64, 128, 256, 512, 1024), BASE),
    "completion": ("completion", (16, 32, 64, 128, 256), BASE),
    "width": ("width", (128, 256, 512, 1024), BASE),
    "words": ("words", (2048, 8192, 32768, 65536), BASE),
    "prompts": ("prompts", (2, 4, 8, 16, 32), BASE),
}


@dataclass(frozen=True)
class Measured:
    """A case, seconds and operations of each phase, the terms of a forward pass, and the bytes that sampling reads.

    These are all weights, once for each token.
    """

    case: Case
    seconds: dict[str, float]
    operations: dict[str, float]
    terms: dict[str, float]
    bytes_read: float


class Bench:
    """A case made ready: its learner and batch, and what each phase took so far."""

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
            self._phases = make_phases(learner, batch.token_ids, config).run
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
        """Medians."""
        counts = count_operations(self._architecture)
        return Measured(
            self._case,
            {name: statistics.median(taken) for name, taken in self._taken.items()},
            step_operations(self._architecture, self._case.shapes),
            forward_terms(self._architecture, self._case.shapes),
            # Two operations for each weight of four bytes.
            bytes_read=2.0 * (counts.of_token + counts.of_logits) * (self._case.completion - 1),
        )


def measure(cases: Sequence[Case], rounds: int) -> list[Measured]:
    """Medians of cases that take turns."""
    benches = [Bench(case) for case in cases]
    for _ in range(rounds):
        for bench in benches:
            bench.measure()
    return [bench.measured() for bench in benches]


@dataclass(frozen=True)
class Fit:
    """Seconds of a phase, for each of its terms."""

    phase: str
    coefficients: dict[str, float]

    def seconds(self, one: Measured) -> float:
        """What the terms of a case add up to."""
        return sum(self.coefficients[name] * value for name, value in terms_of(self.phase, one).items())


def terms_of(phase: str, one: Measured) -> dict[str, float]:
    """What a phase may grow with: operations, and for the rollout its steps and the bytes they read."""
    # A completion's attention to its prompt, shared with others, is a product of matrices; that to its own tokens is in
    # sampling a product of a vector, a row at a time, and a sixth as fast (`breakdown.py`).
    terms = {"constant": 1.0, **{name: PASSES[phase] * value for name, value in one.terms.items()}}
    if phase == "rollout":
        terms |= {"steps": float(one.case.completion), "weights read": one.bytes_read}
    return terms


def fit(phase: str, found: Sequence[Measured]) -> Fit:
    """Least squares over all sweeps; printed."""
    names = list(terms_of(phase, found[0]))
    seconds = np.array([one.seconds[phase] for one in found])
    # Divided by the times, so that relative errors count alike.
    matrix = np.array([list(terms_of(phase, one).values()) for one in found]) / seconds[:, None]
    # A term that none of the cases has is 0 everywhere.
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
    """The slope of logarithms over the largest sizes."""
    return float(np.polyfit(np.log(sizes[-_LARGEST:]), np.log(values[-_LARGEST:]), 1)[0])


def describe(name: str, size: str, found: Sequence[Measured], fits: dict[str, Fit]) -> list[str]:
    """Print a sweep; what of it is worse than the algorithm's terms."""
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
    # As the program itself does.
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
