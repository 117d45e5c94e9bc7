"""Pages of the public names of a package, as plain Markdown for readers of the checkout.

The site shows the same docstrings by mkdocstrings. Here griffe reads the source, so that a page is the same on every
machine.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

_SOURCE = Path(__file__).parents[1] / "src"


def api_section(package: str) -> str:
    """Return the Markdown of all public names of a package: signature, docstring and members."""
    module = griffe.load(package, search_paths=[_SOURCE], docstring_parser="google", resolve_aliases=True)
    names = sorted(map(str, module.exports or ()))
    return "\n\n".join(part for name in names for part in _entry(name, _find(module, name), "###"))


def _find(module: Any, name: str) -> Any:
    """Return the object of a public name; a function may have the name of its own module."""
    found = module[name]
    if found.is_module:
        found = found[name]
    return found.final_target if found.is_alias else found


def _entry(name: str, found: Any, level: str) -> Iterator[str]:
    yield f"{level} `{name}`"
    if found.is_function:
        yield _fence(found.signature(name=name))
    elif found.is_class:
        yield _fence(f"class {name}({', '.join(map(str, found.bases))})".replace("()", ""))
    else:
        yield _fence(f"{name}: {found.annotation}" if found.annotation else f"{name} = {found.value}")
    if found.docstring:
        yield from _docstring(found)
    if found.is_class:
        for member in found.members.values():
            is_public = not member.name.startswith("_") and not member.is_alias and member.docstring
            if is_public and (member.is_function or "property" in member.labels):
                yield from _entry(f"{name}.{member.name}", member, "####")


def _fence(code: str) -> str:
    return f"```text\n{code}\n```"


def _docstring(found: Any) -> Iterator[str]:
    for section in found.docstring.parse("google"):
        match section.kind.value:
            case "text":
                yield section.value
            case "examples":
                yield "\n\n".join(text if kind.value == "text" else _fence(text) for kind, text in section.value)
            case "admonition":
                yield f"**{section.title}** {section.value.contents}"
            case kind:
                yield "\n".join([f"{kind.capitalize()}:", "", *map(_item, section.value)])


def _item(one: Any) -> str:
    name = getattr(one, "name", "") or (str(one.annotation) if one.annotation else "")
    text = re.sub(r"\s+", " ", one.description).strip()
    return f"- `{name}`: {text}" if name else f"- {text}"
