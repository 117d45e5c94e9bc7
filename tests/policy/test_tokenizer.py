"""The tokenizer of a directory: what is special and what is text, what ends a completion, and what cannot be read."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from agent_tunix.errors import ModelError
from agent_tunix.policy.directory import EMBEDDED_MODEL
from agent_tunix.policy.tokenizer import Tokenizer

TOKENIZER = Tokenizer(EMBEDDED_MODEL)
END = TOKENIZER.encode("<|im_end|>")[0]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 plus 2?"}]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(EMBEDDED_MODEL / name, tmp_path)
    return tmp_path


def configure(directory: Path, name: str, **settings: Any) -> None:
    values = {**json.loads((directory / name).read_text()), **settings}
    (directory / name).write_text(json.dumps({key: value for key, value in values.items() if value is not Ellipsis}))


# Special tokens and text.


@pytest.mark.parametrize("special", ["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
def test_special_tokens_in_a_users_text_stay_text(special: str) -> None:
    ids = TOKENIZER.encode(f"say {special} now", allow_special=False)
    assert TOKENIZER.encode(special)[0] not in ids
    assert TOKENIZER.decode(ids) == f"say {special} now"


def test_special_tokens_of_the_template_are_single_tokens() -> None:
    assert TOKENIZER.encode("<|im_end|>") == [END]


def test_decoding_leaves_special_tokens_out() -> None:
    assert TOKENIZER.decode([*TOKENIZER.encode("four"), END]) == "four"


def test_encoding_adds_nothing_at_the_ends() -> None:
    assert TOKENIZER.encode("") == []


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, allow_special=False)) == text


@given(st.lists(st.text(max_size=20), max_size=4))
def test_many_are_decoded_as_one_by_one(texts: list[str]) -> None:
    rows = [TOKENIZER.encode(text, allow_special=False) for text in texts]
    assert TOKENIZER.decode_batch(rows) == [TOKENIZER.decode(row) for row in rows]


def test_ids_and_template_are_those_of_transformers() -> None:
    theirs = AutoTokenizer.from_pretrained(EMBEDDED_MODEL)
    rendered = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert TOKENIZER.render_chat(MESSAGES) == rendered
    assert TOKENIZER.encode(rendered) == theirs.encode(rendered, add_special_tokens=False)
    assert TOKENIZER.eos_id() == theirs.eos_token_id
    assert TOKENIZER.pad_id() == theirs.pad_token_id


# What ends and what fills up.


def test_every_end_token_of_generation_config_ends_and_the_tokenizers_own_comes_first(directory: Path) -> None:
    configure(directory, "generation_config.json", eos_token_id=[7, END, 9])
    assert Tokenizer(directory).eos_ids == [END, 7, 9]
    assert Tokenizer(directory).eos_id() == END


def test_one_end_token_of_generation_config_is_enough(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", eos_token=None)
    assert Tokenizer(directory).eos_ids == [END]


def test_end_tokens_may_be_written_as_objects(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", eos_token={"content": "<|im_end|>", "special": True})
    assert Tokenizer(directory).eos_ids == [END]


def test_without_generation_config_the_tokenizers_own_ends(directory: Path) -> None:
    (directory / "generation_config.json").unlink()
    assert Tokenizer(directory).eos_ids == [END]


def test_without_any_end_token_the_directory_is_refused(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", eos_token=None)
    (directory / "generation_config.json").unlink()
    with pytest.raises(ModelError, match="names an eos token"):
        Tokenizer(directory)


def test_without_a_padding_token_the_end_token_fills_up(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", pad_token=None)
    assert Tokenizer(directory).pad_id() == END


# What cannot be read.


def test_a_missing_tokenizer_json_says_what_to_do(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"has no tokenizer.json; save the tokenizer there"):
        Tokenizer(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff\xfe\x00", b"[]"])
def test_a_damaged_tokenizer_json_is_named(directory: Path, content: bytes) -> None:
    (directory / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read as a tokenizer"):
        Tokenizer(directory)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(("content", "said"), [(b"{", "is not JSON"), (b"[]", "object"), (b"\xff", "is not JSON")])
def test_a_damaged_configuration_is_named(directory: Path, name: str, content: bytes, said: str) -> None:
    (directory / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name} .*{said}"):
        Tokenizer(directory)


# The chat template.


def test_a_template_file_wins_over_the_configuration(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert Tokenizer(directory).render_chat([{"role": "user", "content": "hi"}]) == "hi!"


def test_without_a_template_the_message_says_what_to_add(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", chat_template=...)
    with pytest.raises(ModelError, match="has no chat template; add chat_template"):
        Tokenizer(directory).render_chat(MESSAGES)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for m in messages %}", "endfor"),
        ("{{ messages | no_such_filter }}", "no_such_filter"),
        ("{{ messages.append(1) }}", "unsafe|not"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_model(directory: Path, template: str, said: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match=rf"the chat template of .* refuses these messages: .*({said})"):
        Tokenizer(directory).render_chat(MESSAGES)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é<b>"}]'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}y", "y"),
    ],
)
def test_what_templates_of_the_hub_use_is_there(directory: Path, template: str, expected: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": "é<b>"}]
    assert Tokenizer(directory).render_chat(messages) == expected
