"""Chat templates: Jinja programs that write a conversation as the text a model was taught to read.

The environment is the one that transformers gives a template (sandboxed; `raise_exception`, `strftime_now`, `tojson`,
loop controls, `{% generation %}` blocks), but for the clock: `strftime_now` knows the date of the configuration alone,
so that a prompt is the same on every day and a resumed run sees what the run before it saw.
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

from agent_tunix.errors import ConfigError, ModelError
from agent_tunix.policy.chat.limited_jinja import LimitedEnvironment, TemplateLimitError
from agent_tunix.regular_files import read_regular

_SUFFIXES = (".jinja", ".jinja2", ".j2")


def _describe(error: Exception) -> str:
    """Return the words of an error, or, where it has none, its name."""
    return str(error) or type(error).__name__


class ChatTemplate:
    """A template, compiled once.

    Args:
        source: The Jinja text.
        origin: Where it comes from, for messages.
        variables: What the template finds besides the messages: special tokens and the user's own arguments.
        date: What `strftime_now` tells, as 2024-07-26.

    Raises:
        ModelError: It is not valid Jinja.
    """

    def __init__(self, source: str, *, origin: str, variables: Mapping[str, Any], date: str) -> None:
        self.source = source
        self._origin = origin
        # Templates ask whether these are none, which what is not defined is not.
        self._variables = {"tools": None, "documents": None, **variables}
        today = datetime.date.fromisoformat(date)
        self._environment = environment = LimitedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = today.strftime
        try:
            self._template = environment.from_text(source)
        except (TemplateLimitError, RecursionError, MemoryError) as error:
            raise self._over_limit(error) from error
        except Exception as error:  # a template of others: too deep for Jinja, or for Python's compiler
            raise ModelError(
                f"{origin} is not a Jinja template: {_describe(error)}", code="invalid_chat_template"
            ) from error

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """The conversation as text, up to where the model's turn begins, or the turns alone.

        Raises:
            ModelError: The template refuses the messages, with its words, or goes beyond a limit on work or text.
        """
        variables = {"messages": messages, "add_generation_prompt": add_generation_prompt, **self._variables}
        try:
            return self._environment.render(self._template, variables)
        except (TemplateLimitError, RecursionError, MemoryError) as error:
            raise self._over_limit(error) from error
        except Exception as error:  # a template is a program of others, and may raise anything
            raise ModelError(
                f"{self._origin} refuses these messages: {_describe(error)}", code="failed_chat_template"
            ) from error

    def _over_limit(self, error: Exception) -> ModelError:
        return ModelError(
            f"{self._origin} is not rendered: {_describe(error)}; set prompt.chat_template to another",
            code="template_limit",
        )


def read_chat_template(setting: str) -> str:
    """The text of `prompt.chat_template`: itself, or that of the file it names.

    Raises:
        ConfigError: The file cannot be read.
    """
    if "{" in setting or "\n" in setting:
        return setting
    if not setting.endswith(_SUFFIXES):
        raise ConfigError(
            f"prompt.chat_template must be a Jinja text or the path of a {_SUFFIXES[0]} file, not {setting!r}",
            code="unknown_chat_template",
        )
    try:
        return read_regular(Path(setting).expanduser()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"prompt.chat_template={setting} cannot be read: {error}; correct the path", code="unreadable_chat_template"
        ) from error


def find_chat_template(directory: Path, settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """The template that a model directory brings, and where it stands; None where there is none.

    Args:
        directory: The model directory; its `chat_template.jinja` comes first, then `tokenizer_config.json`, then
            `chat_template.json`. Of several named ones the one called `default` is taken.
        settings: What `tokenizer_config.json` holds.
    """
    file = directory / "chat_template.jinja"
    if file.is_file():
        return read_regular(file).decode("utf-8"), f"the chat template of {directory}"
    found = settings.get("chat_template")
    if found is None and (legacy := directory / "chat_template.json").is_file():
        try:
            found = json.loads(read_regular(legacy)).get("chat_template")
        except (ValueError, AttributeError) as error:
            raise ModelError(
                f"{legacy} should hold an object with chat_template, but: {error}", code="damaged_config"
            ) from error
    if isinstance(found, list):
        named = [entry for entry in found if isinstance(entry, dict) and entry.get("name") == "default"]
        found = named[-1].get("template") if named else None
    return (found, f"the chat template of {directory}") if isinstance(found, str) else None


class _Generation(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks the model's own text for who asks; here it is just text."""

    tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own filter it escapes no HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)
