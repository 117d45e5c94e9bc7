"""List of the error codes of agent_tunix, read from the calls in the source that make the errors."""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent_tunix import errors
from agent_tunix.errors import AgentTunixError

SOURCE = Path(errors.__file__).parent


def classes() -> dict[str, type[AgentTunixError]]:
    """Return name → class of the errors, in the order of `agent_tunix.errors`."""
    found = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    return {name: kind for name, kind in found.items() if issubclass(kind, AgentTunixError)}


def messages_by_code() -> Mapping[tuple[str, str], list[str]]:
    """Return (class, code) → the messages with that code, in which `…` stands for each value."""
    kinds = classes()
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            name = _last_name(call.func)
            if name not in kinds or not call.args:
                continue
            code = next((word.value for word in call.keywords if word.arg == "code"), None)
            codes = [kinds[name].code] if code is None else list(_texts(code))
            for each in codes:
                for message in _texts(call.args[0]):
                    if message.strip("… ") and message not in found[name, each]:
                        found[name, each].append(message)
    return found


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


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
