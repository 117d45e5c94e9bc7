import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from agent_tunix.config.checks import check, micro_batch_size
from agent_tunix.config.compose import compose_overrides
from agent_tunix.config.limits import Bounds, OneOf, limit_of
from agent_tunix.config.other_names import suggest_key
from agent_tunix.config.schema import OPTIMIZERS, SCHEDULES, Config, EvaluateConfig
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
    with raises(ConfigError, "invalid_config") as caught:
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
    """The keys and values after `use`."""
    return [(key, int(value)) for key, value in re.findall(r"([a-z_]+\.[a-z_]+)=(\d+)", message.partition("; use ")[2])]


def test_the_defaults_pass() -> None:
    check(Config())


def limited(group: Any, prefix: str = "") -> Iterator[tuple[str, Bounds | OneOf]]:
    """The keys that have a range or choices."""
    for field in dataclasses.fields(group):
        if dataclasses.is_dataclass(field.type):
            yield from limited(field.type, f"{prefix}{field.name}.")
        elif (limit := limit_of(field.type)) is not None:
            yield f"{prefix}{field.name}", limit


# Those that also take a user's own function are checked where it is looked up.
LIMITS = {key: limit for key, limit in limited(Config) if not getattr(limit, "own", False)}


def beyond(limit: Bounds | OneOf) -> list[Any]:
    """Values next to the limit, outside it."""
    if isinstance(limit, OneOf):
        return [f"{limit.choices[0]}x", ""]
    values = [limit.gt, limit.lt] if limit.lt is None else [limit.gt, limit.lt, float("nan")]
    values += [limit.ge - 1] if limit.ge is not None else []
    values += [limit.le + 1] if limit.le is not None else []
    return [value for value in values if value is not None]


@pytest.mark.parametrize("key", LIMITS)
def test_a_value_beyond_the_limit_of_its_key_is_refused(key: str) -> None:
    for value in beyond(LIMITS[key]):
        config = Config()
        set_key(config, key, value)
        assert re.search(rf"{key} must be (null or )?{re.escape(f'{LIMITS[key]}, not {value!r}')}", refusal_of(config))


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("scheduler.kind", "cosin", "did you mean cosine?"),
        ("model.lora_rank", -1, "0 trains all weights"),
        ("grpo.kl_estimator", "k1", "unbiased_kl, not 'k1'; the expected gradient of k1 as a loss is zero"),
        ("prompt.without_system_role", "folded", "did you mean fold?"),
        ("prompt.template", "no slots", "`{question}`"),
        ("prompt.template", "{{question}}", "`{question}`"),
        ("prompt.date", "26 Jul 2024", "a date YYYY-MM-DD"),
        ("grpo.num_generations", 1, "at least 2"),
        ("training.max_checkpoints_to_keep", 0, "resuming requires one"),
        ("generation.top_k", 0, "must be null or at least 1, not 0; null keeps every token"),
        ("generation.eos_tokens", [], "null takes the tokenizer's own"),
        ("generation.eos_tokens", [-1], "null takes the tokenizer's own"),
        ("generation.stop_strings", [""], "not empty"),
        ("generation.stop_strings", [r"\nQuestion:"], "line feeds"),
        ("model.lora_module_path", "(q_proj", "regular expression"),
        ("model.mesh_shape", [1], "[1,1]"),
        ("model.mesh_shape", 2, "[1,1]"),
        ("model.mesh_shape", "all", "auto"),
        ("model.mesh_shape", [1, 1, 1, 1], "[1,1]"),
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
        ("optimizer.learning_rate", 0.0),
        ("rewards.max_failure_rate", 1.0),
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


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"loss": "gspo", "loss_agg_mode": "token-mean"}, "requires grpo.loss_agg_mode=sequence-mean-token-mean"),
        ({"loss": "gmpo", "loss_agg_mode": "token-mean"}, "requires grpo.loss_agg_mode=sequence-mean-token-mean"),
        ({"loss": "sapo", "epsilon_high": 0.28}, "grpo.epsilon_high must be null with grpo.loss=sapo"),
        ({"loss": "cispo", "epsilon_c": 3.0}, "grpo.epsilon_c must be null with grpo.loss=cispo"),
        ({"loss": "reinforce", "num_iterations": 2}, "it is 2; use grpo.loss=grpo"),
        ({"loss": "reinforce", "epsilon_high": 0.28}, "grpo.epsilon_high must be null with grpo.loss=reinforce"),
        ({"loss": "reinforce", "epsilon_c": 3.0}, "grpo.epsilon_c must be null with grpo.loss=reinforce"),
        ({"epsilon_c": 1.2}, "grpo.epsilon_c must be above 1 + the upper clip = 1.2, not 1.2; 3 is usual"),
        ({"epsilon_c": 1.5, "epsilon_high": 0.6}, "above 1 + the upper clip = 1.6"),
        ({"dynamic_sampling_rounds": 1, "advantage_scaling": "component"}, "set it to 0, or use another scaling"),
        ({"sampler_correction": "token", "num_iterations": 2}, "set grpo.sampler_correction=none"),
        ({"entropy_target": 0.5}, "requires grpo.entropy_coefficient above 0"),
        ({"off_policy_threshold": 0.1}, "requires grpo.num_iterations above 1"),
        ({"loss": "gmpo", "top_entropy_share": 0.2}, "grpo.top_entropy_share must be 1 with grpo.loss=gmpo"),
        (
            {"sampler_correction": "sequence", "num_iterations": 2},
            "set grpo.sampler_correction=none, or a mask: icepop, sequence_mask, geometric_mask",
        ),
        ({"sampler_correction_floor": 0.5}, "not auto; remove it, or choose one of them"),
        ({"sampler_correction_cap": 3.0}, "applies none to this run; remove it, or set grpo.sampler_correction=token"),
        ({"sampler_correction_cap": 3.0, "replay_groups": 4}, "remove it, or set grpo.sampler_correction=icepop"),
        ({"sampler_correction": "token", "sampler_correction_floor": 0.5}, "not token; remove it"),
        ({"sampler_correction": "icepop", "sampler_correction_cap": 0.4}, "0.5 is not below 0.4; set both"),
        ({"loss": "dppo_tv", "epsilon_c": 3.0}, "grpo.epsilon_c must be null with grpo.loss=dppo_tv"),
        ({"length_exponent": 0.75}, "requires grpo.loss_agg_mode=length-weighted-token-sum"),
        ({"observation_nll": 0.05}, "requires tools, an environment or an agent"),
        ({"loss": "none"}, "set one of them, or another loss"),
        ({"teacher_top_k": 8}, "set grpo.teacher, or remove the key"),
        ({"teacher_prompt": "{{ prompt }}"}, "set grpo.teacher=self or a model"),
        ({"reference_sync_steps": 10, "beta": 0.0}, "set grpo.reference_sync_steps=0, or grpo.beta above 0"),
    ],
)
def test_settings_of_an_algorithm_that_contradict_each_other(settings: dict[str, Any], remedy: str) -> None:
    message = refusal_of(config_with(**{f"grpo__{name}": value for name, value in settings.items()}))
    assert "\n" not in message
    assert remedy in message


def test_a_limit_of_a_harness_requires_one() -> None:
    assert "or remove the limit" in refusal_of(config_with(evaluation__harness_limit=5))
    check(config_with(evaluation__harness_limit=5, evaluation__harness="lm_eval:gsm8k"))


@pytest.mark.parametrize("settings", [{"grpo__dynamic_sampling_rounds": 2}, {"data__sampling": "pass_rate"}])
def test_nothing_is_sampled_ahead_that_depends_on_results(settings: dict[str, Any]) -> None:
    message = refusal_of(config_with(**settings, engine__max_staleness=1))
    assert "engine.max_staleness must be 0 with" in message
    assert next(iter(settings)).replace("__", ".") in message


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"grpo__history_turns": 1}, "grpo.history_turns requires grpo.credit=hgpo, but it is episode"),
        (
            {"grpo__credit": "role", "environment__tools": ["calculator"]},
            "requires an agent, whose requests have roles",
        ),
        ({"grpo__credit": "hgpo", "environment__agent__function": "a.py:f"}, "use grpo.credit=turn or role"),
    ],
)
def test_credit_that_an_episode_cannot_have(settings: dict[str, Any], remedy: str) -> None:
    message = refusal_of(config_with(**settings))
    assert "\n" not in message
    assert remedy in message


def test_an_adapter_is_copied_into_the_reference_and_never_mixed() -> None:
    settings = {"grpo__reference_sync_steps": 10, "model__lora_rank": 8}
    assert "with model.lora_rank 8; set grpo.reference_sync_mix=1" in refusal_of(config_with(**settings))
    check(config_with(**settings, grpo__reference_sync_mix=1.0))


def test_a_model_that_is_not_embedded_needs_a_path() -> None:
    assert "model.path=DIR" in refusal_of(config_with(model__model_size="custom"))
    check(config_with(model__model_size="custom", model__path="/models/qwen3"))


@pytest.mark.parametrize(
    ("settings", "words", "suggested"),
    [
        (
            {"training__batch_size": 12, "training__micro_batch_size": 8},
            "must be divisible by training.micro_batch_size, but 12 is not divisible by 8;",
            [("training.batch_size", 16), ("training.micro_batch_size", 6)],
        ),
        (
            {"training__batch_size": 12, "training__micro_batch_size": 4, "training__gradient_accumulation_steps": 2},
            "must be training.batch_size, but 4 × 2 = 8 is not 12",
            [("training.gradient_accumulation_steps", 3)],
        ),
        (
            {"training__batch_size": 12, "training__gradient_accumulation_steps": 5},
            "must be divisible by training.gradient_accumulation_steps, but 12 is not divisible by 5",
            [("training.batch_size", 15), ("training.gradient_accumulation_steps", 4)],
        ),
        (
            {"training__batch_size": 12, "training__micro_batch_size": 10**12},  # trying every number takes hours
            "but 12 is not divisible by 1000000000000;",
            [("training.batch_size", 10**12), ("training.micro_batch_size", 12)],
        ),
        (
            {"training__batch_size": 3, "grpo__num_generations": 3, "model__mesh_shape": [2, 1]},
            "3 prompts × grpo.num_generations 3 = 9 is not divisible by 2",
            [("training.batch_size", 4), ("grpo.num_generations", 4)],
        ),
        (
            {"training__batch_size": 2, "grpo__num_generations": 3, "model__mesh_shape": [2, 2, 1]},
            "2 prompts × grpo.num_generations 3 = 6 is not divisible by 4",
            [("grpo.num_generations", 4)],
        ),
        (
            {
                "generation__max_prompt_length": 96,
                "generation__max_generation_steps": 32,
                "generation__cache_size": 127,
            },
            "96 + generation.max_generation_steps 32 = 128 must be at most generation.cache_size 127",
            [("generation.cache_size", 128)],
        ),
    ],
)
def test_numbers_that_do_not_agree_are_told_with_some_that_do(
    settings: dict[str, Any], words: str, suggested: list[tuple[str, int]]
) -> None:
    message = refusal_of(config_with(**settings))
    assert words in message
    assert set(suggested) <= set(suggestions_in(message))
    for key, value in suggested:
        check(config_with(**settings | {key.replace(".", "__"): value}))


def test_rows_are_divided_over_data_and_fsdp_together_and_not_over_tp() -> None:
    check(config_with(training__batch_size=2, grpo__num_generations=3, model__mesh_shape=[3, 2, 5]))


@pytest.mark.parametrize("name", ["messages", "add_generation_prompt"])
def test_what_the_run_gives_the_chat_template_is_no_argument_of_yours(name: str) -> None:
    message = refusal_of(config_with(prompt__template_args={name: "x"}))
    assert (
        message
        == f"prompt.template_args.{name} cannot be set, because the run passes it to the chat template; remove it"
    )


@pytest.mark.parametrize(("micro", "steps", "expected"), [(None, None, 12), (4, None, 4), (None, 3, 4), (4, 3, 4)])
def test_the_micro_batch_follows_from_what_is_given(micro: int | None, steps: int | None, expected: int) -> None:
    config = config_with(
        training__batch_size=12, training__micro_batch_size=micro, training__gradient_accumulation_steps=steps
    )
    assert micro_batch_size(config) == expected


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
    assert suggested or "use another model.mesh_shape" in message
    for key, value in suggested:
        mended = config_with(**settings | {key.replace(".", "__"): value})
        if remaining := problems_of(mended):
            # Where no single value mends both the division and the devices, the division is mended first.
            assert fsdp > 1
            assert "the devices that share its rows" in remaining


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


@pytest.mark.parametrize(
    ("kind", "key", "value", "readers"),
    [
        ("optimizer.kind=sgd", "optimizer.beta2", 0.9, "; it applies to adamw, lion, muon;"),
        ("optimizer.kind=sgd", "optimizer.epsilon", 1e-8, "; it applies to adamw, adafactor, muon;"),
        ("optimizer.kind=adamw", "optimizer.momentum", 0.9, "; it applies to adafactor, muon, sgd;"),
        ("optimizer.kind=adamw", "optimizer.nesterov", False, "; it applies to muon, sgd;"),
        ("optimizer.kind=lion", "optimizer.decay_rate", 0.8, "; it applies to adafactor;"),
        ("scheduler.kind=constant", "scheduler.final_ratio", 1.0, ""),
        ("scheduler.kind=cosine", "scheduler.decay_ratio", 0.1, ""),
        ("scheduler.kind=inverse_sqrt", "scheduler.decay_shape", "sqrt", ""),
    ],
)
def test_a_key_that_the_chosen_kind_does_not_read_is_refused(kind: str, key: str, value: Any, readers: str) -> None:
    config = Config()
    set_key(config, *kind.split("="))
    set_key(config, key, value)
    assert refusal_of(config).startswith(f"{key} {value} has no effect with {kind}{readers}")


@pytest.mark.parametrize(
    ("group", "kind", "settings"),
    [*(("optimizer", *item) for item in OPTIMIZERS.items()), *(("scheduler", *item) for item in SCHEDULES.items())],
)
def test_every_kind_passes_with_all_that_it_reads_given(group: str, kind: str, settings: dict[str, Any]) -> None:
    config = Config()
    for key, value in {"kind": kind, **settings}.items():
        set_key(config, f"{group}.{key}", value)
    check(config)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("norm", "optimizer.groups.a must be {match: REGULAR_EXPRESSION, …}, not 'norm'"),
        ({"freeze": True}, "optimizer.groups.a must be {match: REGULAR_EXPRESSION, …}"),
        ({"match": "("}, "optimizer.groups.a.match must be a regular expression, not '(': "),
        ({"match": 3}, "optimizer.groups.a.match must be str, not 3"),
        ({"match": "x", "lr": 1}, "optimizer.groups.a.lr is not a key; the keys are match, learning_rate,"),
        ({"match": "x", "learning_rate": -1}, "optimizer.groups.a.learning_rate must be at least 0 and finite, not -1"),
        ({"match": "x", "learning_rate": "1"}, "optimizer.groups.a.learning_rate must be int or float, not '1'"),
        ({"match": "x", "weight_decay": True}, "optimizer.groups.a.weight_decay must be int or float, not True"),
        ({"match": "x", "weight_decay": float("nan")}, "optimizer.groups.a.weight_decay must be at least 0 and finite"),
        ({"match": "x", "freeze": 1}, "optimizer.groups.a.freeze must be bool, not 1"),
        ({"match": "x", "learning_rate": 1, "learning_rate_scale": 1}, "optimizer.groups.a must have learning_rate or"),
        (
            {"match": "x", "freeze": True, "weight_decay": 1},
            "optimizer.groups.a is frozen, so weight_decay has no effect",
        ),
    ],
)
def test_a_group_that_means_nothing_is_refused(group: Any, message: str) -> None:
    assert refusal_of(config_with(optimizer__groups={"a": group})).startswith(message)


@pytest.mark.parametrize("name", ["", "1st", "a b", "a.b", "rest", 3])
def test_a_groups_name_must_do_for_a_metric(name: Any) -> None:
    assert "must have a name of letters" in refusal_of(config_with(optimizer__groups={name: {"match": "x"}}))


def test_a_groups_rate_needs_a_schedule_to_follow() -> None:
    groups = {"a": {"match": "x", "learning_rate": 1.0}}
    assert "but it is 0" in refusal_of(config_with(optimizer__groups=groups, optimizer__learning_rate=0.0))


def test_a_warmup_share_beside_a_number_of_steps_is_refused() -> None:
    message = refusal_of(config_with(optimizer__warmup_steps=3, optimizer__warmup_ratio=0.5))
    assert "optimizer.warmup_ratio 0.5 has no effect with optimizer.warmup_steps 3" in message
    check(config_with(optimizer__warmup_steps=3))


@pytest.mark.parametrize(
    ("overrides", "fact"),
    [
        (["environment.agent.command=x"], "exclude each other"),
        (["environment.tools=[calculator]"], "environment.tools"),
        (["environment.name=guess_number"], "environment.name"),
        (["environment.schedule=arrival"], "environment.schedule"),
        (["environment.timeout_s=120"], "set environment.agent.timeout_s"),
        (["environment.num_workers=4"], "set environment.agent.max_concurrency"),
        (["distributed.mode=slurm"], "distributed.mode"),
        (["environment.agent.max_calls=0"], "environment.agent.max_calls"),
    ],
)
def test_what_contradicts_an_agent_is_refused_by_name(overrides: list[str], fact: str) -> None:
    with raises(ConfigError, "invalid_config", fact):
        check(compose_overrides(["environment.agent=my_agent.py:solve", *overrides]))


def test_the_limits_of_agents_hold_for_environments_of_verifiers() -> None:
    check(compose_overrides(["data=verifiers:gsm8k", "environment.agent.timeout_s=120"]))
    with raises(ConfigError, "invalid_config", "environment.name"):
        check(compose_overrides(["data=verifiers:gsm8k", "environment.agent=my_agent.py:solve"]))
