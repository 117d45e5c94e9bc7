"""TRL's GRPO trainer on torch, on a CPU."""

import tempfile
import time
import warnings
from typing import Any

from benchmarks.peers.turns import Turns


def main() -> None:
    """Load everything, then take a step per turn. A wrapper of the trainer's step waits for the turn."""
    turns = Turns()
    warnings.simplefilter("ignore")
    import torch
    import transformers
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    scenario = turns.scenario
    transformers.logging.set_verbosity_error()
    score = scenario.scorer()
    told: list[float] = []
    rollout_seconds: list[float] = []

    def reward(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        scores = [score(text, reference) for text, reference in zip(completions, answer, strict=True)]
        told.append(sum(scores) / len(scores))
        return scores

    class TakeTurns(transformers.TrainerCallback):  # type: ignore[misc]
        started = 0.0

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds = time.perf_counter() - self.started
            generation = rollout_seconds[-1]
            turns.answer(seconds=seconds, reward=told[-1], phases={"rollout": generation, "rest": seconds - generation})

    taking = TakeTurns()
    rows = scenario.read_rows()
    with tempfile.TemporaryDirectory() as output:
        trainer = GRPOTrainer(
            model=scenario.model,
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=output,
                seed=scenario.seed,
                use_cpu=True,
                bf16=False,
                model_init_kwargs={"dtype": "float32"},
                gradient_checkpointing=False,
                report_to=[],
                disable_tqdm=True,
                logging_strategy="no",
                save_strategy="no",
                shuffle_dataset=False,
                per_device_train_batch_size=scenario.prompts * scenario.generations,
                gradient_accumulation_steps=1,
                max_steps=scenario.num_steps,
                num_generations=scenario.generations,
                max_completion_length=scenario.new_tokens,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                beta=scenario.beta,
                epsilon=scenario.epsilon,
                loss_type="grpo",
                scale_rewards="group",
                learning_rate=scenario.learning_rate,
                lr_scheduler_type="cosine",
                warmup_steps=int(scenario.warmup_ratio * scenario.num_steps),
                weight_decay=0.0,
                adam_beta1=scenario.adam_beta1,
                adam_beta2=scenario.adam_beta2,
                max_grad_norm=scenario.max_grad_norm,
            ),
            train_dataset=Dataset.from_list([{"prompt": row["prompt"], "answer": row["answer"]} for row in rows]),
            callbacks=[taking],
        )
        take = trainer.training_step
        generate = trainer._generate

        def timed_generate(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            out = generate(*arguments, **named)
            rollout_seconds.append(time.perf_counter() - started)
            return out

        # A step begins with generation, when the trainer prepares the inputs of its training step.
        def timed_step(*arguments: Any, **named: Any) -> Any:
            turns.wait()
            taking.started = time.perf_counter()
            return take(*arguments, **named)

        trainer._generate = timed_generate
        trainer.training_step = timed_step
        turns.answer(devices=[f"torch on {torch.get_num_threads()} threads"])
        trainer.train()


if __name__ == "__main__":
    main()
