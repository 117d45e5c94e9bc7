"""Runs in this process, questions of different lengths, and a trainer that can be reset."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from hydra import compose, initialize_config_dir

from agent_tunix.config.compose import find_conf_directory, register_schema, to_typed
from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.schema import Config
from agent_tunix.data.prompt_batch import PromptBatch
from agent_tunix.grpo.loss import LossInputs
from agent_tunix.grpo.micro_batches import make_loss_inputs
from agent_tunix.grpo.reference import ReferencePolicy
from agent_tunix.grpo.step import GrpoTrainer, MorePrompts, StepResult
from agent_tunix.grpo.updater import PolicyUpdater
from agent_tunix.rewards import Mixture
from agent_tunix.runs.found_run import find_run
from agent_tunix.runs.preflight import preflight
from agent_tunix.runs.weights.state import read_state, read_weights, write_state
from agent_tunix.runs.weights.trained_policy import load_trained_policy
from agent_tunix.sampling.sampler import Completions
from agent_tunix.sampling.token_choice import SamplingParams
from agent_tunix.training.train import train
from agent_tunix.training.verification import read_rows
from tests.small_run import SMALL_RUN

# Of different lengths, so that every batch is ragged.
QUESTIONS = (
    "Tom has 3 apples and buys 4 more. How many apples does Tom have now?",
    "What is 2 plus 2?",
    "A box holds 6 eggs. How many eggs do 5 boxes hold, if 2 of all the eggs are broken?",
    "Count to 3.",
)
ANSWERS = ("7", "4", "28", "3")

# The runs of the fixtures `finished` and `adapted`.
FINISHED = ("training.save_interval_steps=2", "training.eval_every_n_steps=2")
ADAPTED = ("model.lora_rank=4", "optimizer.learning_rate=1e-2", "training.eval_every_n_steps=0")


def small_run(*overrides: str) -> Config:
    """The configuration of a small run, composed as the command line does it."""
    register_schema()
    with initialize_config_dir(str(find_conf_directory()), version_base=None):
        return to_typed(compose("config", [*SMALL_RUN, "tracking.progress=none", *overrides]))


def train_config(config: Config, root: Path) -> list[dict[str, Any]]:
    """Train in this process; return the rows of its metrics, without timings."""
    train(preflight(config, root.parent), root)
    return read_rows(root)


def train_run(root: Path, *overrides: str) -> list[dict[str, Any]]:
    """Make a small run in this process; return the rows of its metrics, without timings."""
    return train_config(small_run(*overrides), root)


def copy_run(run: Path, to: Path, *, without: int | None = None) -> Path:
    """Copy a run, as if it had been killed before the checkpoint of step `without`."""
    shutil.copytree(run, to)
    if without is not None:
        shutil.rmtree(to / "checkpoints" / f"step_{without:06d}")
    return to


Arrays = dict[str, dict[str, np.ndarray]]
Adjust = Callable[[Config], None]


@dataclasses.dataclass(frozen=True)
class Bench:
    """A trainer, the batch it learns from, and its state at the start."""

    trainer: GrpoTrainer
    config: Config
    batch: PromptBatch
    mixture: Mixture
    initial: Arrays

    @property
    def policy(self) -> Any:
        return self.trainer.updater.policy

    @property
    def updater(self) -> PolicyUpdater:
        return self.trainer.updater

    @property
    def reference(self) -> ReferencePolicy:
        assert self.trainer.reference is not None
        return self.trainer.reference

    def read(self) -> dict[str, dict[str, jax.Array]]:
        """Return what a checkpoint holds."""
        return read_state(self.updater, self._moving_reference())

    def write(self, state: Any) -> None:
        """Restore what `read` returned."""
        write_state(self.updater, self._moving_reference(), state)

    def _moving_reference(self) -> ReferencePolicy | None:
        return self.trainer.reference if self.config.grpo.reference_sync_steps else None

    def state(self) -> Arrays:
        """A copy of weights and optimiser."""
        copied: Arrays = jax.tree.map(np.array, self.read())
        return copied

    def reset(self) -> None:
        """Weights and optimiser as they were built."""
        # Laid out as they are now: another layout would be another program to compile.
        self.write(jax.tree.map(lambda array, now: jax.device_put(array, now.sharding), self.initial, self.read()))

    def sample(self, seed: int = 1) -> Completions:
        """Completions of the batch."""
        return self.trainer.sampler.sample(
            self.batch.token_ids,
            jax.random.key(seed),
            SamplingParams.of_training(self.config),
            num_generations=self.config.grpo.num_generations,
            max_prompt_length=prompt_tokens(self.config),
        )

    def run_step(self, step: int, more_prompts: MorePrompts | None = None) -> StepResult:
        """A whole step."""
        return self.trainer.take_step(step, self.batch, more_prompts)

    def update(self, completions: Completions, advantages: np.ndarray) -> tuple[dict[str, float | None], bool, int]:
        """The updates of a step with given advantages: metrics, whether all were finite, how many were applied."""
        return self.trainer.update(completions, advantages.astype(np.float32), self.trainer.place(completions))

    def example(self, completions: Completions, advantages: np.ndarray) -> LossInputs:
        """Return the input of the loss for the first micro-batch."""
        inputs, _ = make_loss_inputs(
            self.trainer.place(completions),
            completions,
            advantages.astype(np.float32),
            self.config,
            self.trainer.sampler.mesh,
        )
        return inputs[0]


BenchMaker = Callable[..., Bench]


def assert_same_weights(expected: Path, found: Path) -> None:
    """Both runs have the same last step, with the same weights, bit for bit."""
    one, other = (load_trained_policy(find_run(root), None) for root in (expected, found))
    assert one.step == other.step
    jax.tree.map(np.testing.assert_array_equal, read_weights(one.policy), read_weights(other.policy))


def assert_same(found: Arrays, expected: Arrays) -> None:
    """Bit for bit."""
    assert found.keys() == expected.keys()
    for part, arrays in expected.items():
        assert found[part].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[part][name], array, err_msg=f"{part} {name}")


def changed(found: Arrays, before: Arrays, part: str = "weights") -> list[str]:
    """Names of the arrays that are not what they were."""
    return [name for name, array in before[part].items() if not np.array_equal(found[part][name], array)]
