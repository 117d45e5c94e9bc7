"""The prompt of a teacher that sees more than the policy (`grpo.teacher_prompt`): a sandboxed Jinja template."""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agent_tunix.errors import ConfigError
from agent_tunix.policy.chat.chat_template import read_template_file

KEY = "grpo.teacher_prompt"
# Variables that differ between the completions of a prompt.
OF_COMPLETION = frozenset({"response", "feedback", "solution", "extras"})
# Variables that are empty, rather than undefined, where nothing is known.
_OF_ROW = ("answer", "worked_solution")
# `grpo.teacher=self` without a template. The number 0 is an answer.
DEFAULT = """\
{% if worked_solution or solution or answer or answer is number or feedback %}
{{ prompt }}
{% if worked_solution or solution %}

This is a correct solution:
{{ worked_solution or solution }}
{% elif answer or answer is number %}

The correct answer is {{ answer }}.
{% endif %}
{% if feedback %}

This is feedback on an attempt to solve it:
{{ feedback }}
{% endif %}

Now solve it yourself.
{% endif %}
"""


def read_teacher_prompt(setting: str) -> str:
    """Return the text of `grpo.teacher_prompt`: the setting itself, or the content of the `.jinja` file it names."""
    return read_template_file(setting, KEY)


class TeacherTemplate:
    """A compiled template, which renders the text that replaces the user's last message.

    Args:
        source: Jinja source.

    Attributes:
        names: Variables that it uses.

    Raises:
        ConfigError: The source is not valid Jinja.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            undefined=StrictUndefined,
            finalize=lambda value: "" if value is None else value,
        )
        try:
            self.names = meta.find_undeclared_variables(environment.parse(source))
            self._template = environment.from_string(source)
        except Exception as error:  # Jinja's own errors, or a text too deep for it
            raise _error(f"must be a Jinja template, but: {error}; correct it") from error

    @property
    def is_of_row(self) -> bool:
        """True if all completions of a prompt have the same text."""
        return not self.names & OF_COMPLETION

    def render(self, columns: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
        """Return the text, stripped; "" if there is nothing to show.

        Args:
            columns: Columns of the row.
            variables: The other variables. They hide columns of the same name, which are also in `row`.

        Raises:
            ConfigError: The template uses a name that is undefined, or fails.
        """
        known = {**dict.fromkeys(_OF_ROW, ""), **columns, **variables, "row": columns}
        try:
            return self._template.render(known).strip()
        except Exception as error:  # a template is a foreign program and may raise anything
            raise _error(
                f"fails on a row: {error or type(error).__name__}; it may use {', '.join(known)}, and test others with "
                "`is defined`"
            ) from error

    def check(self, columns: Mapping[str, Any], prompt: str) -> None:
        """Raise ConfigError if the template fails on a row whose completion has everything that can be shown."""
        self.render(columns, {"prompt": prompt, "extras": {}, **dict.fromkeys(OF_COMPLETION - {"extras"}, "text")})


def _error(text: str) -> ConfigError:
    return ConfigError(f"{KEY} {text}", code="invalid_prompt")
