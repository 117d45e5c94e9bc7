"""List of the error codes of agent_tunix, read from the calls in the source that make the errors."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from agent_tunix import errors
from agent_tunix.errors import AgentTunixError, StoreRequestError

SOURCE = Path(errors.__file__).parent


def classes() -> dict[str, type[AgentTunixError]]:
    """Return name → class of the errors, in the order of `agent_tunix.errors`."""
    values = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    return {name: value for name, value in values.items() if issubclass(value, AgentTunixError)}


def examples_by_code() -> dict[str, dict[str, str]]:
    """Return class → code → a message with that code, in which `…` stands for each value."""
    kinds = classes()
    examples: dict[str, dict[str, str]] = {name: {} for name in kinds}
    for path in sorted(SOURCE.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = _last_name(call.func) if isinstance(call, ast.Call) else ""
            if not isinstance(call, ast.Call) or name not in kinds or not call.args:
                continue
            code = next((word.value for word in call.keywords if word.arg == "code"), None)
            message = call.args[0]
            if issubclass(kinds[name], StoreRequestError):
                code, message = call.args[:2]  # its codes come first, because programs read them
            text = next((text for text in _texts(message) if text.strip("…\n ")), None)
            for each in _texts(code) if code is not None else [kinds[name].code]:
                if text is not None and "…" not in each:
                    examples[name].setdefault(each, text)
    return examples


def _last_name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression can be; values within become `…`."""
    if isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    else:
        yield "…"
