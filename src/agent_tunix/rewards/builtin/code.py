"""Rewards for the form of code. Nothing here runs it; `code_tests` does, in a process of its own."""

import ast
import re
import threading
import warnings

from agent_tunix.rewards.sample import Score

_FENCE = re.compile(r"^[ \t]{0,3}+```[ \t]*+(?P<mark>[\w+#.-]{0,30}+)[^\n`]*+$", re.MULTILINE)
_LONGEST_CODE = 20_000
_warnings_lock = threading.Lock()


def code_format_reward(response: str, language: str = "python") -> Score:
    """Whether the response gives its code in one marked block. Range [0, 1].

    - 1.0: exactly one block between ``` fences, closed, not empty, and marked with `language`
    - 0.5: code in closed blocks, but several of them, or without the mark
    - 0.0: no closed block with something in it

    >>> score = get_reward_function("code_format")
    >>> score("So:\\n```python\\nprint(4)\\n```"), score("```\\nprint(4)\\n```"), score("print(4)")
    (1.0, 0.5, 0.0)
    """
    blocks = [(mark, code) for mark, code in code_blocks(response) if code.strip()]
    names = {language.lower(), *({"py", "python3"} if language.lower() == "python" else ())}
    marked = [mark.lower() in names for mark, _ in blocks]
    value = 1.0 if marked == [True] else 0.5 if blocks else 0.0
    return Score(value, detail=f"{len(blocks)} blocks with code, {sum(marked)} of them marked as {language}")


def valid_python_reward(response: str) -> Score:
    """Whether the response's code is Python: it is parsed, never run. Range [0, 1].

    - 1.0: the last block between ``` fences, or else the whole response, parses and has a statement in it
    - 0.0: it does not, has none, or is over 20,000 characters long

    A bare word or number parses too; where that is too little, a component `code_format` may be required.

    >>> score = get_reward_function("valid_python")
    >>> score("```python\\ndef f(x): return x + 1\\n```"), score("def f(x) return"), score("")
    (1.0, 0.0, 0.0)
    """
    problem = syntax_problem(extract_code(response))
    return Score(0.0 if problem else 1.0, detail=problem or "the code parses")


def code_blocks(response: str) -> list[tuple[str, str]]:
    """Mark and content of every closed block between ``` fences, in order."""
    blocks = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(response):
        if opening is None:
            opening = fence
        elif not fence["mark"]:
            blocks.append((opening["mark"], response[opening.end() + 1 : fence.start()]))
            opening = None
    return blocks


def extract_code(response: str) -> str:
    """The last block of a response; what its `<answer>` tags hold, or else the whole of it, where it has no block."""
    blocks = code_blocks(response)
    if blocks:
        return blocks[-1][1]
    _, opening, rest = response.rpartition("<answer>")
    return rest.partition("</answer>")[0] if opening else response


def syntax_problem(code: str) -> str:
    """Why a text is not a Python program; "" if it is one."""
    if len(code) > _LONGEST_CODE:
        return f"the code is longer than {_LONGEST_CODE} characters"
    try:
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes
            tree = ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nested too deeply
        return f"it cannot be parsed: {error or type(error).__name__}"
    return "" if tree.body else "there is no statement in it"
