"""Pairs from the completions of a run."""

from pathlib import Path

import numpy as np

from agent_tunix.config.compose import to_yaml
from agent_tunix.config.schema import Config, PreferConfig, RolloutsConfig
from agent_tunix.data import peek_example
from agent_tunix.errors import DataError
from agent_tunix.rewards import Outcome, Sample, Score
from agent_tunix.tracking.rollouts import RolloutWriter, ScoringSettings, StoredStep
from agent_tunix.training.preferences.from_rollouts import RolloutPairs, describe_pairs, write_pairs
from tests.raising import raises

ROW = {"question": "2+2?", "answer": "4"}


def step_of(*groups: list[tuple[str, float | None]]) -> StoredStep:
    """A step of groups of responses and rewards; a response that ends with … was cut."""
    samples, scores = [], []
    for number, group in enumerate(groups):
        for text, reward in group:
            samples.append(Sample(text, columns=ROW, group_id=number, ended=not text.endswith("…")))
            scores.append(Score(reward, outcome=Outcome.SCORED if reward is not None else Outcome.ERROR, detail="."))
    zeros = np.zeros(len(samples), np.float32)
    return StoredStep(1, samples, scores, zeros, zeros, ScoringSettings(4), len(groups))


def test_the_best_stands_against_the_worst_of_each_group() -> None:
    pairs = RolloutPairs()
    pairs.add(step_of([("b", 0.5), ("a", 1.0), ("c", 0.0), ("A", 1.0)], [("d", 0.2), ("e", 0.25)]), 0.1)
    assert pairs.rows == [{**ROW, "chosen": "a", "rejected": "c", "chosen_reward": 1.0, "rejected_reward": 0.0}]
    assert list(pairs.groups_left_out.values()) == [1]


def test_what_is_left_out_is_counted_with_its_reason() -> None:
    pairs = RolloutPairs()
    pairs.add(step_of([("a", 1.0), ("worst …", -1.0), ("b", None), (" ", -2.0)], [("c", None)]), 0.1)
    assert pairs.rows == []
    assert pairs.completions_left_out == {"cut at the length limit": 1, "not scored": 2, "empty": 1}
    assert pairs.groups_left_out == {"fewer than two usable completions": 2}


def test_a_run_gives_the_data_of_the_next(tmp_path: Path) -> None:
    run, root = tmp_path / "run", tmp_path / "new"
    run.mkdir()
    (run / "config.yaml").write_text(to_yaml(Config()))
    with RolloutWriter(run / "rollouts", RolloutsConfig(), seed=0) as writer:
        writer.write(step_of([("a", 1.0), ("b", 0.0)], [("c", 0.5), ("d", 0.5)]))
    given = Config(prefer=PreferConfig(from_rollouts=str(run)))
    config = write_pairs(given, root)
    assert [peek_example(config).columns[name] for name in ("question", "answer", "chosen", "rejected")] == [
        *ROW.values(),
        "a",
        "b",
    ]
    assert describe_pairs(root).startswith(f"1 pairs from the completions of {run}; groups left out: 1 ×")
    assert config.training.train_fraction == 0.9
    # A resumed run keeps its pairs, whatever the other run has now.
    (root / "config.yaml").touch()
    (root / "pairs.jsonl").write_text('{"kept": 1}\n')
    given.prefer.min_margin = 99
    assert write_pairs(given, root).data == config.data
    assert (root / "pairs.jsonl").read_text() == '{"kept": 1}\n'
    # So does a run that continues it in another directory.
    continued = write_pairs(given, tmp_path / "continued", root)
    assert Path(continued.data.path or "").read_text() == '{"kept": 1}\n'
    with raises(DataError, "no_rows", "prefer.min_margin=99"):
        write_pairs(given, tmp_path / "other")
