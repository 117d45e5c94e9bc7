"""Random models of any size, and a trainer for them, for benchmarks of sizes.

A model is a directory in the layout of the Hugging Face hub: Qwen 3's `config.json`, random float32 weights, and a
tokenizer with one token for each of the words `w0`, `w1` and so on, so a text of P words has P tokens.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import models, pre_tokenizers

from agent_tunix.config.episodes import prompt_tokens
from agent_tunix.config.schema import Config, SchedulerConfig
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.tensors import list_tensors

_SPECIAL = ("<pad>", "<end>", "<unknown>")


def write_model(
    directory: Path, *, words: int, width: int, layers: int, head_dim: int = 64, inner: int | None = None
) -> None:
    """Write a model with `width / head_dim` query heads and half as many key-value heads.

    Args:
        directory: Directory to create.
        words: V.
        width: D.
        layers: Number of layers.
        head_dim: H, a divisor of the width.
        inner: Width of the MLP; None: three times the width.
    """
    directory.mkdir(parents=True)
    shape = {
        "model_type": "qwen3",
        "vocab_size": words,
        "hidden_size": width,
        "intermediate_size": inner or 3 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // head_dim,
        "num_key_value_heads": max(1, width // head_dim // 2),
        "head_dim": head_dim,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    (directory / "config.json").write_text(json.dumps(shape))
    vocabulary = {word: number for number, word in enumerate([*_SPECIAL, *(f"w{i}" for i in range(words - 3))])}
    fast = FastTokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<pad>", "eos_token": "<end>"}))
    write_weights(directory)


def write_weights(directory: Path) -> None:
    """Write random weights for the `config.json` of a directory: normal with a standard deviation of 0.02, norms 1."""
    rng = np.random.default_rng(0)
    tensors = {
        f"model.{tensor.name}": np.asarray(0.02 * rng.standard_normal(tensor.shape), np.float32)
        if len(tensor.shape) > 1
        else np.ones(tensor.shape, np.float32)
        for tensor in list_tensors(read_architecture(directory))
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def make_config(directory: Path, *, prompts: int, group: int, prompt_tokens: int, tokens: int, **model: Any) -> Config:
    """Return the default configuration with these shapes; `model` overrides keys of that group."""
    config = Config()
    return replace(
        config,
        model=replace(config.model, path=str(directory), **model),
        training=replace(config.training, batch_size=prompts, num_batches=1000),
        grpo=replace(config.grpo, num_generations=group),
        generation=replace(config.generation, max_prompt_length=prompt_tokens, max_generation_steps=tokens),
    )


def make_prompts(count: int, tokens: int, words: int) -> list[str]:
    """Return `count` different texts of `tokens` words each."""
    rng = np.random.default_rng(1)
    return [" ".join(f"w{i}" for i in rng.integers(0, words - 3, tokens)) for _ in range(count)]


def reward(completion: str, **_: Any) -> float:
    """Return a value that differs between completions."""
    return len(completion) % 97 / 97


def build(config: Config) -> tuple[Any, Any]:
    """Return a trainer of the model, and the batch of prompts that it trains on.

    No completion ends before its limit, because the end-of-sequence id is outside the vocabulary.
    """
    from agent_tunix.data.prompt_batch import PromptBatch
    from agent_tunix.grpo.step import GrpoTrainer
    from agent_tunix.policy.chat.tokenizer import Tokenizer
    from agent_tunix.policy.mesh import make_mesh
    from agent_tunix.policy.model import load_policy
    from agent_tunix.policy.optimizer import make_optimizer
    from agent_tunix.policy.schedules import make_schedules
    from agent_tunix.rewards import resolve_reward
    from agent_tunix.sampling.sampler import Sampler
    from agent_tunix.training.components import make_reference, make_updater

    directory = Path(str(config.model.path))
    mesh = make_mesh([1, 1])
    tokenizer = Tokenizer(directory)
    policy = load_policy(directory, config.model, mesh)
    schedules = make_schedules(replace(config.optimizer, warmup_ratio=0.0), SchedulerConfig(kind="constant"), 1)
    trainer = GrpoTrainer(
        config,
        Sampler(policy, tokenizer, mesh, [tokenizer.vocab_size + 1]),
        make_updater(config, policy, make_optimizer(config.optimizer), mesh, schedules),
        make_reference(config, policy),
        resolve_reward(reward),
    )
    texts = make_prompts(config.training.batch_size, prompt_tokens(config), tokenizer.vocab_size)
    return trainer, PromptBatch(
        prompts=texts,
        messages=[({"role": "user", "content": text},) for text in texts],
        token_ids=[tokenizer.encode(text) for text in texts],
        columns=[{} for _ in texts],
    )


def make_step(config: Config) -> Callable[[int], Any]:
    """Return a function that takes the step of a number and returns its `StepResult`."""
    trainer, batch = build(config)
    return lambda step: trainer.take_step(step, batch)
