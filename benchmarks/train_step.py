"""Our GRPO step beside bare Tunix's, on the same model, batch and machine.

    python benchmarks/train_step.py [--steps 30] [--prompts 16] [--generations 8] [--tokens 24]

Both train the embedded model with the same reward, optimiser, β and KL estimator, and alternate step by step in one
process: while one works the other waits, so that other load on the machine meets both. Printed are the medians and
their ratio, with the quartiles of the step-by-step ratio. Ours also scores through the mixture, checks for non-finite
updates, keeps the end-of-sequence token, and writes the row of every step.
"""

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import absl.logging
import jax
import numpy as np
from tunix.rl import rl_cluster as rl_cluster_lib
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout

from agent_tunix.config.schema import Config
from agent_tunix.policy.directory import find_model_directory
from agent_tunix.policy.mesh import make_mesh
from agent_tunix.policy.model import load_policy
from agent_tunix.policy.optimizer import make_optimizer, make_schedule
from agent_tunix.policy.tokenizer import Tokenizer
from agent_tunix.rewards import get_reward_function
from agent_tunix.tracking import Recorder
from agent_tunix.training.building import Material, build_material, training_sampling
from agent_tunix.training.learner import StepSettings
from agent_tunix.training.metrics import StepMetrics
from agent_tunix.training.preflight import preflight

WARM_UP = 3


def make_config(arguments: argparse.Namespace) -> Config:
    """The default run with the batch of the arguments."""
    config = Config()
    steps = arguments.steps + WARM_UP + 1
    return replace(
        config,
        training=replace(config.training, batch_size=arguments.prompts, num_batches=steps),
        grpo=replace(config.grpo, num_generations=arguments.generations),
        generation=replace(config.generation, max_generation_steps=arguments.tokens),
        tracking=replace(config.tracking, tensorboard=False, progress="none"),
    )


def build_bare_tunix(config: Config, material: Material) -> Any:
    """Tunix's own learner and sampler on the same model and optimiser."""
    directory = find_model_directory(config.model)
    mesh = make_mesh([1, 1])
    roles = (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT)
    schedule = make_schedule(config.optimizer, config.scheduler, material.order.num_steps)
    cluster = rl_cluster_lib.RLCluster(
        actor=load_policy(directory, config.model, mesh),
        reference=load_policy(directory, config.model, mesh),
        tokenizer=Tokenizer(directory),
        cluster_config=rl_cluster_lib.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine="vanilla",
            training_config=rl_cluster_lib.RLTrainingConfig(
                actor_optimizer=make_optimizer(config.optimizer, schedule),
                eval_every_n_steps=10**9,
                max_steps=10**9,
            ),
            rollout_config=base_rollout.RolloutConfig(
                max_tokens_to_generate=config.generation.max_generation_steps,
                max_prompt_length=config.generation.max_prompt_length,
                kv_cache_size=config.generation.max_prompt_length + config.generation.max_generation_steps,
                temperature=config.generation.temperature,
                top_p=1.0,
                top_k=None,
            ),
        ),
    )
    reward = get_reward_function("math")

    def score(prompts: list[str], completions: list[str], answer: Any, **_: Any) -> list[float]:
        pairs = zip(completions, answer, strict=True)
        return [float(reward(completion, answer=str(reference)) or 0.0) for completion, reference in pairs]

    return grpo_learner.GRPOLearner(
        rl_cluster=cluster,
        algo_config=grpo_learner.GRPOConfig(
            num_generations=config.grpo.num_generations,
            num_iterations=1,
            beta=config.grpo.beta,
            epsilon=config.grpo.epsilon,
            kl_loss_mode=config.grpo.kl_estimator,
        ),
        reward_fns=score,
    )


def alternate(config: Config, material: Material, bare: Any, mixture: Any, recorder: Recorder) -> Any:
    """Seconds of each step, ours and Tunix's, in pairs."""
    ours: list[float] = []
    theirs: list[float] = []
    tokenizer = Tokenizer(find_model_directory(config.model))
    settings = StepSettings(config, training_sampling(config), material.order.num_steps)
    metrics = StepMetrics(mixture, config)

    def take_ours(step: int) -> None:
        started = time.perf_counter()
        batch = material.train.batch(material.order.batch_indices(step))
        result = material.learner.run_step(step, batch, settings)
        row = metrics.row(step, result, 0.0, time.perf_counter() - started)
        recorder.record(step, row)
        ours.append(time.perf_counter() - started)

    def batches() -> Iterator[dict[str, Any]]:
        resumed: float | None = None
        for step in range(1, material.order.num_steps + 1):
            if resumed is not None:
                theirs.append(time.perf_counter() - resumed)
            take_ours(step)
            batch = material.train.batch(material.order.batch_indices(step))
            resumed = time.perf_counter()
            yield {
                "prompts": np.array([tokenizer.render_chat(messages) for messages in batch.messages]),
                "answer": np.array([str(columns["answer"]) for columns in batch.columns]),
            }

    bare.train(batches())
    return ours[WARM_UP : len(theirs)], theirs[WARM_UP:]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"steps": 30, "prompts": 16, "generations": 8, "tokens": 24}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    absl.logging.set_verbosity(absl.logging.ERROR)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    config = make_config(arguments)
    mixture = preflight(config, Path.cwd()).mixture
    material = build_material(config, mixture)
    bare = build_bare_tunix(config, material)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with Recorder(config, path / "metrics.jsonl", path / "tb", path, material.order.num_steps, None) as recorder:
            ours, theirs = alternate(config, material, bare, mixture, recorder)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{len(ours)} steps of {arguments.prompts} prompts × {arguments.generations} × {arguments.tokens} tokens")
    print(f"agent_tunix {statistics.median(ours):.4f} s   bare Tunix {statistics.median(theirs):.4f} s   (medians)")
    print(f"ratio of medians {statistics.median(ours) / statistics.median(theirs):.3f}")
    print(f"step by step: quartiles of the ratio {low:.3f}, {middle:.3f}, {high:.3f}")
    print(f"devices: {jax.devices()}")


if __name__ == "__main__":
    main()
