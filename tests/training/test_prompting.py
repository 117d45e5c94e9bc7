"""Examples as encoded prompts: which are left out and counted, what a batch holds, what decides the token ids."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agent_tunix.config.schema import Config, PromptConfig
from agent_tunix.data import Example, load_splits
from agent_tunix.data.prompting import Prompts, encode_examples, fingerprint_prompts, settle_prompts
from agent_tunix.errors import ConfigError, DataError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL
from tests.raising import raises
from tests.training.support import small_run

# Of the default run's 4,096 training prompts, in order, as they were before prompts could be configured.
DEFAULT_IDS = "2b7cf1ba77e8c9d7ddf89a0e63e44d32791854f127fe61bfbb1b38f56fc2409a"


def example(prompt: str, index: int, messages: Any = None, **columns: Any) -> Example:
    return Example(prompt, {"question": prompt, "answer": "2", **columns}, index, messages)


EXAMPLES = [example("1 + 1?", 1), example("2 + 2?", 2), example("What is 3 plus 3, if you may say so?", 3)]


def encode(examples: list[Example] = EXAMPLES, /, **prompt: Any) -> Prompts:
    config = dataclasses.replace(Config(), prompt=PromptConfig(**prompt))
    config.generation.max_prompt_length = 200
    return encode_examples(examples, Tokenizer(EMBEDDED_MODEL, config.prompt), config)


def test_the_default_run_has_the_prompt_ids_that_it_always_had() -> None:
    config = small_run("data.num_train=4096", "data.num_test=500")
    train, _, _ = load_splits(config)
    ids = encode_examples(train, Tokenizer(EMBEDDED_MODEL, config.prompt), config).token_ids
    assert hashlib.sha256(json.dumps([list(row) for row in ids]).encode()).hexdigest() == DEFAULT_IDS


def test_a_batch_holds_the_conversation_that_the_model_sees() -> None:
    talk = (
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "?"},
    )
    prompts = encode([*EXAMPLES, example("?", 4, talk)], system="Be brief.", few_shot=[{"prompt": "0?", "answer": "0"}])
    batch = prompts.batch([3, 0])
    opening = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "0?"},
        {"role": "assistant", "content": "0"},
    ]
    assert batch.messages == [[*opening, *talk], [*opening, {"role": "user", "content": "1 + 1?"}]]
    assert batch.prompts == ["?", "1 + 1?"]
    tokenizer = Tokenizer(EMBEDDED_MODEL)
    assert [tokenizer.encode(tokenizer.render_chat(messages)) for messages in batch.messages] == batch.token_ids


def test_what_cannot_be_put_is_left_out_and_counted() -> None:
    bad_role = ({"role": "admin", "content": "x"},)
    prompts = encode(
        [*EXAMPLES, example("x", 9, bad_role), example("1 + 1?", 12)], few_shot=[{"prompt": "1 + 1?", "answer": "2"}]
    )
    assert [row.index for row in prompts.examples] == [2, 3]
    assert prompts.dropped.describe() == (
        "2 × used as a worked example (lines 1, 12), 1 × a role that is not one of system, user, assistant, tool"
        " (line 9; message 1 has 'admin')"
    )


def test_what_the_chat_template_refuses_is_left_out_and_counted() -> None:
    template = (
        "{% for m in messages %}{% if 'no' in m.content %}{{ raise_exception('never') }}{% endif %}{{ m.content }}"
    )
    prompts = encode([*EXAMPLES, example("say no", 4)], chat_template=template + "{% endfor %}")
    assert len(prompts.examples) == 3
    assert prompts.dropped.describe() == (
        "1 × rejected by the chat template (line 4; prompt.chat_template refuses these messages: never)"
    )


def test_without_any_prompt_left_the_reasons_are_told() -> None:
    with raises(DataError, "invalid_prompt", "1 × used as a worked example"):
        encode(EXAMPLES[:1], few_shot=[{"prompt": "1 + 1?", "answer": "2"}])


def test_over_long_prompts_are_counted_with_worked_examples_in_them() -> None:
    config = Config()
    config.prompt.few_shot = [{"prompt": "9?", "answer": "9"}]
    tokenizer = Tokenizer(EMBEDDED_MODEL)
    config.generation.max_prompt_length = 200
    lengths = [len(ids) for ids in encode_examples(EXAMPLES, tokenizer, config).token_ids]
    config.generation.max_prompt_length = max(lengths) - 1
    prompts = encode_examples(EXAMPLES, tokenizer, config)
    assert prompts.dropped.describe() == f"1 × prompt over {max(lengths) - 1} tokens (line 3; {max(lengths)} tokens)"
    config.generation.over_long = "refuse"
    with pytest.raises(DataError, match=f"max_prompt_length={max(lengths)} or"):
        encode_examples(EXAMPLES, tokenizer, config)


PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
BASE = {"system": "Be kind.", "template": "{question}", "chat_template": PLAIN}


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"system": "Be brief."}, False),
        ({"system": None}, False),
        ({"template": "{question} Go."}, False),
        ({"few_shot": [{"prompt": "9?", "answer": "9"}]}, False),
        ({"chat_template": "{% for m in messages %}{{ m.content }}!{% endfor %}"}, False),
        ({"chat_template": None}, False),
        ({"format": "{answer}!"}, True),
        ({"date": "2031-01-01"}, True),
        ({"without_system_role": "refuse"}, True),
    ],
)
def test_the_fingerprint_is_that_of_the_prompts(other: dict[str, Any], same: bool) -> None:
    assert (fingerprint(**BASE) == fingerprint(**{**BASE, **other})) is same


def test_the_date_counts_where_the_template_writes_it() -> None:
    template = PLAIN + "{{ strftime_now('%Y') }}"
    one, other = (fingerprint(chat_template=template, date=date) for date in ("2030-01-01", "2031-01-01"))
    assert one != other


def fingerprint(**prompt: Any) -> str:
    config = PromptConfig(**prompt)
    return fingerprint_prompts(config, Tokenizer(EMBEDDED_MODEL, config))


def settled(**prompt: Any) -> Config:
    return settle_prompts(dataclasses.replace(Config(), prompt=PromptConfig(**prompt)))


def test_settled_prompts_need_nothing_but_their_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{{ messages }}")
    config = settled(num_few_shot=2, chat_template=str(tmp_path / "mine.jinja"))
    assert config.prompt.chat_template == "{{ messages }}"
    assert len(config.prompt.few_shot) == 2
    assert settle_prompts(config) == config


def test_worked_examples_of_a_stream_are_drawn_from_its_first_rows() -> None:
    config = small_run("prompt.num_few_shot=2", "data.streaming=true", "data.num_train=2000")
    first = {example.prompt for example in load_splits(small_run("data.num_train=1000"))[0]}
    shown = [shot["prompt"] for shot in settle_prompts(config).prompt.few_shot]
    assert len(shown) == 2
    assert first >= set(shown)


def test_a_template_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigError, match=r"prompt.chat_template=nowhere.jinja"):
        settled(chat_template="nowhere.jinja")
