"""Text of others, made safe to print.

What a model, a reward, a dataset or a run's directory says may hold characters that move a terminal's cursor, begin a
new line, or reverse the reading order. They are shown as escapes, such as `\\u202e`, wherever text reaches a terminal
or a log file.
"""

import re

# C0 and C1 controls but tab and line feed, line and paragraph separators, marks and overrides of the writing direction,
# and lone surrogates, which no file can take.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_hidden(text: str) -> str:
    """Return the text with each hidden character as `\\uXXXX`; tabs and line feeds stay.

    Within a string of JSON, the escapes mean the characters that they stand for.
    """
    return _HIDDEN.sub(_escape, text)


def one_line(text: str) -> str:
    """Return the text on one line: line feeds and tabs are escaped too."""
    return escape_hidden(text).replace("\n", "\\n").replace("\t", "\\t")


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"
