"""Peer agent_tunix: a step as in a run, with its metrics and its row on disk."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.scenario import Scenario
from benchmarks.peers.turns import Turns

from agent_tunix.config.schema import Config, DistributedConfig
from agent_tunix.rewards import register_reward_function
from agent_tunix.startup import devices


def make_config(scenario: Scenario) -> Config:
    """Return the default run with the settings of the scenario."""
    config = Config()
    if scenario.turns:
        config.environment = replace(
            config.environment,
            name=f"{Path(__file__).with_name('talker.py')}:Talker",
            args={"reply": scenario.reply},
            execution="inline",
            max_turns=scenario.turns,
            max_turn_tokens=scenario.turn_tokens,
            max_episode_tokens=scenario.new_tokens,
            max_result_tokens=scenario.result_tokens,
        )
    return replace(
        config,
        seed=scenario.seed,
        model=replace(config.model, path=scenario.model, lora_rank=scenario.lora_rank, lora_alpha=scenario.lora_alpha),
        training=replace(
            config.training,
            batch_size=scenario.prompts,
            num_batches=scenario.num_steps,
            reward_function="scenario",
        ),
        grpo=replace(config.grpo, num_generations=scenario.generations, beta=scenario.beta, epsilon=scenario.epsilon),
        generation=replace(
            config.generation, max_prompt_length=scenario.prompt_tokens, max_generation_steps=scenario.new_tokens
        ),
        optimizer=replace(
            config.optimizer,
            learning_rate=scenario.learning_rate,
            warmup_ratio=scenario.warmup_ratio,
            max_grad_norm=scenario.max_grad_norm,
            beta1=scenario.adam_beta1,
            beta2=scenario.adam_beta2,
        ),
        tracking=replace(config.tracking, tensorboard=False, progress="none"),
    )


def main() -> None:
    """Load everything, then take a step per turn."""
    turns = Turns()
    devices.prepare(DistributedConfig())
    import jax

    from agent_tunix.data.prompt_batch import PromptBatch
    from agent_tunix.environments import EnvironmentRecipe
    from agent_tunix.environments.running import EnvironmentSet, HostingLimits, make_recipes
    from agent_tunix.grpo.step import GrpoTrainer
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.mesh import make_mesh
    from agent_tunix.policy.model import load_policy
    from agent_tunix.policy.optimizer import make_optimizer
    from agent_tunix.policy.schedules import make_schedules
    from agent_tunix.runs.environment_setup import make_episode_sampler
    from agent_tunix.runs.preflight import preflight
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.tracking import Recorder
    from agent_tunix.training.components import make_reference, make_updater
    from agent_tunix.training.metrics import StepMetrics

    scenario = turns.scenario
    score = scenario.scorer()
    register_reward_function("scenario", lambda response, answer="": score(response, answer))
    config = make_config(scenario)
    mixture = preflight(config, Path.cwd()).mixture
    directory = Path(scenario.model)
    tokenizer = Tokenizer(directory)
    mesh = make_mesh([1, 1])
    schedules = make_schedules(config.optimizer, config.scheduler, scenario.num_steps)
    policy = load_policy(directory, config.model, mesh, scenario.seed)
    sampler, episodes = Sampler(policy, tokenizer, mesh, config.generation.eos_tokens), None
    if scenario.turns:
        recipes = make_recipes(config.environment.name, [], EnvironmentRecipe(None, config.environment.args))
        environments = EnvironmentSet(recipes, HostingLimits(execution="inline"))
        episodes = make_episode_sampler(config, sampler, environments, tokenizer)
    trainer = GrpoTrainer(
        config,
        sampler,
        make_updater(config, policy, make_optimizer(config.optimizer), mesh, schedules),
        make_reference(config, policy),
        mixture,
        max_steps=scenario.num_steps,
        episodes=episodes,
    )
    metrics = StepMetrics(mixture, config)
    rows = scenario.read_rows()
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        with Recorder(config, run / "metrics.jsonl", run / "tb", run, scenario.num_steps, None) as recorder:
            turns.answer(devices=[str(device) for device in jax.devices()])
            for step in range(1, scenario.num_steps + 1):
                turns.wait()
                started = time.perf_counter()
                chosen = rows[(step - 1) * scenario.prompts : step * scenario.prompts]
                texts = [row["text" if scenario.turns else "prompt"] for row in chosen]
                batch = PromptBatch(
                    prompts=texts,
                    messages=[[{"role": "user", "content": text}] for text in texts],
                    token_ids=[tokenizer.encode(text) for text in texts],
                    columns=[{"answer": row["answer"]} for row in chosen],
                )
                result = trainer.take_step(step, batch)
                row = metrics.row(step, result, 0.0, time.perf_counter() - started)
                recorder.record(step, row)
                turns.answer(
                    seconds=time.perf_counter() - started,
                    reward=float(result.totals.mean()),
                    length=float(result.completions.lengths.mean()),
                    phases=result.seconds,
                )


if __name__ == "__main__":
    main()
