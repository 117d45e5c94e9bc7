"""Digests by which a run finds its compiled programs: with the digest of another a run would train another."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import pytest

from agent_tunix.policy import programs as programs_module
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.policy.programs import Call, Programs
from agent_tunix.training import building
from agent_tunix.training.building import build_material, training_sampling
from agent_tunix.training.evaluation import begin_evaluation
from agent_tunix.training.learner import StepSettings
from agent_tunix.training.preflight import preflight
from tests.training.support import small_run

pytestmark = pytest.mark.slow

# Of each group and key that is left out of the identity, what could be taken for part of a program.
LEFT_OUT = (
    "data.seed=3",
    "data.num_train=48",
    "data.shuffle=false",
    "prompt.format='{reasoning}={answer}'",
    "prompt.date=2020-01-01",
    "rewards.on_failure=zero",
    "rewards.max_failure_rate=1.0",
    "stopping.metric=eval/accuracy",
    "stopping.patience=3",
    "evaluation.inference_config=standard",
    "evaluation.num_passes=2",
    "evaluation.num_samples=8",
    "tracking.histogram_bins=5",
    "rollouts.share=0.5",
    "seed=7",
    "profile=true",
    "training.reward_function=conciseness",
    "training.save_interval_steps=1",
    "training.eval_every_n_steps=1",
    "training.num_test_batches=1",
    "training.log_reward_stats=false",
    "training.log_level=debug",
)


class Recorded(Programs):
    """Programs that are traced and not compiled: the digest each would be found by, beside that of its text."""

    def __init__(self, directory: Path | None, identity: str, foreseen: Any = None) -> None:
        super().__init__(None)
        self._of_run = identity
        self.texts: dict[str, str] = {}

    def prepare(self, call: Call, traced: Callable[[], None] = lambda: None) -> Any:
        lowered = call.function.lower(*call.args, **call.statics)
        place = f"{call.name}-{programs_module._digest_call(call, self._of_run)}"
        self.texts[place] = programs_module._digest_text(lowered, call, "")
        return jax.tree.map(
            lambda shape: jax.ShapeDtypeStruct(shape.shape, shape.dtype),  # type: ignore[no-untyped-call]
            lowered.out_info,
        )


def programs_of(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> dict[str, str]:
    """Return the digests of all that a run compiles before its first step, and the program of each."""
    monkeypatch.setattr(building, "Programs", Recorded)
    config = small_run(*overrides)
    material = build_material(config, preflight(config, Path.cwd()).mixture)
    learner = material.learner
    settings = StepSettings(material.config, training_sampling(material.config), material.batches.num_steps)
    with learner.ahead as ahead:
        begin_evaluation(ahead, learner.rl_cluster.rollout, material.held_out, material.config, material.mesh)
        learner.compile_ahead(material.batches.batch(1), settings)
        for begun in list(ahead._begun.values()):
            begun.result()
    assert isinstance(learner.programs, Recorded)
    return learner.programs.texts


def test_what_is_left_out_of_the_identity_is_in_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs_of(monkeypatch)
    after = programs_of(monkeypatch, *LEFT_OUT)
    names = [sorted(place.partition("-")[0] for place in found) for found in (before, after, before.keys() & after)]
    # Evaluations sample otherwise, and say so by themselves.
    assert names == [["generate", "generate", "reference", "update"]] * 2 + [["generate", "reference", "update"]]
    assert {place: after[place] for place in before if place in after}.items() <= before.items()


def test_a_file_of_the_model_that_was_changed_gives_programs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The architecture belongs to all programs, the ids that end a completion to the sampler alone."""
    model = Path(shutil.copytree(EMBEDDED_MODEL, tmp_path / "model"))
    found = [programs_of(monkeypatch, f"model.path={model}")]
    for name, change in (("generation_config.json", {"eos_token_id": [2, 7]}), ("config.json", {"rope_theta": 10_000})):
        (model / name).write_text(json.dumps(json.loads((model / name).read_text()) | change))
        found.append(programs_of(monkeypatch, f"model.path={model}"))
    before, of_other_ends, of_another_model = found
    shared = before.keys() & of_other_ends
    assert sorted(place.partition("-")[0] for place in shared) == ["reference", "update"]
    assert all(before[place] == of_other_ends[place] for place in shared)
    assert not of_other_ends.keys() & of_another_model
    assert not set(of_other_ends.values()) & set(of_another_model.values())


def test_another_kind_of_processor_has_programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs_module.identity()
    monkeypatch.setattr(programs_module, "processor_kind", lambda: "another")
    assert programs_module.identity() != before


def test_a_process_with_other_devices_has_programs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs_module.identity()
    devices = jax.devices()
    monkeypatch.setattr(jax, "devices", lambda: devices * 2)
    assert programs_module.identity() != before
