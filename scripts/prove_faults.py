"""The proof of faulty rewards, which `scripts/proofs.py` runs: many batches of faults, with every score checked."""

import random
from collections import Counter
from typing import Any

from tests.rewards.execution.faults import CONVENTIONS, FAULTS, MEMORY_MB, check_score, resolve_faulty, samples_of
from tests.rewards.execution.leftovers import check_nothing_left, take_stock, workers_and_descendants

from agent_tunix.rewards.execution import make_runner

COMPLETIONS = 8
MOST_FAULTS = 2
TIMEOUT_S = 2.0


def prove_faults(num_batches: int, seed: int = 0) -> dict[str, Any]:
    """Score batches sampled from the fault table × the conventions, in sequence on the same workers.

    Args:
        num_batches: Total number, divided among the conventions.
        seed: Seed of the sampling.

    Returns:
        The count of each outcome, and `processes`, the largest number of processes after a batch.

    Raises:
        AssertionError: A score was not the documented one, or something was left behind.
    """
    rng = random.Random(seed)
    before = take_stock()
    met: Counter[str] = Counter()
    most = 0
    for number, convention in enumerate(CONVENTIONS):
        share = num_batches // len(CONVENTIONS) + (number < num_batches % len(CONVENTIONS))
        with make_runner(
            resolve_faulty(convention), "process", timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB, num_workers=2
        ) as runner:
            for _ in range(share):
                responses = ["x" * rng.randint(1, 40) for _ in range(COMPLETIONS)]
                for _ in range(rng.randint(0, MOST_FAULTS)):
                    responses[rng.randrange(COMPLETIONS)] = rng.choice(list(FAULTS))
                for response, score in zip(responses, runner.reward.score(samples_of(responses)), strict=True):
                    met[score.outcome.value] += 1
                    check_score(score, response, convention)
                most = max(most, len(workers_and_descendants()))
        check_nothing_left(before)
    return {**met, "processes": most}
