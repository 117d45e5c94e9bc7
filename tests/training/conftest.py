"""Runs that many tests read, the embedded model, its tokenizer, and trainers on it that are reset for each test."""

import dataclasses
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import optax
import pytest
from flax import nnx

from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.grpo.step import GrpoTrainer
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.schedules import RateSchedule
from agent_tunix.rewards import resolve_reward
from agent_tunix.sampling.sampler import Sampler
from agent_tunix.startup.devices import make_room_for_programs
from agent_tunix.training.components import make_reference, make_updater
from tests.training.support import ADAPTED, ANSWERS, FINISHED, QUESTIONS, Adjust, Bench, BenchMaker, train_run


@pytest.fixture(autouse=True)
def _programs_outlive_their_test_only_while_few() -> Iterator[None]:
    """Some of these modules alone make thousands."""
    yield
    make_room_for_programs()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with checkpoints of steps 2 and 4. Tests copy it before they change it."""
    root = tmp_path_factory.mktemp("finished") / "run"
    train_run(root, *FINISHED)
    return root


@pytest.fixture(scope="session")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that trains an adapter of rank 4 on a copy of the embedded model, which lies beside it."""
    root = tmp_path_factory.mktemp("adapted") / "run"
    model = shutil.copytree(EMBEDDED_MODEL, root.parent / "model")
    train_run(root, *ADAPTED, f"model.path={model}")
    return root


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer(EMBEDDED_MODEL)


@pytest.fixture(scope="session")
def mesh() -> jax.sharding.Mesh:
    return make_mesh([1, 1])


@pytest.fixture(scope="session")
def policy(mesh: jax.sharding.Mesh) -> nnx.Module:
    """The tiny model; nobody may train it."""
    return load_policy(EMBEDDED_MODEL, ModelConfig(), mesh)


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    return [tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": question}])) for question in QUESTIONS]


@pytest.fixture(scope="session")
def sampler(policy: nnx.Module, tokenizer: Tokenizer, mesh: jax.sharding.Mesh) -> Sampler:
    return Sampler(policy, tokenizer, mesh)


@pytest.fixture(scope="session")
def make_bench(tokenizer: Tokenizer, mesh: jax.sharding.Mesh, prompts: list[list[int]]) -> BenchMaker:
    """Builds a trainer on the tiny model, of short completions and plain SGD unless told otherwise."""

    def make(
        adjust: Adjust = lambda config: None,
        *,
        optimizer: optax.GradientTransformation | None = None,
        schedules: Mapping[str, RateSchedule] | None = None,
        reward: Any = "conciseness",
    ) -> Bench:
        config = Config()
        config.training.batch_size = len(prompts)
        config.grpo.num_generations = 4
        config.generation.max_generation_steps = 8
        config.generation.max_prompt_length = 64
        config.generation.temperature = 0.7
        adjust(config)
        mixture = resolve_reward(reward, working_directory=Path.cwd())
        policy = load_policy(EMBEDDED_MODEL, config.model, mesh)
        trainer = GrpoTrainer(
            config,
            Sampler(policy, tokenizer, mesh),
            make_updater(config, policy, optimizer or optax.sgd(0.1), mesh, schedules),
            make_reference(config, policy),
            mixture,
            max_steps=10,
        )
        batch = PromptBatch(
            prompts=QUESTIONS,
            messages=[[{"role": "user", "content": question}] for question in QUESTIONS],
            token_ids=prompts,
            columns=[{"answer": answer} for answer in ANSWERS],
        )
        bench = Bench(trainer, config, batch, mixture, {})
        return dataclasses.replace(bench, initial=bench.state())

    return make


@pytest.fixture(scope="session")
def built_two_iterations(make_bench: BenchMaker) -> Bench:
    def adjust(config: Config) -> None:
        config.grpo.num_iterations = 2
        config.grpo.beta = 0.3

    return make_bench(adjust, optimizer=optax.adam(3e-5))


@pytest.fixture
def two_iterations(built_two_iterations: Bench) -> Iterator[Bench]:
    """μ = 2, temperature 0.7, β = 0.3, Adam at 3e-5."""
    built_two_iterations.reset()
    yield built_two_iterations
    built_two_iterations.reset()
