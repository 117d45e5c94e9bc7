"""Tool `search`: full-text search in a local corpus, by SQLite's FTS5."""

import functools
import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

_MOST_RESULTS = 20
_MOST_WORDS = 32
_TEXT_KEYS = ("text", "contents", "content", "body", "passage")
_WORD = re.compile(r"\w+")


class SearchCorpus:
    """A corpus of passages that a model can search.

    Args:
        path: A `.jsonl` file of objects with `text` (or `contents`, `content`, `body`, `passage`) and perhaps `title`,
            or a text file whose passages are divided by empty lines.
        max_characters: Length of a passage in a result.
    """

    def __init__(self, path: str, max_characters: int = 1_000) -> None:
        file = Path(path).expanduser().resolve()
        state = file.stat()
        self._index = _index_of(str(file), state.st_mtime_ns, state.st_size)
        self._max_characters = max_characters

    def search(self, query: str, limit: int = 3) -> str:
        """Search the corpus for passages with the words of a query.

        Args:
            query: Words to look for.
            limit: Number of passages, 1 to 20.

        Returns:
            The best passages, each with its number and title.
        """
        words = _WORD.findall(query)[:_MOST_WORDS]
        if not words:
            raise ValueError("the query must have at least one word")
        if not 1 <= limit <= _MOST_RESULTS:
            raise ValueError(f"limit must be from 1 to {_MOST_RESULTS}, not {limit}")
        match = " OR ".join(f'"{word}"' for word in words)
        passages = self._index.execute(
            "SELECT title, text FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?", (match, limit)
        ).fetchall()
        if not passages:
            return "No passage matches."
        return "\n\n".join(
            f"[{number}] {f'{title}: ' if title else ''}{text[: self._max_characters]}"
            for number, (title, text) in enumerate(passages, start=1)
        )


@functools.lru_cache(maxsize=8)
def _index_of(path: str, _modified: int, _size: int) -> sqlite3.Connection:
    """Return the index of a file, made once for each of its versions."""
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute("CREATE VIRTUAL TABLE passages USING fts5(title, text, tokenize = 'porter unicode61')")
    index.executemany("INSERT INTO passages VALUES (?, ?)", _passages(Path(path)))
    index.commit()
    index.execute("PRAGMA query_only = ON")
    return index


def _passages(file: Path) -> Iterator[tuple[str, str]]:
    with file.open(encoding="utf-8-sig") as lines:
        if file.suffix != ".jsonl":
            for passage in re.split(r"\n\s*\n", lines.read()):
                if passage.strip():
                    yield "", passage.strip()
            return
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _passage_of(line, f"{file.name}, line {number}")


def _passage_of(line: str, where: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    key = next((key for key in _TEXT_KEYS if isinstance(row, dict) and isinstance(row.get(key), str)), None)
    if key is None:
        raise ValueError(f"{where} must be an object with the text under one of {', '.join(_TEXT_KEYS)}")
    return str(row.get("title") or ""), row[key]
