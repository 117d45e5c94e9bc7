import numpy as np
import pytest

from agent_tunix.rewards import Mixture
from agent_tunix.workbench.replay import repeat
from tests.rewards.support import by_column, component
from tests.workbench.replay.support import G, record

ROWS = [{"a": index / 10} for index in range(G)]


def test_a_steady_reward_has_no_noise() -> None:
    recorded = [record(Mixture([by_column("a")]), 1, ROWS)]
    repeats = repeat([Mixture([by_column("a")]) for _ in range(3)], recorded, [], num_generations=G)
    assert repeats.total.own_std == repeats.total.unsteady == repeats.total.noise_share == repeats.flips == 0.0
    assert repeats.total.group_std == pytest.approx(np.std(range(G), ddof=1) / 10)
    assert (repeats.repeats, repeats.completions) == (3, G)


def test_noise_is_told_from_the_spread_within_groups() -> None:
    def shifted(shift: float) -> Mixture:
        return Mixture([component("a", lambda metadata, response="": metadata["a"] + shift)])

    recorded = [record(Mixture([by_column("a")]), 1, ROWS)]
    repeats = repeat([shifted(0.0), shifted(1.0)], recorded, [], num_generations=G)
    assert repeats.total.own_std == pytest.approx(np.sqrt(0.5))
    assert repeats.total.unsteady == 1.0
    assert repeats.flips == 0.0


def test_a_reward_that_is_noise_alone_has_no_spread_within_groups() -> None:
    generator = np.random.default_rng(0)

    def noise(metadata: dict[str, float], response: str = "") -> float:
        return float(generator.normal())

    recorded = [record(Mixture([by_column("a")]), step, ROWS) for step in range(1, 400)]
    repeats = repeat([Mixture([component("a", noise)]) for _ in range(2)], recorded, [], num_generations=G)
    assert repeats.total.noise_share is not None
    assert repeats.total.noise_share > 0.95


def test_scorings_without_a_value_are_counted() -> None:
    def sometimes(metadata: dict[str, float], response: str = "") -> float | None:
        return None if metadata["a"] == 0 else metadata["a"]

    repeats = repeat(
        [Mixture([component("a", sometimes)]) for _ in range(2)],
        [record(Mixture([by_column("a")]), 1, ROWS)],
        [],
        num_generations=G,
    )
    assert repeats.components["a"].failed == 1 / G


def test_one_scoring_is_no_repeat() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        repeat([Mixture([by_column("a")])], [], [], num_generations=G)
