"""The batches of an evaluation: which are sampled at once, and that it makes no difference to what is sampled."""

import contextlib
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_tunix.policy import compat, programs
from agent_tunix.rewards import Sample
from agent_tunix.training import evaluation
from agent_tunix.training.ahead import Ahead
from agent_tunix.training.building import Material, build_material
from agent_tunix.training.evaluation import EVALUATION, Completed, begin_evaluation, complete_problems, evaluate
from agent_tunix.sampling.keys import Use, derive_key
from agent_tunix.training.preflight import preflight
from agent_tunix.sampling.sampler import Rollout
from tests.training.support import small_run

pytestmark = pytest.mark.slow

BATCHES = ["evaluation.num_samples=16", "evaluation.batch_size=5", "evaluation.num_passes=2"]


@pytest.fixture(scope="module")
def begun() -> tuple[Material, Completed]:
    """A run whose first evaluation is done while it is built, and the completions of that."""
    config = small_run(*BATCHES, "evaluation.inference_config=standard")
    with Ahead() as ahead:
        built = build_material(config, preflight(config, Path.cwd()).mixture, ahead=ahead)
        assert built.learner.ahead is ahead
        return built, ahead.wait(EVALUATION)


@pytest.fixture(scope="module")
def material(begun: tuple[Material, Completed]) -> Material:
    return begun[0]


def sampled(
    material: Material, monkeypatch: pytest.MonkeyPatch, at_once: int | None = None
) -> tuple[list[list[Sample]], int]:
    """The completions of each problem, and how many batches were under way at once, at most."""
    found: list[Any] = []
    under_way, most = 0, 0
    lock = threading.Lock()
    sample = Rollout.sample
    # Those that may be under way at once wait for one another.
    together = threading.Barrier(at_once or 1)

    def counted(*args: Any, **settings: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(60)
        try:
            return sample(*args, **settings)
        finally:
            with lock:
                under_way -= 1

    def keep(samples: Sequence[Any]) -> None:
        found.extend(samples)

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "judge", keep)
        patch.setattr(Rollout, "sample", counted)
        if at_once is not None:
            patch.setattr(programs.Programs, "num_at_once", lambda *_: at_once)
        evaluate(material.learner.rl_cluster.rollout, material.held_out, material.config, material.mesh)
    return found, most


def test_batches_side_by_side_are_those_one_after_another(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one, at_most_one = sampled(material, monkeypatch, at_once=1)
    side_by_side, at_most_four = sampled(material, monkeypatch, at_once=4)  # 2 x 4 batches
    assert (at_most_one, at_most_four) == (1, 4)
    assert side_by_side == one_by_one
    assert [len(samples) for samples in one_by_one] == [2] * 16
    assert one_by_one[3][1].rollout_id == "0_3_1"


def test_batches_that_were_begun_ahead_are_judged_and_not_completed_again(
    begun: tuple[Material, Completed], monkeypatch: pytest.MonkeyPatch
) -> None:
    material, completed = begun
    assert completed == sampled(material, monkeypatch)[0]
    monkeypatch.setattr(Rollout, "sample", None)
    found = evaluate(material.learner.rl_cluster.rollout, material.held_out, material.config, material.mesh, completed)
    assert [len(row["completions"]) for row in found.judged.rows()] == [2] * 16


def test_what_nobody_waits_for_is_given_up_before_its_next_batch(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, False, False])  # as its program is looked up, and before two of eight batches
    taken: list[None] = []
    sample = Rollout.sample

    def counted(*args: Any, **settings: Any) -> Any:
        taken.append(None)
        return sample(*args, **settings)

    monkeypatch.setattr(Rollout, "sample", counted)
    with pytest.raises(CancelledError):
        complete_problems(
            material.learner.rl_cluster.rollout,
            material.held_out,
            material.config,
            material.mesh,
            is_given_up=lambda: next(answers, True),
        )
    assert len(taken) == 2


def test_on_several_devices_it_is_compiled_ahead_and_no_more(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program beside it could run on them in another order, and each wait for the other."""
    monkeypatch.setattr(compat, "entered", lambda _: contextlib.nullcontext())
    several: Any = SimpleNamespace(size=2)
    with Ahead() as ahead:
        begin_evaluation(ahead, material.learner.rl_cluster.rollout, material.held_out, material.config, several)
        assert ahead.begin(EVALUATION, lambda: "begun before").result() is None


def test_a_first_evaluation_that_was_compiled_ahead_has_several_batches_under_way(
    material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "num_processors", lambda: 3)
    rollout: Rollout = material.learner.rl_cluster.rollout
    batch = material.held_out.batch(list(range(5)))
    sampling = evaluation.evaluation_sampling(
        material.config.evaluation, material.config.generation.max_generation_steps
    )
    settings = {"num_generations": 1, "max_prompt_length": material.config.generation.max_prompt_length}
    key = derive_key(0, Use.EVALUATION, 0, 0)
    call, other = (rollout.call(ids, key, sampling, **settings) for ids in (batch.token_ids, batch.token_ids[:3]))
    assert rollout.programs.num_at_once(call) == 3
    assert rollout.programs.num_at_once(other) == 1  # of another shape
