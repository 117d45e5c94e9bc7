"""Rewards for the form of code. They never run the code; `code_tests` runs it in a separate process."""

import re

from agent_tunix.python_text import parse_python
from agent_tunix.rewards.sample import Score

_FENCE = re.compile(r"^[ \t]{0,3}+```[ \t]*+(?P<mark>[\w+#.-]{0,30}+)[^\n`]*+$", re.MULTILINE)
_LONGEST_CODE = 20_000


def code_format_reward(response: str, language: str = "python") -> Score:
    r"""Score the form of the code: one fenced block, marked with its language. Range [0, 1].

    - 1.0: exactly one closed, non-empty block between ``` fences, marked with `language`
    - 0.5: closed, non-empty blocks, but several of them or one without the mark
    - 0.0: no closed, non-empty block

    >>> score = get_reward_function("code_format")
    >>> score("So:\n```python\nprint(4)\n```"), score("```\nprint(4)\n```"), score("print(4)")
    (1.0, 0.5, 0.0)
    """
    blocks = [(mark, code) for mark, code in code_blocks(response) if code.strip()]
    names = {language.lower(), *({"py", "python3"} if language.lower() == "python" else ())}
    has_mark = [mark.lower() in names for mark, _ in blocks]
    value = 1.0 if has_mark == [True] else 0.5 if blocks else 0.0
    return Score(value, detail=f"{len(blocks)} blocks with code, {sum(has_mark)} of them marked as {language}")


def valid_python_reward(response: str) -> Score:
    r"""Check that the code is valid Python, without running it. Range [0, 1].

    - 1.0: the code parses and has at least one statement
    - 0.0: it does not parse, has no statement, or is longer than 20,000 characters

    The code is the last block between ``` fences, or else the text in `<answer>` tags, or else the whole response.
    A single word or number is valid Python too. To require a code block as well, add the component `code_format`.

    >>> score = get_reward_function("valid_python")
    >>> score("```python\ndef f(x): return x + 1\n```"), score("def f(x) return"), score("")
    (1.0, 0.0, 0.0)
    """
    problem = syntax_problem(extract_code(response))
    return Score(0.0 if problem else 1.0, detail=problem or "the code parses")


def code_blocks(response: str) -> list[tuple[str, str]]:
    """Return the mark and the content of each closed block between ``` fences, in order."""
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
    """Return the last block of a response; without a block, the text in its `<answer>` tags or the whole response."""
    blocks = code_blocks(response)
    if blocks:
        return blocks[-1][1]
    _, opening, rest = response.rpartition("<answer>")
    return rest.partition("</answer>")[0] if opening else response


def syntax_problem(code: str) -> str:
    """Return the reason why a text is not a Python program, or "" if it is one."""
    if len(code) > _LONGEST_CODE:
        return f"the code is longer than {_LONGEST_CODE} characters"
    try:
        tree = parse_python(code)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, nested too deeply or takes too long
        return f"it cannot be parsed: {error or type(error).__name__}"
    return "" if tree.body else "there is no statement in it"
