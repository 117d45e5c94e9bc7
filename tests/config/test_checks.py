"""Settings that cannot run are refused, each by a message with the key, what arrived and the remedy."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_tunix.config.checks import check, micro_batch_size, suggest_key
from agent_tunix.config.optimizers import OPTIMIZERS, SCHEDULES
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import ConfigError


def config_with(**settings: Any) -> Config:
    """The defaults with some keys set; `__` stands for the dot: `grpo__beta=0.1`."""
    config = Config()
    for name, value in settings.items():
        set_key(config, name.replace("__", "."), value)
    return config


def set_key(config: Config, key: str, value: Any) -> None:
    *groups, leaf = key.split(".")
    target: Any = config
    for group in groups:
        target = getattr(target, group)
    assert leaf in {field.name for field in dataclasses.fields(target)}
    setattr(target, leaf, value)


def refusal_of(config: Config) -> str:
    with pytest.raises(ConfigError) as caught:
        check(config)
    return str(caught.value)


def problems_of(config: Config) -> str:
    """The message, or "" where the configuration passes."""
    try:
        check(config)
    except ConfigError as error:
        return str(error)
    return ""


def suggestions_in(message: str) -> list[tuple[str, int]]:
    """The keys and values after `try`."""
    return [(key, int(value)) for key, value in re.findall(r"([a-z_]+\.[a-z_]+)=(\d+)", message.partition("; try ")[2])]


def test_the_defaults_pass() -> None:
    check(Config())


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("scheduler.kind", "cosin", "did you mean cosine?"),
        ("model.dtype", "float16", "auto, float32, bfloat16"),
        ("grpo.kl_estimator", "k1", "low_var_kl, mse_kl, not 'k1'; the expected gradient of k1 as a loss is zero"),
        ("grpo.loss", "gspo-token", "did you mean gspo_token?"),
        ("grpo.loss_agg_mode", "token_mean", "did you mean token-mean?"),
        ("grpo.advantage_scaling", "leave-one-out", "did you mean leave_one_out?"),
        ("grpo.epsilon_c", float("inf"), "finite"),
        ("grpo.reference_sync_steps", -1, "at least 0"),
        ("grpo.reference_sync_mix", 0.0, "above 0 and at most 1"),
        ("grpo.dynamic_sampling_rounds", -1, "at least 0"),
        ("generation.over_long", "dropp", "did you mean drop?"),
        ("prompt.without_system_role", "folded", "did you mean fold?"),
        ("prompt.num_few_shot", -1, "at least 0"),
        ("prompt.template", "no slots", "`{question}`"),
        ("prompt.template", "", "`{question}`"),
        ("prompt.template", "{{question}}", "`{question}`"),
        ("prompt.date", "26 Jul 2024", "a date YYYY-MM-DD"),
        ("training.log_level", "DEBUG", "debug, info"),
        ("evaluation.inference_config", "gredy", "did you mean greedy?"),
        ("distributed.platform", "cuda", "auto, cpu, gpu, tpu"),
        ("tracking.progress", "lively", "did you mean live?"),
        ("rewards.on_failure", "excluded", "did you mean exclude?"),
        ("grpo.num_generations", 1, "at least 2"),
        ("grpo.num_iterations", 0, "at least 1"),
        ("training.batch_size", 0, "at least 1"),
        ("training.micro_batch_size", 0, "at least 1"),
        ("training.gradient_accumulation_steps", -1, "at least 1"),
        ("training.num_batches", 0, "null goes through all rows"),
        ("training.num_epochs", 0, "at least 1"),
        ("training.max_checkpoints_to_keep", 0, "resuming needs one"),
        ("training.eval_every_n_steps", -1, "at least 0"),
        ("evaluation.num_samples", 0, "at least 1"),
        ("evaluation.num_passes", 0, "at least 1"),
        ("data.num_train", 0, "at least 1"),
        ("data.answer_mark", "some", "one of auto, none, always"),
        ("data.max_row_bytes", 0, "at least 1"),
        ("generation.top_k", 0, "null keeps every token"),
        ("generation.temperature", 0.0, "above 0"),
        ("generation.temperature", float("nan"), "above 0"),
        ("generation.top_p", 0.0, "above 0 and at most 1"),
        ("generation.top_p", 1.5, "at most 1"),
        ("generation.min_p", 1.0, "at least 0 and below 1"),
        ("generation.min_p", -0.1, "0 keeps every token"),
        ("generation.eos_tokens", [], "null takes the tokenizer's own"),
        ("generation.eos_tokens", [-1], "null takes the tokenizer's own"),
        ("grpo.beta", -0.1, "at least 0"),
        ("grpo.beta", float("inf"), "finite"),
        ("grpo.epsilon", 1.0, "below 1"),
        ("optimizer.learning_rate", float("nan"), "at least 0 and finite"),
        ("optimizer.beta1", 1.0, "below 1"),
        ("optimizer.weight_decay", float("inf"), "finite"),
        ("optimizer.warmup_ratio", 1.1, "at most 1"),
        ("training.train_fraction", 0.0, "1 trains on every row"),
        ("rewards.max_failure_rate", 1.01, "at most 1"),
        ("model.lora_rank", -1, "0 trains all weights"),
        ("model.lora_alpha", 0.0, "above 0"),
        ("rollouts.share", 1.5, "at most 1"),
        ("rollouts.max_file_mb", 0.0, "above 0"),
        ("model.lora_module_path", "(q_proj", "regular expression"),
        ("model.mesh_shape", [1], "[1,1]"),
        ("model.mesh_shape", [], "[1,1]"),
        ("model.mesh_shape", [0, 1], "[1,1]"),
        ("model.mesh_shape", [1, 2, 0], "[1,1]"),
        ("model.mesh_shape", 2, "[1,1]"),
        ("model.mesh_shape", "all", "auto"),
        ("model.mesh_shape", [1, 1, 1, 1], "[1,1]"),
        ("seed", -1, "at least 0"),
        ("seed", 2**32, "at most 4294967295"),
        ("rewards.args", {"math": 3}, "rewards.args.math.PARAMETER=VALUE"),
        ("reward.components", {"correct": 1.0}, "{function: …, weight: …}"),
    ],
)
def test_a_wrong_setting_is_named_with_what_arrived_and_the_remedy(key: str, value: Any, remedy: str) -> None:
    config = Config()
    set_key(config, key, value)
    message = refusal_of(config)
    assert "\n" not in message, "one wrong setting is one line"
    assert key in message
    arrived = next(iter(value.values())) if isinstance(value, dict) else value
    assert str(arrived) in message
    assert remedy in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("grpo.num_generations", 2),
        ("grpo.beta", 0.0),
        ("generation.temperature", 1e-4),
        ("generation.top_k", 1),
        ("training.num_batches", None),
        ("training.eval_every_n_steps", 0),
        ("training.save_interval_steps", 0),
        ("optimizer.learning_rate", 0.0),
        ("optimizer.max_grad_norm", 0.0),
        ("rewards.max_failure_rate", 0.0),
        ("rewards.max_failure_rate", 1.0),
        ("rollouts.share", 0.0),
        ("model.lora_rank", 4),
        ("seed", 2**32 - 1),
    ],
)
def test_the_edge_of_a_range_passes(key: str, value: Any) -> None:
    config = Config()
    set_key(config, key, value)
    check(config)


def test_several_problems_are_reported_together() -> None:
    message = refusal_of(config_with(grpo__num_generations=1, scheduler__kind="cosin", training__num_batches=0))
    assert len(message.splitlines()) == 3


# --- algorithms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"loss": "gspo", "loss_agg_mode": "token-mean"}, "take grpo.loss=gspo_token, or grpo.loss_agg_mode="),
        ({"loss": "reinforce", "num_iterations": 2}, "must be 1, not 2; grpo.loss=grpo takes more"),
        ({"loss": "reinforce", "epsilon_high": 0.28}, "grpo.epsilon_high does nothing with grpo.loss=reinforce"),
        ({"loss": "reinforce", "epsilon_c": 3.0}, "grpo.epsilon_c does nothing with grpo.loss=reinforce"),
        ({"epsilon_c": 1.2}, "grpo.epsilon_c 1.2 must be above 1 + the upper clip, 1.2; 3 is usual"),
        ({"epsilon_c": 1.5, "epsilon_high": 0.6}, "above 1 + the upper clip, 1.6"),
        ({"dynamic_sampling_rounds": 1, "advantage_scaling": "component"}, "set dynamic_sampling_rounds=0 or another"),
        ({"reference_sync_steps": 10, "beta": 0.0}, "set it to 0, or set grpo.beta above 0"),
    ],
)
def test_settings_of_an_algorithm_that_contradict_each_other(settings: dict[str, Any], remedy: str) -> None:
    message = refusal_of(config_with(**{f"grpo__{name}": value for name, value in settings.items()}))
    assert "\n" not in message
    assert remedy in message


def test_an_adapter_is_copied_into_the_reference_and_never_mixed() -> None:
    settings = {"grpo__reference_sync_steps": 10, "model__lora_rank": 8}
    assert "set grpo.reference_sync_mix=1 with model.lora_rank 8" in refusal_of(config_with(**settings))
    check(config_with(**settings, grpo__reference_sync_mix=1.0))


def test_a_model_that_is_not_embedded_needs_a_path() -> None:
    message = refusal_of(config_with(model__model_size="custom"))
    assert "model.path=DIR" in message
    check(config_with(model__model_size="custom", model__path="/models/qwen3"))


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_does_not_divide_is_told_with_values_that_do() -> None:
    message = refusal_of(config_with(training__batch_size=12, training__micro_batch_size=8))
    assert message == (
        "training.batch_size 12 must be divisible by training.micro_batch_size 8;"
        " try training.batch_size=16 or training.micro_batch_size=6"
    )


def test_the_three_sizes_of_a_batch_must_agree() -> None:
    settings = {"training__batch_size": 12, "training__micro_batch_size": 4}
    check(config_with(**settings, training__gradient_accumulation_steps=3))
    message = refusal_of(config_with(**settings, training__gradient_accumulation_steps=2))
    assert "training.gradient_accumulation_steps 2 = 8 must be training.batch_size 12" in message
    assert ("training.gradient_accumulation_steps", 3) in suggestions_in(message)


def test_accumulation_steps_that_do_not_divide_the_batch() -> None:
    message = refusal_of(config_with(training__batch_size=12, training__gradient_accumulation_steps=5))
    assert "must be divisible by training.gradient_accumulation_steps 5" in message
    assert "None" not in message
    assert suggestions_in(message) == [("training.batch_size", 15), ("training.gradient_accumulation_steps", 4)]


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt"])
def test_what_the_run_gives_the_chat_template_is_no_argument_of_yours(name: str) -> None:
    message = refusal_of(config_with(prompt__template_args={name: "x"}))
    assert message == f"prompt.template_args.{name} is what the run itself gives the chat template; leave it out"


@pytest.mark.parametrize(("micro", "steps", "expected"), [(None, None, 12), (4, None, 4), (None, 3, 4), (4, 3, 4)])
def test_the_micro_batch_follows_from_what_is_given(micro: int | None, steps: int | None, expected: int) -> None:
    config = config_with(
        training__batch_size=12, training__micro_batch_size=micro, training__gradient_accumulation_steps=steps
    )
    assert micro_batch_size(config) == expected


def test_completions_of_a_micro_batch_are_divided_among_the_devices() -> None:
    config = config_with(training__batch_size=3, grpo__num_generations=3, model__mesh_shape=[2, 1])
    message = refusal_of(config)
    assert "3 prompts × grpo.num_generations 3 = 9 completions must be divisible by 2" in message
    assert suggestions_in(message) == [("training.batch_size", 4), ("grpo.num_generations", 4)]


def test_rows_are_divided_over_data_and_fsdp_together_and_not_over_tp() -> None:
    sizes = {"training__batch_size": 2, "grpo__num_generations": 3}
    check(config_with(**sizes, model__mesh_shape=[3, 2, 5]))
    message = refusal_of(config_with(**sizes, model__mesh_shape=[2, 2, 1]))
    assert "2 prompts × grpo.num_generations 3 = 6 completions must be divisible by 4" in message
    assert ("grpo.num_generations", 4) in suggestions_in(message)


SIZES = st.integers(1, 64)


@settings(deadline=None)
@given(
    batch=SIZES,
    micro=st.none() | SIZES,
    steps=st.none() | SIZES,
    generations=st.integers(2, 9),
    fsdp=st.sampled_from([1, 2, 3, 4, 8]),
)
def test_what_a_message_suggests_passes(
    batch: int, micro: int | None, steps: int | None, generations: int, fsdp: int
) -> None:
    settings = {
        "training__batch_size": batch,
        "training__micro_batch_size": micro,
        "training__gradient_accumulation_steps": steps,
        "grpo__num_generations": generations,
        "model__mesh_shape": [fsdp, 1],
    }
    config = config_with(**settings)
    if not (message := problems_of(config)):
        size = micro_batch_size(config)
        assert batch % size == 0
        assert size * generations % fsdp == 0
        return
    suggested = suggestions_in(message)
    assert suggested or "try another model.mesh_shape" in message
    for key, value in suggested:
        mended = config_with(**settings | {key.replace(".", "__"): value})
        if remaining := problems_of(mended):
            # Where no single value mends both the division and the devices, the division is mended first.
            assert fsdp > 1
            assert "that model.mesh_shape divides rows over" in remaining


# --- lengths ---------------------------------------------------------------------------------------------------------


def test_prompt_and_completion_must_fit_the_cache() -> None:
    lengths = {"generation__max_prompt_length": 96, "generation__max_generation_steps": 32}
    check(config_with(**lengths, generation__cache_size=128))
    message = refusal_of(config_with(**lengths, generation__cache_size=127))
    assert "96 + generation.max_generation_steps 32 = 128 must fit in generation.cache_size 127" in message
    assert suggestions_in(message) == [("generation.cache_size", 128)]
    check(config_with(**lengths, generation__cache_size=128))


# --- unknown keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("training.batchsize", "; did you mean training.batch_size?"),
        ("batch_size", "; did you mean training.batch_size or evaluation.batch_size?"),
        ("training.learning_rate", "; did you mean optimizer.learning_rate?"),
        ("lora_rnk", "; did you mean model.lora_rank?"),
        ("optimzer", "; did you mean optimizer?"),
        ("hydra.rundir", "; did you mean hydra.run.dir?"),
        ("training.batch_size", ""),
        ("zzz.qqq", ""),
    ],
)
def test_the_key_that_was_meant(key: str, suggestion: str) -> None:
    assert suggest_key(key, Config) == suggestion


def test_keys_of_another_program_are_not_suggested() -> None:
    assert suggest_key("checkpoint_dri", EvaluateConfig) == "; did you mean checkpoint_dir?"
    assert suggest_key("optimzer", EvaluateConfig) == ""


# What the chosen optimiser and schedule read.


@pytest.mark.parametrize(
    ("kind", "key", "value", "readers"),
    [
        ("sgd", "beta2", 0.9, "adamw, lion, muon"),
        ("sgd", "epsilon", 1e-8, "adamw, adafactor, muon"),
        ("adamw", "momentum", 0.9, "adafactor, muon, sgd"),
        ("adamw", "nesterov", False, "muon, sgd"),
        ("lion", "decay_rate", 0.8, "adafactor"),
        ("muon", "scale_by_weights", True, "adafactor"),
    ],
)
def test_a_key_that_the_optimiser_does_not_read_is_refused(kind: str, key: str, value: Any, readers: str) -> None:
    message = refusal_of(config_with(optimizer__kind=kind, **{f"optimizer__{key}": value}))
    assert message.startswith(f"optimizer.{key} {value} is not read by optimizer.kind={kind}, but by {readers};")


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [("constant", "final_ratio", 1.0), ("cosine", "decay_ratio", 0.1), ("inverse_sqrt", "decay_shape", "sqrt")],
)
def test_a_key_that_the_schedule_does_not_read_is_refused(kind: str, key: str, value: Any) -> None:
    message = refusal_of(config_with(scheduler__kind=kind, **{f"scheduler__{key}": value}))
    assert message.startswith(f"scheduler.{key} {value} is not read by scheduler.kind={kind}")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimiser_passes_with_all_that_it_reads_given(kind: str) -> None:
    check(config_with(optimizer__kind=kind, **{f"optimizer__{key}": value for key, value in OPTIMIZERS[kind].items()}))


@pytest.mark.parametrize("kind", SCHEDULES)
def test_every_schedule_passes_with_all_that_it_reads_given(kind: str) -> None:
    check(config_with(scheduler__kind=kind, **{f"scheduler__{key}": value for key, value in SCHEDULES[kind].items()}))


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("norm", "optimizer.groups.a must be {match: REGULAR_EXPRESSION, …}, not 'norm'"),
        ({"freeze": True}, "optimizer.groups.a must be {match: REGULAR_EXPRESSION, …}"),
        ({"match": "("}, "optimizer.groups.a.match must be a regular expression, not '(': "),
        ({"match": 3}, "optimizer.groups.a.match must be str, not 3"),
        ({"match": "x", "lr": 1}, "optimizer.groups.a.lr does not exist; there are match, learning_rate,"),
        ({"match": "x", "learning_rate": -1}, "optimizer.groups.a.learning_rate must be at least 0 and finite, not -1"),
        ({"match": "x", "learning_rate": "1"}, "optimizer.groups.a.learning_rate must be int or float, not '1'"),
        ({"match": "x", "weight_decay": True}, "optimizer.groups.a.weight_decay must be int or float, not True"),
        ({"match": "x", "weight_decay": float("nan")}, "optimizer.groups.a.weight_decay must be at least 0 and finite"),
        ({"match": "x", "freeze": 1}, "optimizer.groups.a.freeze must be bool, not 1"),
        ({"match": "x", "learning_rate": 1, "learning_rate_scale": 1}, "optimizer.groups.a has learning_rate and"),
        ({"match": "x", "freeze": True, "weight_decay": 1}, "optimizer.groups.a is frozen, so weight_decay would do"),
    ],
)
def test_a_group_that_means_nothing_is_refused(group: Any, message: str) -> None:
    assert refusal_of(config_with(optimizer__groups={"a": group})).startswith(message)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a.b", "rest", 3])
def test_a_groups_name_must_do_for_a_metric(name: Any) -> None:
    assert "must be named by letters" in refusal_of(config_with(optimizer__groups={name: {"match": "x"}}))


def test_a_groups_rate_needs_a_schedule_to_follow() -> None:
    groups = {"a": {"match": "x", "learning_rate": 1.0}}
    assert "which is 0" in refusal_of(config_with(optimizer__groups=groups, optimizer__learning_rate=0.0))


def test_a_warmup_share_beside_a_number_of_steps_is_refused() -> None:
    message = refusal_of(config_with(optimizer__warmup_steps=3, optimizer__warmup_ratio=0.5))
    assert "optimizer.warmup_ratio 0.5 would do nothing beside optimizer.warmup_steps 3" in message
    check(config_with(optimizer__warmup_steps=3))
