"""Settings of other libraries are answered by the key that does the same here."""

import re
from pathlib import Path

import pytest

from agent_tunix.config.other_names import OTHER_NAMES, WITHOUT_KEY, suggest_key
from agent_tunix.config.schema import Config

KEYS = {name: key for name, (key, _) in OTHER_NAMES.items()}


@pytest.mark.parametrize("key", sorted({*KEYS.values()} - {"hydra.run.dir"}))
def test_each_leads_to_a_key_that_there_is(key: str) -> None:
    value = Config()
    for part in key.split("."):
        value = getattr(value, part)


@pytest.mark.parametrize("name", KEYS)
def test_the_key_is_named_first_in_whatever_group_the_name_is_written(name: str) -> None:
    for written in (name,) if "." in name else (name, f"training.{name}", f"grpo.{name}"):
        hint = suggest_key(written, Config)
        # A name that is a key here, in the group that it was written in, is no mistake.
        assert hint.startswith(f"; did you mean {KEYS[name]}?") or not hint, written


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("per_device_train_batch_size", "divide by grpo.num_generations"),
        ("trainer.total_training_steps", "total_training_steps: counts batches of prompts of all epochs"),
        ("max_steps", "counts updates of all epochs"),
        ("dataset", "did you mean data.path?"),
        ("eval_strategy", "did you mean training.eval_every_n_steps?"),
        ("peft_config.r", "did you mean model.lora_rank?"),
        ("training.peft_config", "did you mean model.lora_rank?"),
        ("kl_coef", "did you mean grpo.beta?"),
        ("algorithm.kl_ctrl.kl_coef", "did you mean grpo.beta?"),
        ("init_kl_coef", "did you mean grpo.beta?"),
        ("vllm_gpu_memory_utilization", "no counterpart here: the package has its own sampler"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization", "no counterpart here: the package has its own sampler"),
        ("vllm_server_host", "no counterpart here: the package has its own sampler"),
        ("vllm_tensor_parallel_size", "did you mean model.mesh_shape?"),
        ("critic.optim.lr", "no counterpart here: GRPO has no critic"),
        ("n_samples_per_prompt", "did you mean grpo.num_generations?"),
        ("group_size", "did you mean grpo.num_generations?"),
        ("max_new_tokens", "did you mean generation.max_generation_steps?"),
        ("split_dataset_ratio", "the share to train on"),
        ("reward_funcs", "training.reward_function"),
        ("steps_per_generation", "no counterpart here: every update takes a whole batch"),
    ],
)
def test_a_difference_of_meaning_is_told(written: str, hint: str) -> None:
    assert hint in suggest_key(written, Config)


def test_each_name_without_a_key_has_a_reason() -> None:
    for name in WITHOUT_KEY:
        assert WITHOUT_KEY[name] in suggest_key(name.replace("*", "x"), Config)


def test_the_page_for_users_of_trl_has_the_keys_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "from-trl.md").read_text(encoding="utf-8")
    _, _, of_commands = page.partition("## One command instead")  # arguments of a script come before
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", of_commands, flags=re.MULTILINE)
    keys = {ours: [KEYS[name] for name in re.findall(r"`(\w+)\b", theirs) if name in KEYS] for theirs, ours in rows}
    assert sum(map(bool, keys.values())) >= 8
    for ours, expected in keys.items():
        # `grpo=cispo` takes another file of the group of `grpo.loss`.
        assert not expected or any(key in ours or f"{key.partition('.')[0]}=" in ours for key in expected), ours
