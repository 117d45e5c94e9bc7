"""The groups that are kept and replayed, against a plain version of the rules, and their files in a checkpoint."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_tunix.config.checks import check
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.errors import ConfigError
from agent_tunix.grpo.dynamic_sampling import Scored, fill_places
from agent_tunix.grpo.replay_buffer import MAX_USES, ReplayBuffer
from agent_tunix.rewards import Component, Mixture, Outcome, Sample, Score
from agent_tunix.rewards.mixture.schedules import Schedule
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.samples import make_samples
from tests.raising import raises
from tests.training.support import small_run

G, P, T = 4, 3, 5


def scored(step: int, prompts: list[int], totals: Sequence[Sequence[float]], first_group: int = 0) -> Scored:
    """Groups of a step; the text of a completion and its first token tell where it was sampled."""
    N = len(prompts) * G
    numbers = np.arange(N) + 100 * step
    completions = Completions(
        prompt_tokens=np.repeat([[0, 1, prompt] for prompt in prompts], G, axis=0).astype(np.int32),
        prompt_lengths=np.full(N, 2, np.int32),
        tokens=np.repeat(numbers[:, None], T, axis=1).astype(np.int32),
        lengths=np.full(N, T, np.int32),
        ended=np.ones(N, np.bool_),
        texts=[f"completion {number}" for number in numbers],
        logps=(-numbers[:, None] / 7 * np.ones(T)).astype(np.float32),
    )
    names = [f"prompt {prompt}" for prompt in prompts]
    messages = [[{"role": "user", "content": name}] for name in names]
    batch = PromptBatch(names, messages, [[1, prompt] for prompt in prompts], [{"answer": name} for name in names])
    samples = make_samples(
        batch, completions, format="", num_generations=G, step=step, max_steps=9, first_group=first_group
    )
    values = np.array(totals, np.float64).reshape(-1)
    scores = [
        Score(
            None if np.isnan(value) else value, {"own": float(value)}, parts={"own": Score(value, extras={"n": (1, 2)})}
        )
        if not np.isnan(value)
        else Score.failed(Outcome.ERROR, "no")
        for value in values.tolist()
    ]
    return Scored(completions, samples, scores, values, values)


def buffer_of(limit: int = 4, max_age: int = 3, seed: int = 5) -> ReplayBuffer:
    return ReplayBuffer(seed, limit, max_age, G)


def take(buffer: ReplayBuffer, step: int, *rounds: Scored) -> tuple[Scored, list[int]]:
    """A step of the buffer."""
    batch, replayed, buffer.groups = buffer.fill_places(step, rounds, fill_places(rounds, G))
    return batch, replayed


HARD, HARDER, EASY, SOLVED, WRONG = [1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]


def test_the_groups_that_are_kept_and_replayed_are_those_of_the_rules() -> None:
    chance, buffer = np.random.default_rng(0), buffer_of(limit=3, max_age=4)
    kept: list[dict[str, Any]] = []
    num_replayed = 0
    for step in range(1, 60):
        rounds, first = [], 0
        for _ in range(chance.integers(1, 3)):
            prompts = chance.choice(12, 4, replace=False).tolist()
            totals = [[float(x) for x in chance.random(G) < chance.choice([0.0, 0.3, 0.6, 1.0])] for _ in prompts]
            rounds.append(scored(step, prompts, totals, first))
            first += 4
        batch, replayed = take(buffer, step, *rounds)
        # The same in lists and dictionaries.
        sampled = [
            {"prompt": int(r.completions.prompt_tokens[n * G, -1]), "values": r.totals[n * G : n * G + G].tolist()}
            for r in rounds
            for n in range(4)
        ]
        alive = [len(set(group["values"])) > 1 for group in sampled]

        def is_out(old: dict[str, Any], sampled: Any = sampled, alive: Any = alive) -> bool:
            return any(
                group["prompt"] == old["prompt"] and (lives or min(group["values"]) >= max(old["values"]))
                for group, lives in zip(sampled, alive, strict=True)
            )

        usable = [old for old in kept if step - old["step"] <= 4 and not is_out(old)]
        num_dead = max(0, 4 - sum(alive))
        drawn = [usable[n] for n in np.random.default_rng([5, step]).permutation(len(usable))[:num_dead]]
        of_batch = [batch.samples[row].prompt for row in replayed[::G]]
        assert of_batch == [f"prompt {old['prompt']}" for old in drawn]
        num_replayed += len(drawn)
        for old in drawn:
            old["uses"] += 1
        fresh = [
            {**group, "step": step, "uses": 0}
            for group, lives in zip(sampled, alive, strict=True)
            if lives and sum(group["values"]) <= 2
        ]
        usable = [old for old in usable + fresh if old["uses"] < MAX_USES and step + 1 - old["step"] <= 4]
        kept = []
        for old in sorted(usable, key=lambda old: (sum(old["values"]), -old["step"])):
            if old["prompt"] not in [other["prompt"] for other in kept]:
                kept.append(old)
        kept = kept[:3]
        assert [(g.step, int(g.scored.completions.prompt_tokens[0, -1]), g.uses) for g in buffer.groups] == [
            (old["step"], old["prompt"], old["uses"]) for old in kept
        ]
    assert num_replayed > 20


def test_a_replayed_group_takes_the_place_of_a_dead_one_with_all_that_was_sampled() -> None:
    buffer = buffer_of()
    first, second = scored(1, [1, 2], [HARD, SOLVED]), scored(2, [3, 4], [WRONG, EASY])
    take(buffer, 1, first)
    batch, replayed = take(buffer, 2, second)
    assert replayed == [0, 1, 2, 3]
    for name in ("prompt_tokens", "tokens", "lengths", "logps", "texts"):
        np.testing.assert_array_equal(getattr(batch.completions, name)[:G], getattr(first.completions, name)[:G])
        np.testing.assert_array_equal(getattr(batch.completions, name)[G:], getattr(second.completions, name)[G:])
    assert batch.totals.tolist() == [*HARD, *EASY]
    assert [sample.rollout_id for sample in batch.samples[:G]] == [f"2_0_{member}" for member in range(G)]
    assert [sample.step for sample in batch.samples] == [1] * G + [2] * G
    assert [sample.index for sample in batch.samples] == list(range(2 * G))


@pytest.mark.parametrize(
    ("values", "is_kept"),
    [
        (HARD, True),
        (HARDER, True),
        (EASY, False),
        (SOLVED, False),
        ([3.0, 3.1, 3.2, 9.0], True),
        ([3.0, 8.8, 8.9, 9.0], False),
        ([1.0, 0.0, np.nan, np.nan], True),
        ([1.0, np.nan, np.nan, np.nan], False),
    ],
)
def test_living_groups_are_kept_if_few_of_their_completions_are_better(values: list[float], is_kept: bool) -> None:
    buffer = buffer_of()
    take(buffer, 1, scored(1, [1], [values]))
    assert len(buffer.groups) == is_kept


@pytest.mark.parametrize(("now", "is_used"), [(WRONG, True), (SOLVED, False), (EASY, False)])
def test_a_prompt_that_was_solved_or_lives_again_is_not_replayed(now: list[float], is_used: bool) -> None:
    buffer = buffer_of()
    take(buffer, 1, scored(1, [1], [HARD]))
    _, replayed = take(buffer, 2, scored(2, [1, 2], [now, WRONG]))
    assert bool(replayed) == is_used


def test_rows_with_one_prompt_are_problems_of_their_own() -> None:
    buffer, first = buffer_of(), scored(1, [1, 1], [HARD, HARDER])
    for row in range(G, 2 * G):
        first.samples[row].columns["answer"] = "another"  # type: ignore[index]
    take(buffer, 1, first)
    assert len(buffer.groups) == 2
    _, replayed = take(buffer, 2, scored(2, [1, 2], [SOLVED, WRONG]))
    assert replayed
    assert [dict(group.scored.samples[0].columns) for group in buffer.groups] == [{"answer": "another"}]


def test_groups_leave_by_age_and_by_use() -> None:
    buffer = buffer_of(max_age=2)
    take(buffer, 1, scored(1, [1], [HARD]))
    take(buffer, 2, scored(2, [2], [EASY]))
    assert len(buffer.groups) == 1
    take(buffer, 3, scored(3, [3], [EASY]))
    assert not buffer.groups
    buffer = buffer_of(max_age=9)
    take(buffer, 1, scored(1, [1], [HARD]))
    uses = [len(take(buffer, step, scored(step, [step, 9], [WRONG, WRONG]))[1]) // G for step in (2, 3, 4)]
    assert uses == [1, 1, 0]


def test_a_step_that_is_taken_again_changes_nothing() -> None:
    buffer = buffer_of()
    take(buffer, 1, scored(1, [1], [HARD]))
    before, rounds = buffer.groups, [scored(2, [2], [WRONG])]
    one, _, _ = buffer.fill_places(2, rounds, rounds[0])
    other, _, _ = buffer.fill_places(2, rounds, rounds[0])
    assert buffer.groups == before
    assert one.samples == other.samples


def stored(buffer: ReplayBuffer, directory: Path, made_of: object = "same") -> ReplayBuffer:
    """The buffer after it went through a checkpoint."""
    for path, content in buffer.files("same")().items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(content)
    loaded = buffer_of()
    loaded.load(directory, made_of)
    return loaded


def test_a_checkpoint_restores_the_groups(tmp_path: Path) -> None:
    buffer = buffer_of()
    take(buffer, 1, scored(1, [1, 2, 3], [HARD, HARDER, [1, 0, np.nan, 0]]))
    take(buffer, 2, scored(2, [4, 5, 6], [WRONG, EASY, HARD]))
    loaded = stored(buffer, tmp_path)
    assert [group.uses for group in loaded.groups] == [group.uses for group in buffer.groups]
    assert sum(group.uses for group in loaded.groups) == 1
    later = [scored(3, [7, 8, 9], [WRONG, WRONG, SOLVED])]
    (one, rows, kept), (other, other_rows, other_kept) = (b.fill_places(3, later, later[0]) for b in (buffer, loaded))
    assert rows == other_rows
    assert len(kept) == len(other_kept)
    assert one.samples == other.samples
    assert one.scores == other.scores
    np.testing.assert_array_equal(one.totals, other.totals)
    for field in dataclasses.fields(Completions):
        np.testing.assert_array_equal(getattr(one.completions, field.name), getattr(other.completions, field.name))


def test_groups_of_other_settings_and_empty_checkpoints_restore_nothing(tmp_path: Path) -> None:
    buffer = buffer_of()
    assert not stored(buffer, tmp_path).groups
    take(buffer, 1, scored(1, [1], [HARD]))
    assert not stored(buffer, tmp_path, made_of="another reward").groups
    assert not buffer_of().groups


class Counted:
    """A reward that counts what it scored."""

    def __init__(self, value: float) -> None:
        self.name, self.value, self.num_scored = "counted", value, 0

    def score(self, samples: Sequence[Sample]) -> list[Score]:
        self.num_scored += len(samples)
        return [Score(self.value * len(sample.response)) for sample in samples]

    def check_parameters(self, columns: Any) -> None: ...

    def describe(self) -> str:
        return "counted"


def test_totals_follow_from_stored_components_with_the_weights_of_now() -> None:
    rewards = [Counted(1.0), Counted(2.0)]
    mixture = Mixture([Component("later", rewards[0], Schedule(0.0, 1.0, (0, 10))), Component("other", rewards[1])])
    samples = [Sample("ab", step=1), Sample("abcd", step=1)]
    scores = mixture.score(samples)
    again = mixture.reweigh(scores, samples, 10)
    assert [score.value for score in again] == [6.0, 12.0]
    assert [score.parts for score in again] == [score.parts for score in scores]
    assert [reward.num_scored for reward in rewards] == [2, 2]


@pytest.mark.parametrize(
    "overrides",
    [
        ("engine=agent_tunix", "engine.max_staleness=1"),
        ("environment.agent.function=agent.py:play",),
        ("grpo.advantage_scaling=component",),
        ("grpo.loss=reinforce",),
        ("grpo.sampler_correction=token",),
        ("environment=guess_number", "grpo.credit=turn"),
    ],
)
def test_what_replay_cannot_be_combined_with_is_refused(overrides: tuple[str, ...]) -> None:
    with raises(ConfigError, "invalid_config", "grpo.replay_groups"):
        check(small_run("grpo.replay_groups=4", *overrides))
