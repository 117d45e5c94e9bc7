"""Chat templates: Jinja programs that write a conversation as the text a model was trained on.

The environment is the one that transformers gives a template (sandboxed; `raise_exception`, `strftime_now`, `tojson`,
loop controls, `{% generation %}` blocks), except for the clock. `strftime_now` knows only the date in the
configuration, so that a prompt is the same on every day, and a resumed run sees the prompts that the original run saw.
"""

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.rewards.conventions.tool_call_shapes import with_text_arguments

_SUFFIXES = (".jinja", ".jinja2", ".j2")


def _describe(error: Exception) -> str:
    """Return the message of an error, or its class name if it has no message."""
    return str(error) or type(error).__name__


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja source.
        origin: Where the template comes from, for error messages.
        variables: Variables of the template besides the messages: special tokens, and the template's arguments that
            the user set.
        date: Date that `strftime_now` uses, in the form 2024-07-26.

    Raises:
        ModelError: The source is not valid Jinja.
    """

    def __init__(self, source: str, *, origin: str, variables: Mapping[str, Any], date: str) -> None:
        self.source = source
        self._origin = origin
        # Templates test if these are none, and in Jinja an undefined variable is not none.
        self._variables = {"tools": None, "documents": None, **variables}
        today = datetime.date.fromisoformat(date)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = today.strftime
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # Jinja's own errors, or a text too deep for it or for Python's compiler
            raise ModelError(
                f"{origin} is not a Jinja template: {_describe(error)}", code="invalid_chat_template"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the conversation as text, with or without the start of the model's turn.

        Args:
            messages: The conversation.
            tools: Declarations of tools, `{"type": "function", "function": {name, description, parameters}}`.
            add_generation_prompt: True to end with the start of the model's turn.

        Raises:
            ModelError: The template refuses the messages; the error quotes its message.
        """
        variables = {"messages": messages, "add_generation_prompt": add_generation_prompt, **self._variables}
        if tools:
            variables["tools"] = list(tools)
        try:
            return self._render(variables)
        except Exception as error:  # a template is a foreign program and may raise anything
            raise ModelError(
                f"{self._origin} refuses these messages: {_describe(error)}", code="invalid_chat_template"
            ) from error

    def _render(self, variables: dict[str, Any]) -> str:
        """Return the text. A template that joins the arguments of tool calls to text gets them as JSON text."""
        try:
            return self._template.render(variables)
        except TypeError:
            messages = variables["messages"]
            if not any(message.get("tool_calls") for message in messages):
                raise
            return self._template.render({**variables, "messages": with_text_arguments(messages)})


def read_chat_template(setting: str) -> str:
    """Return the text of `prompt.chat_template`: the setting itself, or the content of the file it names."""
    return read_template_file(setting, "prompt.chat_template")


def read_template_file(setting: str, key: str) -> str:
    """Return the text of a template that a key of the configuration gives as Jinja text or as the path of a file.

    Raises:
        ConfigError: The file cannot be read.
    """
    if "{" in setting or "\n" in setting:
        return setting
    if not setting.endswith(_SUFFIXES):
        raise ConfigError(
            f"{key} must be Jinja text or the path of a {_SUFFIXES[0]} file, not {setting!r}",
            code="invalid_chat_template",
        )
    try:
        return Path(setting).expanduser().read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{key}={setting} cannot be read: {error}; correct the path", code="invalid_chat_template"
        ) from error


def find_chat_template(directory: Path, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the template of a model directory and a description of its origin, or None if it has none.

    Args:
        directory: Model directory. The order of precedence is `chat_template.jinja`, `tokenizer_config.json`,
            `chat_template.json`. Among several named templates the one called `default` is used.
        settings: Content of `tokenizer_config.json`.

    Raises:
        ModelError: The file of the template is damaged.
    """
    file = directory / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_bytes().decode("utf-8"), f"the chat template of {directory}"
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"{file} must be text in UTF-8, but: {error}", code="invalid_model_config") from error
    template = settings.get("chat_template")
    if template is None and (legacy := directory / "chat_template.json").is_file():
        try:
            template = json.loads(legacy.read_bytes()).get("chat_template")
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(
                f"{legacy} must contain an object with chat_template, but: {error}", code="invalid_model_config"
            ) from error
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[-1].get("template") if named else None
    return (template, f"the chat template of {directory}") if isinstance(template, str) else None


class _Generation(Extension):
    """The tag `{% generation %}…{% endgeneration %}`, which marks the model's own text; here it has no effect."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return a value as JSON. Unlike Jinja's own filter, this one does not escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)
