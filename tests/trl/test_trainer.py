"""`GRPOTrainer` with TRL's arguments."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent_tunix.errors import ConfigError, DataError
from agent_tunix.trl import GRPOConfig, GRPOTrainer
from agent_tunix.trl.inputs import as_conversations, is_conversational, prompt_values, read_rows, reward_components
from tests.raising import raises

CONVERSATIONS = [{"prompt": [{"role": "user", "content": f"What is {n} + 1?"}], "answer": str(n + 1)} for n in range(8)]
TEXTS = [{"prompt": f"What is {n} + 1? ", "answer": str(n + 1)} for n in range(8)]


def has_answer(completions: Any, answer: Any, **kwargs: Any) -> list[float]:
    texts = [one if isinstance(one, str) else one[0]["content"] for one in completions]
    return [float(reference in text) for text, reference in zip(texts, answer, strict=True)]


def is_short(completions: Any, **kwargs: Any) -> list[float]:
    return [-float(len(one if isinstance(one, str) else one[0]["content"])) for one in completions]


class Guess:
    """An environment that scores."""

    def reset(self, **row: Any) -> None:
        self.found = False

    def get_reward(self) -> float:
        return float(self.found)

    def guess(self, number: int) -> str:
        """Guess a number.

        Args:
            number: The guess.
        """
        return "no"


def trainer(**arguments: Any) -> GRPOTrainer:
    given = {"model": "embedded:tiny_qwen3", "reward_funcs": has_answer, "train_dataset": CONVERSATIONS}
    return GRPOTrainer(**{**given, **arguments})


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"model": SimpleNamespace(config=SimpleNamespace(_name_or_path="owner/name"))}, "owner/name"),
        ({"args": SimpleNamespace(learning_rate=1e-6)}, "args"),
        ({"optimizers": (object(), None)}, "optimizers"),
        ({"rollout_func": has_answer}, "rollout_func"),
        ({"reward_processing_classes": [object()]}, "reward_processing_classes"),
        ({"reward_funcs": SimpleNamespace(state_dict=dict, config=SimpleNamespace())}, "reward_funcs"),
        ({"processing_class": SimpleNamespace(name_or_path="other/model")}, "processing_class"),
        ({"train_dataset": iter(CONVERSATIONS)}, "train_dataset"),
        ({"train_dataset": {"train": CONVERSATIONS, "test": CONVERSATIONS}}, "pass one of them"),
        ({"train_dataset": None}, "train_dataset"),
        ({"train_dataset": None, "environment_factory": Guess}, "max_steps"),
        ({"train_dataset": [{"prompt": "Describe it.", "image": b""}]}, "image"),
        ({"peft_config": {"r": 4, "use_dora": True}}, "use_dora"),
    ],
)
def test_arguments_without_a_counterpart_are_named(arguments: dict[str, Any], name: str) -> None:
    with raises(ConfigError, "unsupported_argument", name):
        trainer(**arguments)


def test_a_launcher_of_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with raises(ConfigError, "unsupported_argument", "WORLD_SIZE"):
        trainer()


def test_what_scripts_touch_around_training_is_there() -> None:
    mine = trainer(args=GRPOConfig("out"), callbacks=[Log])
    mine.add_callback(Log)
    mine.remove_callback(Log)  # the first of its class, as in TRL
    assert len(mine._callbacks) == 1
    mine.args.distributed_state.wait_for_everyone()
    mine.model.config.use_cache = True
    assert not mine.is_fsdp_enabled
    mine.end()


def test_fields_without_an_effect_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    trainer(args=GRPOConfig("out", dataloader_num_workers=2, use_vllm=True))
    (record,) = caplog.records
    assert "dataloader_num_workers=2" in record.getMessage()
    assert "use_vllm=True" in record.getMessage()


def test_a_run_to_resume_must_exist(tmp_path: Path) -> None:
    with raises(ConfigError, "invalid_config", "checkpoint-100"):
        trainer(args=GRPOConfig("out", use_cpu=True)).train(resume_from_checkpoint=str(tmp_path / "checkpoint-100"))


def test_the_name_of_a_dataset_is_no_rows() -> None:
    with raises(ConfigError, "invalid_config", "load_dataset"):
        trainer(train_dataset="trl-lib/tldr")


def test_rows_must_have_prompts() -> None:
    with raises(DataError, "missing_column", "prompt"):
        trainer(train_dataset=[{"question": "What is 1 + 1?"}])


def test_an_environment_makes_the_prompts_of_rows_without() -> None:
    args = GRPOConfig("out", max_steps=3, per_device_train_batch_size=16, use_cpu=True)
    mine = trainer(train_dataset=None, environment_factory=Guess, args=args)
    assert mine._rows == [{"prompt": [{"role": "user", "content": ""}]}] * 2
    rows = read_rows([{"environment": "game"}], "train_dataset", has_environment=True)
    assert rows == [{"environment": "game", "prompt": [{"role": "user", "content": ""}]}]


def test_texts_stay_as_they_are() -> None:
    (first, *_) = as_conversations(TEXTS)
    assert first == {"prompt": [{"role": "user", "content": "What is 0 + 1? "}], "answer": "1"}
    assert not is_conversational(TEXTS)
    assert prompt_values(False, None, "m")["rewards.completions"] == "text"
    assert prompt_values(True, None, "m")["rewards.completions"] == "messages"


def test_the_template_of_the_tokenizer_is_used() -> None:
    tokenizer = SimpleNamespace(name_or_path="m", chat_template="{{ messages }}")
    assert prompt_values(True, tokenizer, "m")["prompt.chat_template"] == "{{ messages }}"


def test_unused_columns_can_be_removed() -> None:
    assert read_rows(TEXTS, "train_dataset", only_prompt=True)[0].keys() == {"prompt"}


def test_a_stream_is_read_up_to_the_last_step() -> None:
    assert len(read_rows(iter(TEXTS), "train_dataset", limit=3)) == 3


def test_components_have_the_names_and_weights_of_trl() -> None:
    partial = functools.partial(is_short, scale=2)
    functions = [has_answer, partial, lambda completions, **kwargs: [0.0], is_short, "owner/reward-model"]
    components = reward_components(functions, [1, 2, 3, 4, 5], None, {None: Guess})
    assert {name: one["weight"] for name, one in components.items()} == {
        "has_answer": 1.0, "is_short": 2.0, "lambda": 3.0, "is_short_2": 4.0, "reward_model": 5.0, "Guess": 1.0,
    }  # fmt: skip
    assert components["reward_model"]["args"] == {"path": "owner/reward-model"}


def test_weights_must_fit_the_functions() -> None:
    with raises(ConfigError, "invalid_config", "reward_weights"):
        reward_components([has_answer], [1.0, 2.0], None, {})


def test_other_names_come_from_trl_or_are_unknown() -> None:
    import agent_tunix.trl

    with pytest.raises(ImportError, match="SFTTrainer"):
        agent_tunix.trl.__getattr__("SFTTrainer")


class Log:
    """Keeps what callbacks get."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.logs.append(dict(logs))

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        self.evaluations.append(dict(metrics))


SMALL = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 6,
    "max_steps": 2,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "gradient_checkpointing": False,
    "use_cpu": True,
}


# What TRL 1.16 logs of a step without tools, with `beta=0` and `loss_type="dapo"`, besides the reward functions' own.
FIGURES_OF_TRL = {
    *("loss", "grad_norm", "learning_rate", "num_tokens", "reward", "reward_std", "frac_reward_zero_std", "entropy"),
    *(f"completions/{which}_length" for which in ("mean", "min", "max")),
    *(f"completions/{which}_terminated_length" for which in ("mean", "min", "max")),
    *("completions/clipped_ratio", "step_time", "epoch", "step"),
    *(f"clip_ratio/{which}" for which in ("low_mean", "high_mean", "region_mean", "low_min", "high_max")),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> GRPOTrainer:
    """Return the trainer of a run with weights, an adapter, an evaluation and callbacks."""
    output = tmp_path_factory.mktemp("trl") / "out"
    args = GRPOConfig(
        str(output),
        **SMALL,
        reward_weights=[1.0, 0.01],
        eval_strategy="steps",
        eval_steps=2,
        num_generations_eval=2,
    )
    trained = trainer(
        reward_funcs=[has_answer, is_short],
        args=args,
        eval_dataset=CONVERSATIONS[:2],
        callbacks=[Log()],
        peft_config={"r": 2, "lora_alpha": 4},
    )
    trained.train()
    return trained


@pytest.mark.slow
def test_figures_have_the_names_of_trl(trained: GRPOTrainer) -> None:
    history = trained.state.log_history
    assert [row["step"] for row in history if "loss" in row] == [1, 2]
    first = history[0]
    assert first["reward"] == pytest.approx(first["rewards/has_answer/mean"] + 0.01 * first["rewards/is_short/mean"])
    own = {f"rewards/{name}/{leaf}" for name in ("has_answer", "is_short") for leaf in ("mean", "std")}
    assert first.keys() == FIGURES_OF_TRL | own
    assert [row["step"] for row in history if "eval_reward" in row] == [2]


@pytest.mark.slow
def test_callbacks_get_them(trained: GRPOTrainer) -> None:
    (log,) = trained._callbacks
    assert [row.get("reward") for row in log.logs[:2]] == [row["reward"] for row in trained.state.log_history[:2]]
    assert len(log.evaluations) == 1


@pytest.mark.slow
def test_the_adapter_is_saved_for_peft(trained: GRPOTrainer) -> None:
    trained.save_model(trained.args.output_dir)
    trained.save_model()  # replaces its own
    assert (Path(trained.args.output_dir) / "adapter_config.json").is_file()


@pytest.mark.slow
def test_the_policy_is_evaluated_on_other_rows(trained: GRPOTrainer) -> None:
    figures = trained.evaluate(CONVERSATIONS[2:5], metric_key_prefix="test")
    assert figures["test_num_problems"] == 3
    assert "test_rewards/has_answer/mean" in figures


@pytest.mark.slow
def test_a_second_run_gets_its_own_directory_and_the_first_resumes(trained: GRPOTrainer) -> None:
    assert trained.run is not None
    assert trained.run.directory.name == "out-run"
    trained.args.max_steps = 3
    assert trained.train(resume_from_checkpoint=True).global_step == 3
    assert trained.run.directory.name == "out-run"


@pytest.mark.slow
def test_texts_are_prompts_without_a_template(tmp_path: Path) -> None:
    trained = trainer(train_dataset=TEXTS, args=GRPOConfig(str(tmp_path / "out"), **SMALL))
    trained.train()
    assert trained.run is not None
    assert set(trained.run.rollouts()["prompt"]) <= {row["prompt"].strip() for row in TEXTS} | {
        row["prompt"] for row in TEXTS
    }
