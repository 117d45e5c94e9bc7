"""List of the error codes of agent_tunix, read from the calls in the source that make the errors."""

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from agent_tunix import errors
from agent_tunix.errors import AgentTunixError

SOURCE = Path(errors.__file__).parent


def classes() -> dict[str, type[AgentTunixError]]:
    """Return name → class of the errors, in the order of `agent_tunix.errors`."""
    found = {name: kind for name, kind in vars(errors).items() if inspect.isclass(kind)}
    return {name: kind for name, kind in found.items() if issubclass(kind, AgentTunixError)}


def messages_by_code() -> dict[tuple[str, str], list[str]]:
    """Return (class, code) → the messages with that code, in which `…` stands for each value."""
    kinds = classes()
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            name = _last_name(call.func)
            if name not in kinds or not call.args:
                continue
            code = next((word.value for word in call.keywords if word.arg == "code"), None)
            message = call.args[0]
            if issubclass(kinds[name], errors.StoreRequestError):
                code, message = call.args[:2]  # its codes come first, because programs read them
            for each in _texts(code) if code is not None else [kinds[name].code]:
                known = found[name, each]
                known += [text for text in _texts(message) if text.strip("…\n ") and text not in known]
    return {key: texts for key, texts in found.items() if "…" not in key[1] and texts}


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
