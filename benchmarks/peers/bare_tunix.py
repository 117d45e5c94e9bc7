"""Tunix's own learner, sampler and model, without any code of agent_tunix in the step."""

import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.scenario import Scenario
from benchmarks.peers.tunix_tokenizer import TunixTokenizer
from benchmarks.peers.turns import Turns

from agent_tunix.startup.program_cache import prepare_cache


def make_mesh() -> Any:
    """Return a mesh of the first device, with the axes of Tunix's models."""
    import jax
    import numpy as np

    return jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))


def load_model(directory: Path, mesh: Any) -> Any:
    """Return Tunix's Qwen 3 with the weights of a directory."""
    import json

    import jax.numpy as jnp
    from tunix.models.qwen3 import model as qwen3
    from tunix.models.qwen3 import params

    facts = json.loads((directory / "config.json").read_text())
    config = qwen3.ModelConfig(
        num_layers=facts["num_hidden_layers"],
        vocab_size=facts["vocab_size"],
        embed_dim=facts["hidden_size"],
        hidden_dim=facts["intermediate_size"],
        num_heads=facts["num_attention_heads"],
        head_dim=facts["head_dim"],
        num_kv_heads=facts["num_key_value_heads"],
        rope_theta=int(facts["rope_theta"]),
        norm_eps=facts["rms_norm_eps"],
        use_tied_embedding=facts["tie_word_embeddings"],
    )
    return params.create_model_from_safe_tensors(str(directory), config, mesh, dtype=jnp.float32)


def build(scenario: Scenario) -> Any:
    """Return the cluster, and the module of the learner."""
    import jax
    import optax
    from tunix.rl import rl_cluster as rl_cluster_lib
    from tunix.rl.grpo import grpo_learner
    from tunix.rl.rollout import base_rollout

    directory = Path(scenario.model)
    mesh = make_mesh()
    roles = (rl_cluster_lib.Role.ACTOR, rl_cluster_lib.Role.REFERENCE, rl_cluster_lib.Role.ROLLOUT)
    warm_up = int(scenario.warmup_ratio * scenario.num_steps)
    schedule = optax.warmup_cosine_decay_schedule(0.0, scenario.learning_rate, warm_up, scenario.num_steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(scenario.max_grad_norm),
        optax.adamw(schedule, b1=scenario.adam_beta1, b2=scenario.adam_beta2, weight_decay=0.0),
    )
    cluster = rl_cluster_lib.RLCluster(
        actor=load_model(directory, mesh),
        reference=load_model(directory, mesh),
        tokenizer=TunixTokenizer(directory),
        cluster_config=rl_cluster_lib.ClusterConfig(
            role_to_mesh=dict.fromkeys(roles, mesh),
            rollout_engine="vanilla",
            training_config=rl_cluster_lib.RLTrainingConfig(
                actor_optimizer=optimizer, eval_every_n_steps=10**9, max_steps=10**9
            ),
            rollout_config=base_rollout.RolloutConfig(
                max_tokens_to_generate=scenario.new_tokens,
                max_prompt_length=scenario.prompt_tokens,
                kv_cache_size=scenario.prompt_tokens + scenario.new_tokens,
                temperature=1.0,
                top_p=1.0,
                top_k=None,
                # Without a seed it draws the same noise at every step.
                seed=jax.random.key(scenario.seed),
            ),
        ),
    )
    return cluster, grpo_learner


def main() -> None:
    """Load everything, then take a step per turn: Tunix asks for a batch when it is done with the previous one."""
    turns = Turns()
    # Leaves XLA at its defaults; our compiler options are not used here.
    prepare_cache("auto")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import dataclasses

    import jax
    import numpy as np

    scenario = turns.scenario
    cluster, grpo_learner = build(scenario)
    score = scenario.scorer()
    told: list[float] = []

    def reward(prompts: list[str], completions: list[str], answer: Any, **_: Any) -> list[float]:
        scores = [score(text, str(reference)) for text, reference in zip(completions, answer, strict=True)]
        told.append(float(np.mean(scores)))
        return scores

    learner = grpo_learner.GRPOLearner(
        rl_cluster=cluster,
        algo_config=grpo_learner.GRPOConfig(
            num_generations=scenario.generations,
            num_iterations=1,
            beta=scenario.beta,
            epsilon=scenario.epsilon,
            kl_loss_mode="low_var_kl",
        ),
        reward_fns=reward,
    )
    rows = scenario.read_rows()
    rollout_seconds: list[float] = []
    generate = cluster.generate

    def timed(*arguments: Any, **named: Any) -> Any:
        started = time.perf_counter()
        out = generate(*arguments, **named)
        rollout_seconds.append(time.perf_counter() - started)
        return out

    cluster.generate = timed

    def batches() -> Iterator[dict[str, Any]]:
        started = 0.0
        for step in range(scenario.num_steps):
            if step > 0:
                jax.block_until_ready(jax.tree.leaves(cluster.actor_trainer.model))
                seconds = time.perf_counter() - started
                turns.answer(
                    seconds=seconds,
                    reward=told[-1],
                    phases={"rollout": rollout_seconds[-1], "rest": seconds - rollout_seconds[-1]},
                )
            turns.wait()
            key = jax.random.fold_in(jax.random.key(scenario.seed), step)
            config = dataclasses.replace(cluster.cluster_config.rollout_config, seed=key)
            cluster.cluster_config = dataclasses.replace(cluster.cluster_config, rollout_config=config)
            chosen = rows[step * scenario.prompts : (step + 1) * scenario.prompts]
            started = time.perf_counter()
            yield {
                "prompts": np.array([row["prompt"] for row in chosen]),
                "answer": np.array([row["answer"] for row in chosen]),
            }

    turns.answer(devices=[str(device) for device in jax.devices()])
    learner.train(batches())


if __name__ == "__main__":
    main()
