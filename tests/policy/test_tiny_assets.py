"""The files of the embedded model: its tokenizer, chat template, sizes and weights."""

import json
import re

import pytest
from safetensors.numpy import load_file

from agent_tunix.data.generated import word_problems
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL

TOKENIZER = Tokenizer(EMBEDDED_MODEL)
SYSTEM = "Show your work between <reasoning> and </reasoning>, then give the result between <answer> and </answer>."
ROWS = word_problems.make_problems("test", 1000, seed=0)


def prompt(question: str) -> str:
    return TOKENIZER.render_chat([{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}])


@pytest.mark.parametrize("tag", ["<reasoning>", "</reasoning>", "<answer>", "</answer>"])
def test_a_tag_is_one_token_that_decoding_keeps(tag: str) -> None:
    ids = TOKENIZER.encode(tag)
    assert len(ids) == 1
    assert TOKENIZER.decode(ids) == tag


def test_every_byte_and_every_digit_is_a_token_of_its_own() -> None:
    vocabulary = json.loads((EMBEDDED_MODEL / "tokenizer.json").read_text())["model"]["vocab"]
    assert sum(len(token) == 1 for token in vocabulary) >= 256
    assert len(TOKENIZER.encode("1234567890")) == 10
    assert not [token for token in vocabulary if re.search(r"\d.|.\d", token)]


def test_prompts_fit_64_tokens_and_worked_completions_28() -> None:
    assert max(len(TOKENIZER.encode(prompt(row["question"]))) for row in ROWS) <= 64
    for row in ROWS:
        worked, _, final = row["answer"].partition("\n#### ")
        completion = f"<reasoning>{worked}</reasoning><answer>{final}</answer><|im_end|>"
        assert len(TOKENIZER.encode(completion)) <= 28


def test_the_weights_are_small_and_have_the_type_and_shapes_of_the_configuration() -> None:
    config = json.loads((EMBEDDED_MODEL / "config.json").read_text())
    assert (EMBEDDED_MODEL / "model.safetensors").stat().st_size <= 1_500_000
    tensors = load_file(EMBEDDED_MODEL / "model.safetensors")
    assert {str(tensor.dtype) for tensor in tensors.values()} == {config["torch_dtype"]}
    assert tensors["model.embed_tokens.weight"].shape == (config["vocab_size"], config["hidden_size"])
    assert "lm_head.weight" not in tensors
    assert config["vocab_size"] == TOKENIZER.vocab_size
    assert (config["eos_token_id"], config["pad_token_id"]) == (TOKENIZER.eos_id(), TOKENIZER.pad_id())
    assert (config["model_type"], config["rope_theta"]) == ("qwen3", 1_000_000)
