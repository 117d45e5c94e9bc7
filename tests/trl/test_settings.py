"""Values of `GRPOConfig` as values of this package."""

import sys
from typing import Any

import pytest
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from agent_tunix.config.compose import compose_overrides
from agent_tunix.errors import ConfigError
from agent_tunix.overrides import assign
from agent_tunix.trl.adapters import adapter_values
from agent_tunix.trl.config import GRPOConfig
from agent_tunix.trl.settings import BatchPlan, convert, evaluation_values, plan_batches, reporting_callbacks
from tests.raising import raises


@pytest.mark.parametrize(
    ("fields", "rows", "devices", "expected"),
    [
        ({}, 100, 1, BatchPlan(1, 1, 300, 100, 1)),
        ({"per_device_train_batch_size": 16, "gradient_accumulation_steps": 4}, 100, 1, BatchPlan(8, 2, 36, 12, 1)),
        ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 16}, 100, 1, BatchPlan(4, 1, 75, 25, 1)),
        ({"num_generations": 4}, 100, 8, BatchPlan(16, 16, 18, 6, 1)),
        ({"max_steps": 10, "num_iterations": 4}, 100, 1, BatchPlan(1, 1, 3, 100, 4)),
        ({"num_train_epochs": 0.1}, 100, 1, BatchPlan(1, 1, 10, 100, 1)),
        ({"generation_batch_size": 8, "gradient_accumulation_steps": 2}, 100, 1, BatchPlan(2, 1, 150, 50, 1)),
        (
            {"per_device_train_batch_size": 24, "num_generations": 16, "gradient_accumulation_steps": 2},
            9,
            1,
            BatchPlan(3, 1, 9, 3, 1),
        ),
    ],
)
def test_completions_are_counted_in_prompts(
    fields: dict[str, Any], rows: int, devices: int, expected: BatchPlan
) -> None:
    assert plan_batches(GRPOConfig(**fields), rows, devices) == expected


def test_several_updates_of_one_generation_are_refused() -> None:
    with raises(ConfigError, "unsupported_argument", "steps_per_generation=8"):
        plan_batches(GRPOConfig(steps_per_generation=8, gradient_accumulation_steps=2), 100)


def test_a_batch_of_no_whole_groups_is_refused() -> None:
    with raises(ConfigError, "invalid_batch", "num_generations"):
        plan_batches(GRPOConfig(per_device_train_batch_size=3), 100)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("grpo", "token-mean", "group")),
        ({"loss_type": "grpo"}, ("grpo", "sequence-mean-token-mean", "group")),
        ({"loss_type": "grpo", "importance_sampling_level": "sequence"}, ("gspo", "sequence-mean-token-mean", "group")),
        ({"importance_sampling_level": "sequence"}, ("gspo_token", "token-mean", "group")),
        ({"loss_type": "dr_grpo", "scale_rewards": False}, ("grpo", "sequence-mean-token-sum-norm", "none")),
        ({"loss_type": "cispo", "scale_rewards": "batch"}, ("cispo", "token-mean", "batch")),
        ({"loss_type": "luspo", "scale_rewards": True}, ("grpo", "sequence-mean-token-sum", "group")),
        ({"loss_type": "sapo"}, ("sapo", "sequence-mean-token-mean", "group")),
        ({"loss_type": "bnpo"}, ("grpo", "token-mean", "group")),
    ],
)
def test_losses(fields: dict[str, Any], expected: tuple[str, str, str]) -> None:
    values = converted(**fields)
    assert (values["grpo.loss"], values["grpo.loss_agg_mode"], values["grpo.advantage_scaling"]) == expected


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"loss_type": "vespo"}, "loss_type"),
        ({"loss_type": "bnpo", "gradient_accumulation_steps": 2}, "loss_type"),
        ({"loss_type": "sapo", "importance_sampling_level": "sequence"}, "importance_sampling_level"),
        ({"optim": "galore_adamw"}, "optim"),
        ({"optim": "rmsprop"}, "optim"),
        ({"lr_scheduler_type": "polynomial"}, "lr_scheduler_type"),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": 2}}, "lr_scheduler_kwargs"),
        ({"generation_kwargs": {"num_beams": 2}}, "num_beams"),
        ({"metric_for_best_model": "loss", "load_best_model_at_end": True}, "metric_for_best_model"),
        ({"model_init_kwargs": {"dtype": "float16"}}, "dtype"),
        ({"max_completion_length": None}, "max_completion_length"),
    ],
)
def test_values_without_a_counterpart_are_named(fields: dict[str, Any], name: str) -> None:
    with raises(ConfigError, "unsupported_argument", name):
        converted(**fields)


def test_other_trackers_are_callbacks_of_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "trackio", dict)  # the package need not be installed
    assert reporting_callbacks(GRPOConfig(report_to=["wandb", "trackio"])) == [{}]
    with raises(ConfigError, "unsupported_argument", "nothing_ml"):
        reporting_callbacks(GRPOConfig(report_to="nothing_ml"))


def test_a_tracker_of_transformers_is_refused_by_name_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.integrations.integration_utils", None)
    with raises(ConfigError, "unsupported_argument", "trackio"):
        reporting_callbacks(GRPOConfig(report_to="trackio"))


def test_the_upper_bound_of_cispo_is_the_weight_itself() -> None:
    assert converted(loss_type="cispo", epsilon_high=5.0)["grpo.epsilon_high"] == 4.0


def test_every_token_may_be_sampled() -> None:
    assert [converted(top_k=top_k)["generation.top_k"] for top_k in (0, -1, None, 5)] == [None, None, None, 5]


def test_a_cosine_without_cycles_has_no_restart() -> None:
    assert converted(lr_scheduler_type="cosine_with_restarts") == converted(lr_scheduler_type="cosine")
    with raises(ConfigError, "unsupported_argument", "num_cycles"):
        converted(lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs={"num_cycles": 2})


def test_evaluations_require_rows() -> None:
    args = GRPOConfig(eval_strategy="steps")
    with raises(ConfigError, "invalid_config", "eval_dataset"):
        evaluation_values(args, plan_batches(args, 8), 0)


def test_the_warm_up_counts_updates() -> None:
    assert converted(max_steps=20, num_iterations=2, warmup_steps=5)["optimizer.warmup_ratio"] == 0.25
    assert converted(warmup_steps=0.1)["optimizer.warmup_ratio"] == 0.1
    assert converted(warmup_steps=9, lr_scheduler_type="constant")["optimizer.warmup_ratio"] == 0.0


@pytest.mark.parametrize(
    "fields", [{}, {"loss_type": "cispo", "epsilon_high": 5.0}, {"optim": "sgd"}, {"optim": "adafactor"}]
)
def test_the_configuration_accepts_what_is_converted(fields: dict[str, Any]) -> None:
    config = compose_overrides([assign(key, value) for key, value in converted(**fields).items()])
    assert config.optimizer.learning_rate == 1e-6
    assert config.grpo.beta == 0.0


@pytest.mark.parametrize(
    ("modules", "pattern"),
    [
        (None, r"(.*\.)?(q_proj|v_proj)"),
        (["v_proj", "up_proj"], r"(.*\.)?(up_proj|v_proj)"),
        ("all-linear", None),
        (r".*attn.*", r".*attn.*"),
    ],
)
def test_modules_of_an_adapter(modules: Any, pattern: str | None) -> None:
    values = adapter_values({"r": 4, "target_modules": modules})
    assert values["model.lora_module_path"] == pattern
    assert (values["model.lora_rank"], values["model.lora_alpha"], values["model.lora_init"]) == (4, 8, "peft")


@pytest.mark.parametrize("name", ["use_dora", "use_rslora", "modules_to_save", "rank_pattern"])
def test_parts_that_adapters_lack_are_named(name: str) -> None:
    with raises(ConfigError, "unsupported_argument", f"peft_config.{name}"):
        adapter_values({"r": 4, name: {"a": 1}})


def test_dropout_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert adapter_values({"r": 4, "lora_dropout": 0.05}) == adapter_values({"r": 4, "lora_dropout": 0.0})
    (record,) = caplog.records
    assert "peft_config.lora_dropout=0.05" in record.getMessage()


def test_the_defaults_of_peft_are_accepted() -> None:
    peft = pytest.importorskip("peft")
    assert adapter_values(peft.LoraConfig())["model.lora_rank"] == 8


def converted(**fields: Any) -> dict[str, Any]:
    args = GRPOConfig(**fields)
    return convert(args, plan_batches(args, 64))
