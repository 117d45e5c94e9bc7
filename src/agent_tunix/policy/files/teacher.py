"""The files of the teacher of on-policy distillation, `grpo.teacher`; loads no JAX."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_tunix.config.schema import Config, ModelConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.families import read_architecture
from agent_tunix.policy.files.directory import find_cached_directory, pin_model

TEACHER = "grpo.teacher"  # key of its path
SELF = "self"  # the policy itself


def has_teacher_model(config: Config) -> bool:
    """Return True if the teacher is a model with files of its own, and not the policy itself."""
    return config.grpo.teacher not in (None, SELF)


def teacher_model(config: Config) -> ModelConfig:
    """Return the teacher as a model: its path, without an adapter or quantised weights."""
    return replace(config.model, path=config.grpo.teacher, lora_rank=0, quantization=None, model_family=None)


def pin_teacher(config: Config, recorded: Config | None = None) -> Config:
    """Return the configuration with an exact teacher, as `pin_model` does for `model.path`.

    Args:
        config: Configuration from the user.
        recorded: Configuration that a resumed run was started with. Its teacher is kept if `config` may refer to it.

    Raises:
        ModelError: The hub cannot be reached, or has no such model.
    """
    if not has_teacher_model(config):
        return config
    before = teacher_model(recorded) if recorded is not None and has_teacher_model(recorded) else None
    pinned = pin_model(teacher_model(config), before, TEACHER)
    return replace(config, grpo=replace(config.grpo, teacher=pinned.path))


def is_initial_policy(config: Config) -> bool:
    """Return True if the teacher is the policy before training. No other weights are then needed."""
    if config.training.init_checkpoint is not None:
        return False
    teacher = teacher_model(config)
    if teacher.path == config.model.path:
        return True
    teachers, own = (find_cached_directory(model) for model in (teacher, config.model))
    return teachers is not None and own is not None and teachers.resolve() == own.resolve()


def check_teacher(config: Config, directory: Path, teacher: Path) -> None:
    """Refuse a teacher whose tokens are not the policy's.

    Args:
        config: Configuration of the run.
        directory: Directory of the policy.
        teacher: Directory of the teacher.

    Raises:
        ModelError: The tokenizers differ, or the teacher's embedding has too few rows.
    """
    ours, theirs = _tokens(directory), _tokens(teacher)
    if ours != theirs:
        raise ModelError(
            f"grpo.teacher {teacher} must have the tokenizer of the policy, {directory}, because it judges the "
            "policy's tokens, but their tokenizer.json differ in vocabulary, merges or added tokens; use a teacher of "
            "the policy's family",
            code="teacher_mismatch",
        )
    words, rows = read_architecture(directory).vocab_size, read_architecture(teacher).vocab_size
    if rows < words or (config.grpo.teacher_top_k is not None and rows > words):
        raise ModelError(
            f"the embedding of grpo.teacher {teacher} must have the policy's {words} rows, or more without "
            f"grpo.teacher_top_k, but has {rows}; set grpo.teacher_top_k=null, or use another teacher",
            code="teacher_mismatch",
        )


def _tokens(directory: Path) -> Any:
    """Return the parts of a tokenizer that decide its ids."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{directory} has no tokenizer.json; save the fast tokenizer there", code="invalid_tokenizer")
    content = json.loads(path.read_bytes())
    model = content.get("model") or {}
    added = sorted((one["id"], one["content"]) for one in content.get("added_tokens") or [])
    # Older files hold a merge as a text with a space, newer ones as a pair.
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model.get("merges") or []]
    return model.get("type"), model.get("vocab"), merges, added
