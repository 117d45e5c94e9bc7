"""Deliberately sick runs on the tiny model, each with the finding that must come first; and healthy ones.

`python -m tests.training.sick_runs [NAME…] [--seed N] [--keep DIR] [--check]` runs some and prints what was found.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir

from agent_tunix.config.compose import find_conf_directory, register_schema, to_typed
from agent_tunix.config.schema import Config
from agent_tunix.runs.preflight import preflight
from agent_tunix.tracking import read_findings
from agent_tunix.training.train import train
from agent_tunix.workbench.diagnosis import Finding, Severity

REWARDS = Path(__file__).with_name("sick_rewards.py")
SETTINGS = (
    "training.batch_size=8",
    "training.eval_every_n_steps=10",
    "training.save_interval_steps=0",
    "evaluation.num_samples=64",
    "evaluation.batch_size=64",
    "rewards.execution=inline",
    "rollouts.share=0",
    "tracking.tensorboard=false",
    "tracking.progress=none",
)


@dataclass(frozen=True)
class Case:
    """A run, and the finding that must come first; None for a healthy run, which has none above info."""

    name: str
    first: str | None
    steps: int
    overrides: tuple[str, ...]

    def config(self, seed: int = 0) -> Config:
        """The composed configuration."""
        return compose_config([*SETTINGS, f"training.num_batches={self.steps}", f"seed={seed}", *self.overrides])


def compose_config(overrides: list[str]) -> Config:
    """The configuration of a run, from the shipped files."""
    register_schema()
    with initialize_config_dir(str(find_conf_directory()), version_base=None):
        return to_typed(compose("config", overrides))


def _reward(name: str) -> str:
    return f"'{REWARDS}:{name}'"


def _pays(name: str) -> str:
    return f"training.reward_function={REWARDS}:{name}"


SICK = (
    Case("constant reward", "always_one", 6, (_pays("one"),)),
    Case("nothing is paid for", "always_zero", 6, (_pays("zero"),)),
    Case("pays for length", "length_hacking", 40, (_pays("tokens"), "optimizer.learning_rate=1.0e-3")),
    Case("pays for tags alone", "format_only_learning", 40, (_pays("bare_tags"), "optimizer.learning_rate=2.0e-4")),
    Case(
        "learning rate that collapses the policy",
        "reward_collapse",
        8,
        ("training.reward_function=math", "optimizer.learning_rate=0.1", "grpo.beta=0"),
    ),
    Case("learning rate far too high", "kl_runaway", 8, ("optimizer.learning_rate=0.03",)),
    Case(
        "gate that nobody passes",
        "gate_never_opens",
        8,
        (
            f"training.reward_function={{correct: math, praised: {{function: {_reward('praised')}, weight: 0}},"
            " brief: {function: conciseness, weight: 0.5, requires: {praised: 1.0}}}",
        ),
    ),
    Case("verifier that fails half the time", "verifier_errors", 4, (_pays("flaky"), "rewards.max_failure_rate=0.95")),
    Case("reward that contradicts itself", "noisy", 6, (_pays("mood"),)),
    Case(
        "one component drowns the other",
        "component_dominance",
        6,
        (f"training.reward_function={{correct: math, long: {_reward('characters')}}}",),
    ),
    Case("completions that are cut", "truncation", 5, ("generation.max_generation_steps=6",)),
    Case(
        "schedule that is over before learning starts",
        "schedule_over_too_soon",
        16,
        (
            "training.reward_function={correct: math, tags: {function: format,"
            " weight: {from: 0.5, to: 0.0, steps: [1, 4]}}}",
            "optimizer.warmup_ratio=0.5",
        ),
    ),
    Case(
        "proxy against its oracle",
        "oracle_down",
        40,
        (
            f"training.reward_function={{round: {_reward('round_number')}, oracle: {{function: math, weight: 0}}}}",
            "optimizer.learning_rate=2.0e-4",
        ),
    ),
    Case("hardly ever paid", "sparse", 7, (_pays("lottery"),)),
    Case("all about as good", "clustered", 7, (_pays("indifferent"),)),
    Case("no two completions differ", "dead_groups", 7, ("generation.temperature=0.01",)),
)

HEALTHY = (
    Case("math", None, 40, ("training.reward_function=math",)),
    Case("math and format", None, 40, ("reward=math_and_format",)),
    Case("careful math", None, 40, ("reward=careful_math",)),
    Case(
        "cosine length",
        None,
        40,
        ("training.reward_function=cosine_length", "rewards.args.cosine_length.max_tokens=32"),
    ),
    Case("a reward of a user's own", None, 40, (_pays("graded"),)),
)

CASES = {case.name: case for case in (*SICK, *HEALTHY)}


def run_case(case: Case, directory: Path, seed: int = 0) -> list[Finding]:
    """Train in a new directory; what was found live, in order."""
    train(preflight(case.config(seed), directory), directory / "run")
    return read_findings(directory / "run" / "findings.jsonl")


def check_case(case: Case, findings: list[Finding]) -> None:
    """Check that the run was diagnosed as it must be.

    Raises:
        AssertionError: It was not; the message lists what was found.
    """
    found = [f"{finding.title} at step {finding.step}" for finding in findings]
    if case.first is None:
        assert all(finding.severity is Severity.INFO for finding in findings), f"{case.name}: {found}"
    else:
        assert findings, f"{case.name}: nothing was found"
        assert findings[0].name == case.first, f"{case.name}: {found}"
        assert findings[0].severity is not Severity.INFO, f"{case.name}: {found}"


def main() -> None:
    """Run cases and print their findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="Leave the runs here.")
    parser.add_argument("--check", action="store_true", help="Fail where a run is not diagnosed as it must be.")
    options = parser.parse_args()
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory() as directory:
            place = options.keep / f"{name} {options.seed}" if options.keep else Path(directory)
            findings = run_case(CASES[name], place, options.seed)
        found = ", ".join(f"{f.title} ({f.severity}, step {f.step})" for f in findings) or "nothing"
        print(f"{name:45} seed {options.seed}: {found}", flush=True)
        if options.check:
            check_case(CASES[name], findings)


if __name__ == "__main__":
    main()
