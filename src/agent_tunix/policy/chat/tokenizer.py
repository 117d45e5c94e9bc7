"""The tokenizer of a Hugging Face directory: `tokenizer.json`, its special tokens and its chat template.

It uses only the `tokenizers` library, which reads every `tokenizer.json`. Importing transformers would add more than a
second to every start.

The class keeps two copies of the tokenizer. `_special` reads "<|im_end|>" as the special token. `_plain` reads it as
characters, which is how text from a user or a dataset must be read. A prompt contains both kinds of text. It must be
encoded in one piece, because the tokens of a text may depend on the text before it (a word joined to its space, "▁"
only before the first piece). `_plain` therefore has a guard for each special token: an added token with a text that
nobody can have written. The guard replaces the special token wherever the chat template wrote it.
"""

import contextlib
import functools
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as FastTokenizer

from agent_tunix.config.schema import PromptConfig
from agent_tunix.errors import ModelError
from agent_tunix.policy.chat.chat_template import ChatTemplate, find_chat_template, read_chat_template
from agent_tunix.policy.files.directory import fingerprint_tokenizer

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")

# Maximum texts of one call. It limits the memory for what the library returns besides ids.
_ENCODED_AT_ONCE = 4096
# Characters at each end of a rendered turn that are searched for special tokens.
_ENDS_OF_TURN = 10_000


class Tokenizer:
    """Conversion of text to token ids and back.

    Attributes:
        eos_ids: Every token id that ends a completion, the tokenizer's own first.
        vocab_size: Number of token ids, special tokens included.
    """

    def __init__(self, directory: Path, prompt: PromptConfig | None = None) -> None:
        """Read the tokenizer of a model directory.

        Args:
            directory: Model directory.
            prompt: Chat template that replaces the directory's own, its arguments and its date.

        Raises:
            ModelError: `tokenizer.json` is missing or damaged, the chat template is not valid Jinja, or no
                end-of-sequence token is known.
            ConfigError: The file of `prompt.chat_template` cannot be read.
        """
        self._directory = directory
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise ModelError(
                f"{directory} has no tokenizer.json; save the fast tokenizer there", code="invalid_tokenizer"
            )
        try:
            content = path.read_bytes()
            self._plain, self._special = (FastTokenizer.from_buffer(content) for _ in range(2))
            processor = self._special.post_processor
            self._first_special = None if processor is None else _first_special(json.loads(processor.__getstate__()))
        except Exception as error:  # the library raises no other
            raise ModelError(f"{path} cannot be read as a tokenizer: {error}", code="invalid_tokenizer") from error
        self._plain.encode_special_tokens = True
        for fast in (self._plain, self._special):
            fast.no_padding()
            fast.no_truncation()
            fast.post_processor = None  # it may repeat a text, and nothing needs the tokens that it adds
        self._settings = _read_json(directory / "tokenizer_config.json")
        self._bos = self._token_id("bos_token")
        eos = self._token_id("eos_token")
        listed = _read_json(directory / "generation_config.json").get("eos_token_id")
        extra = listed if isinstance(listed, list) else [listed]
        ids = [one for one in [eos, *extra] if isinstance(one, int) and 0 <= one < 2**31]
        self.eos_ids: list[int] = list(dict.fromkeys(ids))
        if not self.eos_ids:
            raise ModelError(
                f"{directory}: tokenizer_config.json or generation_config.json must name an eos token, but neither "
                "does; add eos_token to tokenizer_config.json",
                code="invalid_tokenizer",
            )
        pad = self._token_id("pad_token")
        self._pad: int = self.eos_ids[0] if pad is None else pad
        self.vocab_size: int = self._plain.get_vocab_size(with_added_tokens=True)
        self._template = self._read_template(prompt or PromptConfig())
        # Special token → its guard, and id of the guard → id of the special token. Guards are random in each process,
        # so that no dataset can contain one. No id that this class returns depends on them.
        self._guards: dict[str, str] = {}
        self._guarded: dict[int, int] = {}
        # `_plain` gets its guards when they are needed first, which the library forbids while another thread encodes.
        self._lock = threading.RLock()
        self._guard_prefix = f"\U0010fffd{secrets.token_hex(8)}."

    def _read_template(self, prompt: PromptConfig) -> ChatTemplate | None:
        if prompt.chat_template is not None:
            source, origin = read_chat_template(prompt.chat_template), "prompt.chat_template"
        elif (template := find_chat_template(self._directory, self._settings)) is not None:
            source, origin = template
        else:
            return None
        variables = {**self._named_tokens(), **prompt.template_args}
        return ChatTemplate(source, origin=origin, variables=variables, date=prompt.date)

    def _named_tokens(self) -> dict[str, str]:
        """Return the texts of the named special tokens by name, without those that are null."""
        texts = {name: _text_of(self._settings.get(name)) for name in _NAMED}
        return {name: text for name, text in texts.items() if text is not None}

    def _token_id(self, name: str) -> int | None:
        token = _text_of(self._settings.get(name))
        return None if token is None else self._special.token_to_id(token)

    @property
    def fingerprint(self) -> str | None:
        """A short hash of `tokenizer.json`."""
        return fingerprint_tokenizer(self._directory)

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in use, from the configuration or the directory; None without a template."""
        return None if self._template is None else self._template.source

    @functools.cached_property
    def special_texts(self) -> tuple[str, ...]:
        """The texts that are single tokens and that only a chat template may write.

        They are the tokens that `tokenizer.json` marks as special, those that the directory's configuration names, and
        those at the beginning and end of the template's user turn, marked or not.
        """
        added: Mapping[int, AddedToken] = self._special.get_added_tokens_decoder()
        named = set(self._named_tokens().values())
        listed = self._settings.get("additional_special_tokens") or self._settings.get("extra_special_tokens") or []
        listed = listed if isinstance(listed, list | dict) else []
        named |= {text for token in listed if (text := _text_of(token)) is not None}
        turn = self._render_one_turn()
        turn = turn[:_ENDS_OF_TURN] + turn[_ENDS_OF_TURN:][-_ENDS_OF_TURN:]
        tokens = [
            token
            for number, token in added.items()
            if token.special or token.content in named or number in self.eos_ids or token.content in turn
        ]
        # White space is always text. Gemma, for example, has tokens for several line breaks.
        texts = [token for token in tokens if token.content.strip()]
        # From here on `_plain` treats unmarked ones as special too. Their ids do not change.
        unmarked = [_copy(token, token.content, special=True) for token in texts if not token.special]
        with self._lock:
            self._plain.add_special_tokens(unmarked)
        return tuple(token.content for token in texts)

    def _render_one_turn(self) -> str:
        if self._template is None:
            return ""
        try:
            return self._template.render([{"role": "user", "content": "x"}], add_generation_prompt=False)
        except ModelError:  # reported when the template is used for a prompt
            return ""

    def encode(self, text: str, *, allow_special: bool = True) -> list[int]:
        """Return the token ids of a text, without tokens added at its ends.

        Args:
            text: Any text.
            allow_special: True to read "<|im_end|>" in the text as that token, False to read it as characters.
        """
        fast = self._special if allow_special else self._plain
        with self._faults(), contextlib.nullcontext() if allow_special else self._lock:
            ids: list[int] = fast.encode(text, add_special_tokens=False).ids
        return ids

    def encode_prompts(self, prompts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the token ids of many prompts, each with one beginning-of-sequence token if the tokenizer adds it.

        Args:
            prompts: Parts of each prompt: text, special token, text, special token, …, text. A text may be empty.
                Nothing in a text is read as a special token.
        """
        encoded = self.encode_parts(prompts)
        if self.adds_bos:
            assert self._bos is not None
            encoded = [ids if ids[:1] == [self._bos] else [self._bos, *ids] for ids in encoded]
        return encoded

    def encode_parts(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Return the token ids of many texts, each given in parts as for `encode_prompts`. Add no tokens."""
        with self._lock:
            return self._encode_parts(texts)

    def _encode_parts(self, texts: Sequence[Sequence[str]]) -> list[list[int]]:
        guards = {special: self._guard(special) for special in {part for parts in texts for part in parts[1::2]}}
        whole = ["".join(guards[part] if place % 2 else part for place, part in enumerate(parts)) for parts in texts]
        encoded = []
        for start in range(0, len(whole), _ENCODED_AT_ONCE):
            some = whole[start : start + _ENCODED_AT_ONCE]
            with self._faults():
                encodings = self._plain.encode_batch_fast(some, add_special_tokens=False)
            encoded += [[self._guarded.get(token, token) for token in encoding.ids] for encoding in encodings]
        return encoded

    @functools.cached_property
    def adds_bos(self) -> bool:
        """True if the tokenizer's files say that a text begins with the beginning-of-sequence token.

        `add_bos_token` in `tokenizer_config.json` decides; without it, the post-processor in `tokenizer.json` does.
        """
        if self._bos is None:
            return False
        setting = self._settings.get("add_bos_token")
        if isinstance(setting, bool):
            return setting
        return self._first_special == self._bos

    def _guard(self, special: str) -> str:
        if special not in self._guards:
            guard = f"{self._guard_prefix}{len(self._guards)}\U0010fffd"
            number = self._special.token_to_id(special)
            self._plain.add_tokens([_copy(self._special.get_added_tokens_decoder()[number], guard, special=False)])
            self._guarded[self._plain.token_to_id(guard)] = number
            self._guards[special] = guard
        return self._guards[special]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without special tokens."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, ids_of_rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of many rows of token ids, without special tokens."""
        hidden = self._hidden_ids
        rows = [[int(token) for token in ids if int(token) not in hidden] for ids in ids_of_rows]
        with self._faults():
            texts: list[str] = self._special.decode_batch(rows, skip_special_tokens=True)
        return texts

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Raise ModelError if the library fails.

        A pattern of `tokenizer.json` may take too many steps, and the chat template may write invalid Unicode.
        """
        try:
            yield
        except Exception as error:  # the library raises no other
            raise ModelError(
                f"the tokenizer of {self._directory} cannot convert a text: {error}; use another tokenizer or chat "
                "template",
                code="invalid_tokenizer",
            ) from error

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the text of each token, for a person to read.

        Special tokens are as they are written. A token that is only part of a character has the text "\ufffd".
        """
        first = self.encode("x", allow_special=False)
        before, *texts = self.decode_batch([first, *([*first, token] for token in ids)])
        hidden = self._hidden_ids
        return [
            self._special.id_to_token(token) if token in hidden else text.removeprefix(before)
            for token, text in zip(ids, texts, strict=True)
        ]

    def token_texts(self) -> list[str]:
        """Return the text that each token id adds to a text; "" for special tokens.

        A token that is only part of a character has the text "\ufffd".
        """
        # Decoders treat the first token of a text differently, so every token is decoded after the same one.
        first = self.encode("x", allow_special=False)
        before, *texts = self.decode_batch([first, *([*first, token] for token in range(self.vocab_size))])
        return [text.removeprefix(before) for text in texts]

    @functools.cached_property
    def _hidden_ids(self) -> set[int]:
        """Ids of special tokens, including those that `tokenizer.json` does not mark as special."""
        return {self._special.token_to_id(text) for text in self.special_texts} | set(self.eos_ids)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return the messages as the chat template writes them, up to the start of the model's turn.

        Args:
            messages: The conversation.
            tools: Declarations of tools, for templates that declare them.

        Raises:
            ModelError: The directory has no chat template, or the template refuses the messages.
        """
        if self._template is None:
            raise ModelError(
                f"{self._directory} has no chat template, which is usual for base models; set prompt=plain, or set"
                f" prompt.chat_template to a Jinja text or a .jinja file (`agent-tunix generate`: --prompt-config"
                f" plain, or --raw)",
                code="invalid_chat_template",
            )
        return self._template.render(messages, tools=tools)

    def eos_id(self) -> int:
        """Return the end-of-sequence id."""
        return self.eos_ids[0]

    def pad_id(self) -> int:
        """Return the padding id, or the end-of-sequence id if the tokenizer has no padding token."""
        return self._pad


def _text_of(token: Any) -> str | None:
    """Return the text of a special token, which is given as a string or as an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _first_special(processor: Mapping[str, Any]) -> int | None:
    """Return the special token with which a post-processor begins every text, or None."""
    for inner in processor.get("processors", ()):
        if (token := _first_special(inner)) is not None:
            return token
    if "cls" in processor:  # those of BERT and RoBERTa
        return int(processor["cls"][1])
    pieces = processor.get("single", [])
    first = pieces[0].get("SpecialToken") if pieces else None
    ids = processor["special_tokens"][first["id"]]["ids"] if first else []
    return int(ids[0]) if ids else None


def _copy(token: AddedToken, content: str, *, special: bool) -> AddedToken:
    """Return a token with other content that treats surrounding white space like the given one."""
    return AddedToken(content, lstrip=token.lstrip, rstrip=token.rstrip, normalized=False, special=special)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is not JSON: {error}", code="invalid_model_config") from error
    if not isinstance(loaded, dict):
        raise ModelError(f"{path} must contain an object, not {type(loaded).__name__}", code="invalid_model_config")
    return loaded
