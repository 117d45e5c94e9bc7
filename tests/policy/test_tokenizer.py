"""The tokenizer of a directory: what is special and what is text, what ends a completion, and what cannot be read."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import chat_tokenizers as chat
from transformers import AutoTokenizer

from agent_tunix.config.schema import PromptConfig
from agent_tunix.errors import ConfigError, ModelError
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


JINJA = "{% for m in messages %}[{{ m.content }}]{% endfor %}"


def test_a_template_of_the_configuration_comes_before_the_models_own(directory: Path) -> None:
    tokenizer = Tokenizer(directory, PromptConfig(chat_template=JINJA))
    assert tokenizer.render_chat(MESSAGES) == "[Be brief.][What is 2 plus 2?]"
    assert tokenizer.chat_template == JINJA


def test_a_template_may_be_given_as_a_file(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text(JINJA)
    tokenizer = Tokenizer(directory, PromptConfig(chat_template=str(tmp_path / "mine.jinja")))
    assert tokenizer.render_chat(MESSAGES) == "[Be brief.][What is 2 plus 2?]"


@pytest.mark.parametrize(
    ("setting", "said"),
    [("nowhere.jinja", "nowhere.jinja cannot be read"), ("chatml", "must be a Jinja text or the path")],
)
def test_a_template_that_is_neither_text_nor_file_is_refused(directory: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Tokenizer(directory, PromptConfig(chat_template=setting))


def test_the_configurations_arguments_and_date_reach_the_template(directory: Path) -> None:
    template = "{{ strftime_now('%Y-%m-%d') }} {{ colour }} {{ enable_thinking }}"
    prompt = PromptConfig(
        chat_template=template, template_args={"colour": "red", "enable_thinking": True}, date="2031-01-09"
    )
    assert Tokenizer(directory, prompt).render_chat(MESSAGES) == "2031-01-09 red True"


def test_of_named_templates_the_default_is_taken(directory: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": JINJA}]
    configure(directory, "tokenizer_config.json", chat_template=named)
    assert Tokenizer(directory).chat_template == JINJA


def test_a_template_in_a_file_of_its_own_kind_is_found(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", chat_template=...)
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": JINJA}))
    assert Tokenizer(directory).chat_template == JINJA


# What is hidden from rewards.


def test_completions_never_show_special_tokens_even_if_they_are_not_marked_so(tmp_path: Path) -> None:
    made = chat.byte_level(("<|endoftext|>",), ("<|im_start|>", "<|im_end|>", "<think>"))
    tokenizer = Tokenizer(chat.save(tmp_path, made, chat.QWEN3, eos="<|im_end|>"))
    ids = made.encode("<think>4<|im_end|><|im_start|><|endoftext|>").ids
    assert tokenizer.decode_batch([ids, []]) == ["<think>4", ""]


def test_an_id_beyond_the_vocabulary_has_no_text(directory: Path) -> None:
    tokenizer = Tokenizer(directory)
    tokenizer.encode_prompts([["", "<|im_start|>", "user"]])
    assert tokenizer.decode([*tokenizer.encode("four"), tokenizer.vocab_size, tokenizer.vocab_size + 1]) == "four"


# Templates.


def test_a_template_file_wins_over_the_configuration(directory: Path) -> None:
    (directory / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    assert Tokenizer(directory).render_chat([{"role": "user", "content": "hi"}]) == "hi!"


def test_without_a_template_the_message_says_what_to_add(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", chat_template=...)
    with pytest.raises(ModelError, match=r"has no chat template, .*; set prompt\.chat_template"):
        Tokenizer(directory).render_chat(MESSAGES)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
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
    ("template", "said"),
    [("{% for m in messages %}", "endfor"), ("{{ messages | no_such_filter }}", "no_such_filter"), ("{{", "end of")],
)
def test_what_is_no_template_is_refused_at_once(directory: Path, template: str, said: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelError, match=rf"the chat template of .* is not a Jinja template: .*{said}"):
        Tokenizer(directory)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages | tojson }}", '[{"role": "user", "content": "é<b>"}]'),
        ("{{ messages[0] | tojson(indent=1, sort_keys=true) }}", '{\n "content": "é<b>",\n "role": "user"\n}'),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "é<b>!"),
        ("[{{ bos_token }}]", "[]"),
        ("{{ eos_token }}", "<|im_end|>"),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{{ enable_thinking }}", "False"),
        ("{% set n = namespace(x=1) %}{% for m in messages %}{% set n.x = 2 %}{% endfor %}{{ n.x }}", "2"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% endfor %}y", "y"),
    ],
)
def test_what_templates_of_the_hub_use_is_there(directory: Path, template: str, expected: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": "é<b>"}]
    assert Tokenizer(directory).render_chat(messages) == expected
