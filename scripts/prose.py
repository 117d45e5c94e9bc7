"""Hold phrases and openings that are hard to read out of docs, docstrings, comments and messages.

    python scripts/prose.py

Prints each place and ends with status 1 if there is one. `codespell` finds typing errors; this finds the constructions
that readers had to decode. The page *Contributing* has the rules of the language.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = (
    "README.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "conf/**/*.yaml",
    *(f"src/**/*.{suffix}" for suffix in ("py", "html", "js")),
    "scripts/*.py",
    "benchmarks/**/*.py",
)
PHRASES = re.compile(
    r"is told of|\bgoes by (?!itself)|what is begun|\bas ever\b|\bLikewise\.|\bAs given\.|the more the"
    r"|that nothing goes|Where everything lies|are told here|whatever is there"
    r"|\banew\b|\bgo(es)? on with\b|look whether|such as has\b|\bheeds?\b|\bwherein\b|\blikewise\b|\bis wanted\b"
    r"|\bmend\b|cannot be had\b|be listened on|begin with it\b|half downloaded|was begun\b|to the letter\b"
    r"|(was|were|are) told of\b|where it is there",
)
# Docstrings begin with a verb (functions) or a noun (classes and modules).
OPENINGS = re.compile(r"(What|Whether|How|Where|Which|Of|Likewise)\b")


def find_phrases(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each phrase in a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if found := PHRASES.search(line):
            yield number, f"write it plainly: {found[0]!r}"


def find_openings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring that opens with a question word."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if OPENINGS.match(text):
                yield node.body[0].lineno, f"begin with a verb or a noun, not {text.split()[0]!r}"


def main() -> int:
    """Print every place, and return 1 if there is one."""
    places = 0
    for pattern in TEXTS:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if path == Path(__file__):
                continue
            found = list(find_phrases(path))
            if path.suffix == ".py":
                found += find_openings(path)
            for number, text in found:
                print(f"{name}:{number}: {text}")
            places += len(found)
    return int(places > 0)


if __name__ == "__main__":
    sys.exit(main())
