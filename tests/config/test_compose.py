import dataclasses
import functools
import itertools
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, MissingConfigException
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from agent_tunix.config.checks import check
from agent_tunix.config.compose import (
    compose_overrides,
    find_conf_directory,
    from_yaml,
    register_schema,
    to_evaluate,
    to_typed,
    to_yaml,
)
from agent_tunix.config.schema import Config, EvaluateConfig
from agent_tunix.errors import ConfigError
from agent_tunix.policy.families import FAMILIES
from agent_tunix.policy.files.location import parse_location

CONF = find_conf_directory()
CHOICES = sorted(file.relative_to(CONF).with_suffix("").as_posix() for file in CONF.glob("*/*.yaml"))
# What a choice leaves to the user, as its error says.
REQUIRED = {
    "model/qwen3": ["model.path=DIR"],
    "data/gsm8k": ["data.path=DIR"],
    "grpo/gigpo": ["environment.name=guess_number"],
    "engine/vllm": ["engine.urls=[http://localhost:8000]"],
    "engine/sglang": ["engine.urls=[http://localhost:30000]"],
    "engine/agent_tunix": ["engine.num_processes=1"],
}
# Choices of a model that lies on no hub.
UNNAMED = {"model/qwen3", "model/tiny", "model/tiny_tools"}


def composed(*overrides: str) -> Config:
    register_schema()
    with initialize_config_dir(str(CONF), version_base=None):
        return to_typed(compose("config", list(overrides)))


@functools.cache
def config_of(*choices: str) -> Config:
    """The configuration with one choice of each of some groups, to be read alone."""
    overrides = [f"{'+' if choice.startswith('experiment/') else ''}{choice.replace('/', '=')}" for choice in choices]
    return composed(*overrides, *(required for choice in choices for required in REQUIRED.get(choice, [])))


def choices_of(*groups: str) -> list[str]:
    return [choice for choice in CHOICES if choice.partition("/")[0] in groups]


MODELS = choices_of("model")
OTHERS = [choice for choice in CHOICES if choice not in choices_of("model", "data", "experiment")]
# Each choice of a model beside one of another group, which takes half the time.
PAIRS = [tuple(filter(None, pair)) for pair in itertools.zip_longest(MODELS, OTHERS)]


def test_the_defaults_of_conf_are_those_of_the_schema() -> None:
    from_conf = composed()
    assert from_conf.prompt.system is not None  # the one difference: the schema asks the model for nothing
    from_conf.prompt.system = None
    assert from_conf == Config()


@pytest.mark.parametrize("choices", PAIRS, ids=" ".join)
def test_every_choice_composes_and_passes(choices: tuple[str, ...]) -> None:
    check(config_of(*choices))


DATA, EXPERIMENTS = choices_of("data"), [None, *choices_of("experiment")]
# Each dataset and each experiment at least once.
ONCE = [
    (EXPERIMENTS[place % len(EXPERIMENTS)], DATA[place % len(DATA)])
    for place in range(max(len(DATA), len(EXPERIMENTS)))
]


@pytest.mark.parametrize(("experiment", "data"), ONCE)
def test_experiments_go_with_datasets(experiment: str | None, data: str) -> None:
    check(config_of(data) if experiment is None else config_of(experiment, data))


@pytest.mark.parametrize("choices", [pair for pair in PAIRS if pair[0] in MODELS and pair[0] not in UNNAMED])
def test_a_named_model_can_be_trained_and_says_its_licence(choices: tuple[str, ...]) -> None:
    choice, model = choices[0], config_of(*choices).model
    location = parse_location(model.path)
    assert location is not None
    assert location.revision is None
    assert model.model_family in FAMILIES
    assert (model.lora_rank, model.lora_alpha) == (16, 32.0)
    assert choice.endswith(model.model_size.replace(".", "_"))
    text = (CONF / f"{choice}.yaml").read_text("utf-8")
    assert f"https://huggingface.co/{location.name}\n" in text
    gated = location.name.startswith(("google/gemma-2", "google/gemma-3", "meta-llama/"))
    assert ("; gated: accept" in text) == gated
    assert ("; not gated." in text) != gated


def test_every_size_that_is_promised_is_named() -> None:
    sizes = {
        "gemma3": "270m 1b 4b 12b 27b",
        "gemma2": "2b 9b",
        "gemma4": "e2b e4b",
        "qwen2_5": "0_5b 1_5b 3b 7b",
        "qwen3": "0_6b 1_7b 4b 8b 14b 32b 30b_a3b",
        "qwen3_5": "0_8b 2b 4b",
        "llama3_2": "1b 3b",
        "llama3_1": "8b",
        "olmo3": "7b",
        "smollm3": "3b",
    }
    promised = {f"model/{name}_{size}" for name, of in sizes.items() for size in of.split()}
    assert set(MODELS) - UNNAMED == promised


def test_a_dataset_sets_lengths_and_sizes_below_an_experiment_and_the_command_line() -> None:
    data, default, quick = config_of("data/gsm8k"), Config(), config_of("experiment/quick_test")
    assert data.data.source == "jsonl"
    assert (data.generation.max_prompt_length, default.generation.max_prompt_length) == (512, None)
    assert data.training.batch_size < default.training.batch_size
    assert data.evaluation.num_samples < default.evaluation.num_samples
    both = composed("data=gsm8k", "+experiment=quick_test", "seed=5")
    assert (both.training.num_batches, both.seed) == (10, 5)
    assert both.evaluation.num_samples == quick.evaluation.num_samples
    assert both.training.batch_size == data.training.batch_size
    assert composed("data=gsm8k", "training.batch_size=6").training.batch_size == 6


def test_arguments_of_a_reward_are_set_without_a_plus() -> None:
    assert composed("rewards.args.short.limit=10").rewards.args == {"short": {"limit": 10}}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.reward_function=math", "math"),
        ("training.reward_function=[math,format]", ["math", "format"]),
        (
            "training.reward_function={correct: math, tags: {function: format, weight: 0.2}}",
            {"correct": "math", "tags": {"function": "format", "weight": 0.2}},
        ),
        ("training.reward_function='a dir/rewards.py:mine'", "a dir/rewards.py:mine"),
    ],
)
def test_the_forms_of_a_reward_arrive_as_plain_values(override: str, expected: object) -> None:
    found = composed(override).training.reward_function
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("override", ["grpo.gamma=1", "grpo.beta=much", "optimzer=adamw", "training.resume=maybe"])
def test_what_the_schema_does_not_know_is_refused(override: str) -> None:
    with pytest.raises(ConfigCompositionException, match=override.split("=")[0].split(".")[-1]):
        composed(override)


@pytest.mark.parametrize("override", ["data=gsm", "reward=nope", "+experiment=quick"])
def test_a_choice_that_is_not_there_is_refused(override: str) -> None:
    with pytest.raises(MissingConfigException, match=override.removeprefix("+").replace("=", "/")):
        composed(override)


@pytest.mark.parametrize(
    ("override", "code", "words"),
    [
        ("+training.batchsize=3", "unknown_key", "no key training.batchsize; did you mean training.batch_size?"),
        ("++model.rank=3", "unknown_key", "no key model.rank"),
        ("+batch_size=3", "unknown_key", "did you mean training.batch_size or evaluation.batch_size?"),
        ("+actor_rollout_ref.rollout.n=8", "unknown_key", "did you mean grpo.num_generations?"),
        ("model.path=???", "missing_value", "set model.path=VALUE"),
        ("seed=???", "missing_value", "set seed=VALUE"),
        ("model.path=${nowhere}", "invalid_override", "nowhere"),
    ],
)
def test_a_key_that_nothing_reads_and_a_value_that_is_missing(override: str, code: str, words: str) -> None:
    with raises(ConfigError, code) as caught:
        composed(override)
    assert words in str(caught.value)


def test_a_request_for_an_evaluation_knows_its_own_keys_only() -> None:
    register_schema()
    with initialize_config_dir(str(CONF), version_base=None):
        assert to_evaluate(compose("evaluate", ["checkpoint_dir=run", "step=3"])) == EvaluateConfig("run", 3)
        with raises(ConfigError, "unknown_key") as caught:
            to_evaluate(compose("evaluate", ["+checkpoint_dri=run"]))
    assert "did you mean checkpoint_dir" in str(caught.value)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["${a}", "$5 ${x}$ \\", "\\${a}", "\\\\${a}", "{{ '${' }}", "a\\${${", "\x85", "1e3 \x85\n'a'\u2028\\"]
)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
ARGUMENTS = st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.integers() | NUMBER | st.booleans())


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=NUMBER,
    system=st.none() | TEXT.filter(lambda s: s != "???"),
    tokens=st.none() | st.lists(st.integers(0, 200_000)),
    arguments=ARGUMENTS,
)
def test_what_a_run_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    rate: float,
    system: str | None,
    tokens: list[int] | None,
    arguments: dict[str, object],
) -> None:
    config = Config(seed=seed)
    config.optimizer.learning_rate = rate
    config.prompt.system = system
    config.prompt.few_shot = [{"prompt": system or "x", "answer": tokens, "more": {"text": system or ""}}]
    config.generation.eos_tokens = tokens
    config.rewards.args = {"mine": arguments}
    config.training.reward_function = {"mine": {"function": "math", "weight": rate}}
    path = tmp_path_factory.mktemp("run") / "config.yaml"
    path.write_text(to_yaml(config), encoding="utf-8")
    assert dataclasses.asdict(from_yaml(path)) == dataclasses.asdict(config)


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", "invalid_run_config", "no keys"),
        (b"- a\n- b\n", "invalid_run_config", "no keys"),
        (b"text", "unknown_key", "no key text"),
        (b"seed: [1", "invalid_run_config", "config"),
        (b"seed: \xff\xfe", "invalid_run_config", "config"),
        (b"seed: many\n", "invalid_config", "seed"),
        (b"training: {batchsize: 3}\n", "unknown_key", "did you mean training.batch_size"),
        (b"seed: 1\nseed: 2\n", "invalid_run_config", "duplicate key"),
        (
            b"seed: !!python/object/apply:os.system ['true']\n",
            "invalid_run_config",
            "a constructor",
        ),
        (b"prompt: {few_shot: [{prompt: '${oc.env:HOME}'}]}\n", "invalid_run_config", "${oc.env:HOME}"),
        (b"project_name: ???\n", "missing_value", "project_name"),
    ],
)
def test_a_damaged_config_of_a_run_is_refused(content: bytes, code: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with raises(ConfigError, code) as caught:
        from_yaml(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_directory_that_is_no_run_is_named(tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_run_config"):
        from_yaml(tmp_path / "config.yaml")


def test_an_agent_has_a_short_and_a_long_spelling() -> None:
    short = compose_overrides(["environment.agent=my_agent.py:solve", "environment.agent.timeout_s=120"])
    assert (short.environment.agent.function, short.environment.agent.timeout_s) == ("my_agent.py:solve", 120.0)
    quoted = "training.wandb_project='environment.agent=x'"
    assert compose_overrides([quoted]).training.wandb_project == "environment.agent=x"
    long = compose_overrides(["environment.agent.command='node agent.js'"])
    assert (long.environment.agent.function, long.environment.agent.command) == (None, "node agent.js")
