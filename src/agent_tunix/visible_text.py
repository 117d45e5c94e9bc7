r"""Text for terminals and logs: escapes for text of others, so that it is safe to print, and tables.

The text of a model, reward, dataset or run directory may contain characters that move a terminal's cursor, begin a new
line or reverse the reading order. Wherever such text reaches a terminal or a log file, these characters are shown as
escapes such as `\u202e`.
"""

import json
import logging
import re
from collections.abc import Sequence

# C0 and C1 controls except tab and line feed, line and paragraph separators, direction marks and overrides, and lone
# surrogates, which cannot be encoded. Then invisible characters that can hide text: those without width, annotations,
# tags and the variation selectors of plane 14. The joiners U+200C and U+200D stay, because Persian, the scripts of
# India and emoji need them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\xad\u115f\u1160\u180e\u200b\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)


def escape_hidden(text: str) -> str:
    r"""Return the text with each hidden character escaped, as `\x1b` or `\u202e`. Tabs and line feeds stay."""
    return _HIDDEN.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text on one line, with line feeds escaped too."""
    return escape_hidden(text).replace("\n", "\\x0a")


def escape_hidden_in_json(text: str) -> str:
    """Return JSON with each hidden character in its strings replaced by the equivalent JSON escape."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def align(rows: Sequence[Sequence[str]], left: int | None = None) -> list[str]:
    """Return rows as lines of columns. The first `left` columns (None: all) align left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = len(widths) if left is None else left
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = (cell.ljust(width) if n < left else cell.rjust(width) for n, (cell, width) in enumerate(cells))
        lines.append("  ".join(padded).rstrip())
    return lines


class SafeFormatter(logging.Formatter):
    """Log formatter that escapes hidden characters and indents the further lines of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text in which only the first line begins at the margin."""
        return escape_hidden(super().format(record)).replace("\n", "\n    ")


class SafeLogRecord(logging.LogRecord):
    """Log record that escapes the hidden characters of its message for every handler."""

    def getMessage(self) -> str:  # noqa: N802  # the name in logging
        """Return the message with its arguments."""
        return escape_hidden(super().getMessage())


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
