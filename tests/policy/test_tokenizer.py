"""The tokenizer of a directory: special tokens, ends of completions, chat templates, and files that are refused."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.tunix_tokenizer import TunixTokenizer
from hypothesis import given
from hypothesis import strategies as st
from tests import chat_tokenizers as chat
from tests.raising import raises
from transformers import AutoTokenizer
from tunix.generate.tokenizer_adapter import TokenizerAdapter

from agent_tunix.config.schema import PromptConfig
from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.chat.tokenizer import Tokenizer
from agent_tunix.policy.files.directory import EMBEDDED_MODEL

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


def test_special_tokens_of_the_template_are_single_tokens_that_decoding_leaves_out() -> None:
    assert TOKENIZER.encode("<|im_end|>") == [END]
    assert TOKENIZER.decode([*TOKENIZER.encode("four"), END]) == "four"
    assert TOKENIZER.encode("") == []  # nothing is added at the ends


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


# End and padding tokens.


def test_every_end_token_of_generation_config_ends_and_the_tokenizers_own_comes_first(directory: Path) -> None:
    configure(directory, "generation_config.json", eos_token_id=[7, END, 9])
    assert Tokenizer(directory).eos_ids == [END, 7, 9]
    assert Tokenizer(directory).eos_id() == END


@pytest.mark.parametrize("token", [None, "<|im_end|>", {"content": "<|im_end|>", "special": True}])
def test_either_file_may_name_the_end_token(directory: Path, token: Any) -> None:
    configure(directory, "tokenizer_config.json", eos_token=token)
    if token is not None:
        (directory / "generation_config.json").unlink()
    assert Tokenizer(directory).eos_ids == [END]


def test_a_template_file_that_is_not_text_is_named(directory: Path) -> None:
    (directory / "chat_template.jinja").write_bytes(b"\xff")
    with raises(ModelError, "invalid_model_config"):
        Tokenizer(directory)


def test_without_any_end_token_the_directory_is_refused(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", eos_token=None)
    (directory / "generation_config.json").unlink()
    with raises(ModelError, "invalid_tokenizer"):
        Tokenizer(directory)


def test_without_a_padding_token_the_end_token_fills_up(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", pad_token=None)
    assert Tokenizer(directory).pad_id() == END


# Damaged files.


def test_a_missing_tokenizer_json_is_refused(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()
    with raises(ModelError, "invalid_tokenizer"):
        Tokenizer(directory)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff\xfe\x00", b"[]"])
def test_a_damaged_tokenizer_json_is_named(directory: Path, content: bytes) -> None:
    (directory / "tokenizer.json").write_bytes(content)
    with raises(ModelError, "invalid_tokenizer") as caught:
        Tokenizer(directory)
    assert "tokenizer.json" in str(caught.value)


def test_a_post_processor_repeats_no_text(directory: Path) -> None:
    once = {"Sequence": {"id": "A", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [once] * 1000, "pair": [once], "special_tokens": {}}
    expected = Tokenizer(directory).encode("2 + 2")
    configure(directory, "tokenizer.json", post_processor=template)
    assert Tokenizer(directory).encode("2 + 2") == expected


def test_text_that_is_not_unicode_is_an_error_of_the_template() -> None:
    with raises(ModelError, "invalid_tokenizer"):
        TOKENIZER.encode("\ud800")


# Chat templates.


JINJA = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
RENDERED = "[Be brief.][What is 2 plus 2?]"


def test_a_setting_wins_over_a_template_file_and_that_over_the_configuration(directory: Path, tmp_path: Path) -> None:
    assert "<|im_start|>" in Tokenizer(directory).render_chat(MESSAGES)
    (directory / "chat_template.jinja").write_text(JINJA)
    assert Tokenizer(directory).render_chat(MESSAGES) == RENDERED
    (tmp_path / "mine.jinja").write_text("mine")
    for setting, expected in ((str(tmp_path / "mine.jinja"), "mine"), ("{{ 1 }}", "1")):
        tokenizer = Tokenizer(directory, PromptConfig(chat_template=setting))
        assert tokenizer.render_chat(MESSAGES) == expected


@pytest.mark.parametrize(
    ("setting", "code"), [("nowhere.jinja", "invalid_chat_template"), ("chatml", "invalid_chat_template")]
)
def test_a_setting_that_is_neither_text_nor_file_is_refused(directory: Path, setting: str, code: str) -> None:
    with raises(ConfigError, code) as caught:
        Tokenizer(directory, PromptConfig(chat_template=setting))
    assert setting in str(caught.value)


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


def test_a_template_in_an_older_file_is_found(directory: Path) -> None:
    configure(directory, "tokenizer_config.json", chat_template=...)
    with raises(ModelError, "invalid_chat_template") as caught:
        Tokenizer(directory).render_chat(MESSAGES)
    assert "set prompt.chat_template" in str(caught.value)
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": JINJA}))
    assert Tokenizer(directory).chat_template == JINJA


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ 1 / 0 }}", "division"),
    ],
)
def test_a_template_that_fails_is_an_error_of_the_model(directory: Path, template: str, said: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    with raises(ModelError, "invalid_chat_template") as caught:
        Tokenizer(directory).render_chat(MESSAGES)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("template", "said"),
    [("{% for m in messages %}", "endfor"), ("{{ messages | no_such_filter }}", "no_such_filter"), ("{{", "end of")],
)
def test_a_text_that_is_no_template_is_refused_at_once(directory: Path, template: str, said: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    with raises(ModelError, "invalid_chat_template") as caught:
        Tokenizer(directory)
    assert said in str(caught.value)


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
def test_templates_of_the_hub_find_what_they_use(directory: Path, template: str, expected: str) -> None:
    (directory / "chat_template.jinja").write_text(template)
    messages: list[Mapping[str, Any]] = [{"role": "user", "content": "é<b>"}]
    assert Tokenizer(directory).render_chat(messages) == expected


# Text for rewards.


def test_completions_never_show_special_tokens_even_if_they_are_not_marked_so(tmp_path: Path) -> None:
    made = chat.byte_level(("<|endoftext|>",), ("<|im_start|>", "<|im_end|>", "<think>"))
    tokenizer = Tokenizer(chat.save(tmp_path, made, chat.QWEN3, eos="<|im_end|>"))
    ids = made.encode("<think>4<|im_end|><|im_start|><|endoftext|>").ids
    assert tokenizer.decode_batch([ids, []]) == ["<think>4", ""]


def test_an_id_beyond_the_vocabulary_has_no_text(directory: Path) -> None:
    tokenizer = Tokenizer(directory)
    tokenizer.encode_prompts([["", "<|im_start|>", "user"]])
    assert tokenizer.decode([*tokenizer.encode("four"), tokenizer.vocab_size, tokenizer.vocab_size + 1]) == "four"


def test_tunix_accepts_the_tokenizer_that_benchmarks_give_it() -> None:
    assert TokenizerAdapter(TunixTokenizer(EMBEDDED_MODEL)).encode("What is 2 plus 2?") == TOKENIZER.encode(
        "What is 2 plus 2?"
    )
