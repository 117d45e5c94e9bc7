"""The files of the embedded model: its tokenizer, chat template, sizes and weights."""

import json
import re

import pytest

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
