"""Tokenizer directories made by code, one for each convention of the model families, and chat templates like theirs.

The templates use the Jinja features that the families' own use (namespaces, loops backwards, `tojson`, `strftime_now`,
`raise_exception`, loop controls, generation blocks); their words are ours.
"""

import functools
import json
from pathlib import Path
from typing import Any, Literal

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from agent_tunix.data.generated.word_problems import make_problems

CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
HEADER_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TURN_TOKENS = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
INST_TOKENS = ("<unk>", "<s>", "</s>")

# A default system message, tools as JSON, results of tools inside a user's turn.
QWEN2 = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Functions\\n' }}
    {%- for tool in tools %}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are careful.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or message.role == 'assistant' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<result>\\n' + message.content + '\\n</result>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""

# Looks for the last question from behind, drops the thoughts of earlier turns, opens or closes the model's thoughts.
QWEN3 = """\
{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set found = namespace(searching=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set place = messages | length - 1 - loop.index0 %}
    {%- if found.searching and message.role == 'user' and not (message.content.startswith('<result>')) %}
        {%- set found.searching = false %}{%- set found.last = place %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if '</think>' in content and loop.index0 < found.last %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{- content }}{% endgeneration %}{{- '<|im_end|>\\n' }}
    {%- else %}{%- continue %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""

# Writes the beginning of the sequence, and today into the system message.
LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}
    {%- else %}{%- set date_string = '01 Jan 2024' %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = '' %}{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + date_string + '\\n\\n' }}
{%- if tools is not none %}{{- tools | tojson(indent=4) }}{%- endif %}
{{- system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""

# Knows no system message, and wants turns to alternate.
GEMMA2 = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role here') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns must alternate') }}{% endif %}
{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}
""".replace("\n{%", "{%").replace("\n{{", "{{")

# Puts the system message before the user's first one by itself.
GEMMA3 = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set opening = messages[0]['content'] + '\n\n' -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set opening = '' -%}{%- set turns = messages -%}{%- endif -%}
{%- for message in turns -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (opening if loop.first else '') }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}
"""

# Turns marked by words around the text, the beginning of the sequence before each user's turn.
LLAMA2 = """\
{% for message in messages %}{% if message.role == 'user' %}{{ bos_token + '[INST] ' + message.content + ' [/INST]' }}\
{% elif message.role == 'assistant' %}{{ ' ' + message.content + ' ' + eos_token }}\
{% else %}{{ raise_exception('only user and assistant') }}{% endif %}{% endfor %}
"""

# For a base model: no special token, and text directly before and after the user's.
TRANSCRIPT = """\
{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}

{% elif m.role == 'user' %}Question: {{ m.content }}
Answer:{% else %} {{ m.content }}

{% endif %}{% endfor %}
"""

Prefix = Literal["none", "each", "first"]


def save(
    directory: Path,
    tokenizer: tokenizers.Tokenizer,
    template: str | None,
    *,
    eos: str,
    bos: str | None = None,
    adds_bos: Literal["no", "processor", "config"] = "no",
    **settings: Any,
) -> Path:
    """Write a tokenizer's directory, as transformers reads it too."""
    directory.mkdir(parents=True, exist_ok=True)
    if adds_bos == "processor":
        assert bos is not None
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    elif adds_bos == "config":
        settings["add_bos_token"] = True
    tokenizer.save(str(directory / "tokenizer.json"))
    named = {"bos_token": bos, "eos_token": eos, "chat_template": template}
    values = {"tokenizer_class": "PreTrainedTokenizerFast", **named, **settings}
    (directory / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return directory


def byte_level(special: tuple[str, ...], added: tuple[str, ...] = ()) -> tokenizers.Tokenizer:
    """Byte-level BPE, as Qwen and Llama 3 have it."""
    tokenizer = tokenizers.Tokenizer.from_str(_trained_byte_level())
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
    return tokenizer


def sentencepiece(
    special: tuple[str, ...], prefix: Prefix = "none", added: tuple[str, ...] = ()
) -> tokenizers.Tokenizer:
    """BPE over "▁" with byte fallback: Gemma puts none before a text, Llama 2 one before each piece or the first."""
    pieces, merges = _trained_pieces()
    vocabulary = {text: number for number, text in enumerate([*special, *_BYTES, *pieces])}
    model = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    replace = normalizers.Replace(" ", "▁")
    if prefix == "none":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif prefix == "each":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in added])
    return tokenizer


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = ("Question:", "Answer:", "user\n", "model\n", "assistant\n", "system\n", "[INST] What", "Today: ")


@functools.cache
def _texts() -> list[str]:
    problems = [str(problem["question"]) for problem in make_problems("train", 300, 0)]
    return [*problems, *_WORDS * 20, *(f"{number}{'.,;:!?'[number % 6]}\n" for number in range(300))]


@functools.cache
def _trained_byte_level() -> str:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    words = r"'\p{L}+|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    return str(tokenizer.to_str())


@functools.cache
def _trained_pieces() -> tuple[list[str], list[tuple[str, str]]]:
    """Pieces and merges, also across line breaks and between words and signs, as SentencePiece learns them."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(_texts(), trainers.BpeTrainer(vocab_size=600, show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].get)
    return pieces, [tuple(merge) for merge in model["merges"]]
