"""TRL's GRPO trainer on torch, on a CPU."""

import tempfile
import time
import warnings
from typing import Any

from benchmarks.peers.scenario import Scenario
from benchmarks.peers.turns import Turns


def call_every_turn(scenario: Scenario) -> dict[str, Any]:
    """Return the arguments of a trainer whose model calls a tool in every turn, whatever it writes."""
    import transformers
    from trl.trainer import grpo_trainer

    def look() -> str:
        """Look."""
        return scenario.reply

    def parse_response(tokenizer: Any, ids: list[int], **_: Any) -> dict[str, Any]:
        call = {"type": "function", "function": {"name": "look", "arguments": {}}}
        text = tokenizer.decode(ids, skip_special_tokens=True)
        return {"role": "assistant", "content": text, "tool_calls": [call]}

    grpo_trainer.parse_response = parse_response
    tokenizer = transformers.AutoTokenizer.from_pretrained(scenario.model)
    tokenizer.response_schema = {"type": "object"}  # not used, but it looks for one
    return {"tools": [look], "processing_class": tokenizer}


def make_adapter(scenario: Scenario) -> Any:
    """Return PEFT's adapter of all projections, or None if all weights train."""
    if not scenario.lora_rank:
        return None
    import peft

    return peft.LoraConfig(
        r=scenario.lora_rank, lora_alpha=scenario.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def main() -> None:
    """Load everything, then take a step per turn. A wrapper of the trainer's step waits for the turn."""
    turns = Turns()
    warnings.simplefilter("ignore")
    import torch
    import transformers
    from datasets import Dataset

    from trl import GRPOConfig, GRPOTrainer

    scenario = turns.scenario
    prompt_of, of_episodes = (lambda row: row["prompt"]), {}
    if scenario.turns:
        prompt_of = lambda row: [{"role": "user", "content": row["text"]}]  # noqa: E731
        of_episodes = call_every_turn(scenario)
    transformers.logging.set_verbosity_error()
    score = scenario.scorer()
    told: list[float] = []
    rollout_seconds: list[float] = []
    lengths: list[float] = []

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
        scores = [score(text, reference) for text, reference in zip(texts, answer, strict=True)]
        told.append(sum(scores) / len(scores))
        return scores

    class TakeTurns(transformers.TrainerCallback):  # type: ignore[misc]
        started = 0.0

        def on_step_end(self, *_: Any, **__: Any) -> None:
            seconds = time.perf_counter() - self.started
            generation = rollout_seconds[-1]
            turns.answer(
                seconds=seconds,
                reward=told[-1],
                length=lengths[-1],
                phases={"rollout": generation, "rest": seconds - generation},
            )

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
                max_tool_calling_iterations=scenario.turns - 1 if scenario.turns else None,
            ),
            train_dataset=Dataset.from_list([{"prompt": prompt_of(row), "answer": row["answer"]} for row in rows]),
            peft_config=make_adapter(scenario),
            **of_episodes,
            callbacks=[taking],
        )
        take = trainer.training_step
        generate = trainer._generate

        def timed_generate(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            out = generate(*arguments, **named)
            rollout_seconds.append(time.perf_counter() - started)
            lengths.append(sum(map(len, out[1])) / len(out[1]))
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
