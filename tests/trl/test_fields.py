"""Every field of TRL's `GRPOConfig` exists with its default, and is mapped, refused or unneeded."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.errors import ConfigError
from agent_tunix.trl.config import FIELDS, REFUSED, UNNEEDED, GRPOConfig, check_fields
from agent_tunix.trl.models import PolicyModel
from agent_tunix.trl.settings import convert, describe_unneeded, evaluation_values, plan_batches
from tests.raising import raises

# Written with TRL 1.16.0 and transformers 5.24: the fields in their order, each with its default.
FIELDS_OF_TRL = dict(
    line.split(" ", 1) for line in Path(__file__).with_name("trl_1_16_fields.txt").read_text().splitlines()
)
OF_OLDER_VERSIONS = {
    *("group_by_length", "logging_dir", "max_prompt_length", "no_cuda", "overwrite_output_dir", "save_safetensors"),
    *("torchdynamo", "use_liger_loss", "warmup_ratio", "vllm_device", "vllm_dtype", "vllm_max_model_len"),
    *("vllm_guided_decoding_regex", "wandb_log_unique_prompts"),
}

# A value of each mapped field that changes the settings; the trainer's own tests cover the fields in `OF_TRAINER`.
CHANGES: dict[str, Any] = {
    "per_device_train_batch_size": 16,
    "num_train_epochs": 1.0,
    "max_steps": 7,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 3,
    "optim": "adafactor",
    "weight_decay": 0.1,
    "adam_beta1": 0.8,
    "adam_beta2": 0.9,
    "adam_epsilon": 1e-6,
    "gradient_accumulation_steps": 2,
    "max_grad_norm": 0.5,
    "bf16": True,
    "activation_checkpointing": False,
    "gradient_checkpointing": False,
    "log_level": "debug",
    "disable_tqdm": True,
    "report_to": "tensorboard",
    "run_name": "mine",
    "eval_strategy": "steps",
    "per_device_eval_batch_size": 16,
    "save_strategy": "no",
    "save_steps": 3,
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "seed": 1,
    "use_cpu": True,
    "no_cuda": True,
    "model_init_kwargs": {"revision": "v1"},
    "num_generations": 4,
    "num_generations_eval": 2,
    "max_completion_length": 64,
    "shuffle_dataset": False,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 50,
    "min_p": 0.1,
    "generation_kwargs": {"top_k": 5},
    "beta": 0.04,
    "num_iterations": 2,
    "epsilon": 0.1,
    "delta": 4.0,
    "epsilon_high": 0.28,
    "sapo_temperature_neg": 1.1,
    "sapo_temperature_pos": 0.9,
    "importance_sampling_level": "sequence",
    "multi_objective_aggregation": "normalize_then_sum",
    "scale_rewards": False,
    "loss_type": "dr_grpo",
    "mask_truncated_completions": True,
    "sync_ref_model": True,
    "top_entropy_quantile": 0.2,
    "entropy_coef": 0.01,
    "use_bias_correction_kl": False,
    "log_completions": True,
    "num_completions_to_print": 2,
    "max_prompt_length": 100,
    "warmup_ratio": 0.2,
    "logging_dir": "events",
}
# Fields that change the settings only beside another: the settings of the other, and the value.
BESIDE: dict[str, tuple[dict[str, Any], Any]] = {
    "lr_scheduler_kwargs": ({"lr_scheduler_type": "cosine_with_min_lr"}, {"min_lr_rate": 0.1}),
    "project": ({"report_to": ["wandb"]}, "mine"),
    "eval_steps": ({"eval_strategy": "steps"}, 3),
    "metric_for_best_model": ({"load_best_model_at_end": True}, "eval_rewards/tags/mean"),
    "greater_is_better": ({"load_best_model_at_end": True}, False),
    "ref_model_mixup_alpha": ({"sync_ref_model": True}, 0.9),
    "ref_model_sync_steps": ({"sync_ref_model": True}, 5),
    "off_policy_mask_threshold": ({"num_iterations": 2}, 0.5),
    "logging_steps": ({"eval_strategy": "steps"}, 3),
}
OF_TRAINER = {
    *("output_dir", "logging_strategy", "logging_first_step", "eval_on_start", "remove_unused_columns"),
    *("push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy"),
    *("chat_template_kwargs", "max_tool_calling_iterations", "reward_weights"),
}
# Fields that must agree with others; `test_settings.py` covers them.
CHECKED = {"generation_batch_size", "steps_per_generation"}


def keys_of_model(model: Any, args: GRPOConfig) -> dict[str, Any]:
    policy = PolicyModel(model, args)
    return policy.values | {"model.path": policy.place(Path("unused"), None)}


def settings(**fields: Any) -> dict[str, Any]:
    args = GRPOConfig("out", **fields)
    batches = plan_batches(args, 64)
    return convert(args, batches) | evaluation_values(args, batches, 4) | keys_of_model("owner/name", args)


def test_the_fields_are_those_of_trl() -> None:
    assert FIELDS.keys() == FIELDS_OF_TRL.keys() | OF_OLDER_VERSIONS
    assert next(iter(FIELDS)) == "output_dir"  # the one that is given by position


def test_the_defaults_are_those_of_trl() -> None:
    assert {name: repr(getattr(GRPOConfig(), name)) for name in FIELDS_OF_TRL} == FIELDS_OF_TRL


def test_the_installed_trl_has_no_other_field() -> None:
    trl = pytest.importorskip("trl")
    assert {field.name for field in dataclasses.fields(trl.GRPOConfig)} <= FIELDS.keys()


def test_every_mapped_field_is_accounted_for() -> None:
    mapped = {name for name, field in FIELDS.items() if field.kind not in (REFUSED, UNNEEDED)}
    assert mapped == CHANGES.keys() | BESIDE.keys() | OF_TRAINER | CHECKED


@pytest.mark.parametrize("name", CHANGES)
def test_a_mapped_field_changes_the_settings(name: str) -> None:
    assert settings(**{name: CHANGES[name]}) != settings()


@pytest.mark.parametrize("name", BESIDE)
def test_a_mapped_field_changes_the_settings_beside_another(name: str) -> None:
    beside, value = BESIDE[name]
    assert settings(**beside, **{name: value}) != settings(**beside)


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if field.kind == REFUSED])
def test_a_refused_field_is_named(name: str) -> None:
    value = not FIELDS[name].default if isinstance(FIELDS[name].default, bool) else 3.5
    with raises(ConfigError, "unsupported_argument", f"GRPOConfig.{name}"):
        GRPOConfig(**{name: value})


def test_a_field_that_is_set_later_is_checked_too() -> None:
    args = GRPOConfig()
    args.fp16 = True
    with raises(ConfigError, "unsupported_argument", "fp16"):
        check_fields(args)


def test_a_field_without_an_effect_is_described() -> None:
    (line,) = describe_unneeded(GRPOConfig("out", dataloader_num_workers=4, max_completion_length=8))
    assert "dataloader_num_workers=4" in line


def test_what_a_command_line_leaves_out_is_no_change() -> None:
    args = GRPOConfig("out", include_num_input_tokens_seen=False, deepspeed="")  # as `TrlParser` makes them
    assert describe_unneeded(args) == []


def test_a_script_with_vllm_samples_with_the_package() -> None:
    args = GRPOConfig("out", use_vllm=True, vllm_mode="colocate", vllm_gpu_memory_utilization=0.4)
    assert [line.split("=")[0] for line in describe_unneeded(args)] == ["use_vllm", "vllm_gpu_memory_utilization"]


def test_a_command_line_may_give_json() -> None:
    assert GRPOConfig(chat_template_kwargs='{"enable_thinking": false}').chat_template_kwargs == {
        "enable_thinking": False
    }
    with raises(ConfigError, "invalid_config", "chat_template_kwargs"):
        GRPOConfig(chat_template_kwargs="enable_thinking")
