"""Python that a model wrote, parsed in this process. Nothing is run."""

import ast
import re
import threading
import warnings

_F_STRING = re.compile(r"\b[rR]?[fF][rR]?['\"]")
# For each brace, Python 3.11 reads the whole f-string again: this many characters take about 0.05 s.
_MOST_READ_AGAIN = 20_000_000
# `catch_warnings` changes the filters of all threads.
_warnings_lock = threading.Lock()


def parse_python(text: str) -> ast.Module:
    """Return the tree of a program.

    Raises:
        SyntaxError: It is not a program.
        ValueError: It has a null byte, or an f-string and too many braces.
        RecursionError, MemoryError: It is nested too deeply.
    """
    if len(text) * text.count("{") > _MOST_READ_AGAIN and _F_STRING.search(text):
        raise ValueError("an f-string in a long text with many braces")
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes
        return ast.parse(text)
