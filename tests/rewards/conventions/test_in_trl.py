"""A class from this package in a real TRL `GRPOTrainer`, on a tiny model made here (optional group `trl`)."""

import importlib
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.rewards import BaseReward, RewardConfig, resolve_reward, to_trl

pytest.importorskip("trl", reason="needs the optional group `trl`, which brings torch: pip install -e '.[trl]'")

# What TRL and its own dependencies warn of is theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORDS = ["<pad>", "<eos>", "<unk>", "What", "is", "plus", "?", *map(str, range(10)), "user", "assistant", ":"]


@dataclass(frozen=True, slots=True)
class DigitsConfig(RewardConfig):
    name: str = "digits"
    scale: float = 1.0


class Digits(BaseReward):
    """The share of words that are digits."""

    def __init__(self, config: DigitsConfig | None = None) -> None:
        super().__init__(config or DigitsConfig())
        self.seen: list[Any] = []

    def __call__(self, prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float]:
        assert isinstance(self.config, DigitsConfig)
        self.seen.append((prompts, completions, sorted(kwargs)))
        kwargs["answer"].clear()  # seen by nobody else
        texts = [completion[0]["content"].split() for completion in completions]
        return [self.config.scale * sum(word.isdigit() for word in words) / max(len(words), 1) for words in texts]


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    transformers: Any = importlib.import_module("transformers")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}"
        "{% if add_generation_prompt %}assistant : {% endif %}"
    )
    return fast


def make_model() -> Any:
    transformers: Any = importlib.import_module("transformers")
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=1,
        )
    )


def train(rewards: list[Any], directory: Path) -> list[dict[str, Any]]:
    from datasets import Dataset

    from trl import GRPOConfig, GRPOTrainer

    rows = [{"prompt": [{"role": "user", "content": f"What is {n} plus 1 ?"}], "answer": str(n + 1)} for n in range(8)]
    trainer = GRPOTrainer(
        model=make_model(),
        reward_funcs=rewards,
        args=GRPOConfig(
            output_dir=str(directory),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=6,
            max_steps=2,
            logging_steps=1,
            report_to="none",
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            bf16=False,
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=make_tokenizer(),
    )
    trainer.train()
    return [row for row in trainer.state.log_history if "reward" in row]


def test_a_mixture_is_a_reward_function_of_trl(tmp_path: Path) -> None:
    mixture = resolve_reward({"correct": "math", "brevity": {"function": "response_length", "weight": 0.1}})
    rows = train([to_trl(mixture)], tmp_path)
    assert len(rows) == 2
    assert all("rewards/correct+brevity/mean" in row for row in rows), json.dumps(rows)


def test_instances_and_pickled_functions_are_reward_functions_of_trl(tmp_path: Path) -> None:
    digits = Digits(DigitsConfig(scale=0.5))
    pickled = pickle.loads(pickle.dumps(Digits(DigitsConfig(name="pickled")).as_fn()))
    rows = train([digits, pickled], tmp_path)
    assert len(rows) == 2
    assert all(0.0 <= row["rewards/digits/mean"] <= 0.5 for row in rows), json.dumps(rows)
    assert all(0.0 <= row["rewards/pickled/mean"] <= 1.0 for row in rows)
    prompts, completions, names = digits.seen[0]
    assert len(prompts) == len(completions) == 4
    assert (prompts[0][0]["role"], completions[0][0]["role"]) == ("user", "assistant")
    assert {"answer", "completion_ids", "trainer_state"} <= set(names)
