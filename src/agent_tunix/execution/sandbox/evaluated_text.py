"""An audit hook for the tests' process, where text from the program must not become code.

`assert eval(solve(numbers)) == 24` evaluates text that the program returns. Code in that text must not decide the test.
So once the program has sent text, tests may evaluate their own constants, and expressions of operators and literals.
Python calls the hook wherever it compiles text: in `eval`, `exec` and `compile`, and in the library's `timeit`, `code`
or `typing`. The module imports little, because it is loaded for every completion.
"""

from __future__ import annotations

import functools
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

# Functions that compile only names they have checked, or the tests, or text into a syntax tree. Other functions of the
# same modules may call a function that a test passes: `Counter(map(eval, texts))`.
_SANDBOX = "agent_tunix.execution.sandbox"
_TRUSTED = frozenset(
    {("ast", "parse"), ("collections", "namedtuple"), ("symtable", "symtable")}
    | {("dataclasses", "_create_fn"), ("dataclasses", "add_fns_to_class")}  # until Python 3.12, and since 3.13
    | {(f"{_SANDBOX}.defined_tests", name) for name in ("_compile", "_prepend", "run_check")}
    | {(f"{_SANDBOX}.evaluated_text", name) for name in ("_constants", "_require_literals")}
    | {(f"{_SANDBOX}.names", "uses_in")}
)
# Modules that import, and so load code from the library's files.
_IMPORTING = frozenset(
    {"_frozen_importlib", "_frozen_importlib_external", "importlib._bootstrap", "importlib._bootstrap_external"}
)
# Python's mark for the encoding of a source, https://peps.python.org/pep-0263.
_ENCODING = re.compile(r"#.*coding[:=]")
# Numbers such as `2_4`, `1e3` and `.3`, which a test may read as several or other numbers.
_JOINED = re.compile(r"\d[_A-Za-z.]|\.\d")
# Text that may have comments, or numbers such as `2_4`, `2.4e1` and `0x18`.
_ODD = re.compile(r"#|\d[_A-Za-z]")
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")
_EVENTS = frozenset({"compile", "exec", "pickle.find_class", "marshal.loads"})


class EvaluationGuard:
    """An audit hook that raises ValueError before text of the program is compiled, or an object is unpickled.

    Args:
        checks: The tests, each a few statements.
        texts: Texts from the program so far that can contain names; the caller adds to them.
    """

    def __init__(self, checks: list[str], texts: Collection[str]) -> None:
        self._checks = checks
        self._texts = texts
        self._has_tree = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Check one event of Python's auditing."""
        if event == "import" and args[0] == "logging.config":
            raise ValueError("tests configure no logging, which would look up names of the program")
        if event not in _EVENTS or not self._texts:
            return
        caller = sys._getframe(1)
        module = str(caller.f_globals.get("__name__"))
        if event == "compile" and module == "ast" and caller.f_back and caller.f_back.f_code.co_name != "literal_eval":
            self._has_tree = self._has_tree or _text_of(args[0]) not in self._constants
        if event == "pickle.find_class":
            raise ValueError("tests unpickle no classes once the program has sent text")
        if module in _IMPORTING or (module, caller.f_code.co_name) in _TRUSTED:
            return
        if event == "marshal.loads":
            raise ValueError("tests load no code once the program has sent text")
        if event == "compile":
            self._check(args[0], is_library=module != "__main__" and module in sys.modules)
        elif self._has_tree:
            raise ValueError("tests run no code once they have parsed text that is not their own")

    def _check(self, source: Any, *, is_library: bool) -> None:
        text = _text_of(source)
        if is_library:
            if not self._lines.issuperset(line.strip() for line in text.splitlines()):
                raise ValueError("the library would run text that the tests do not contain")
        elif text not in self._constants or any(text.strip().casefold() in each.casefold() for each in self._texts):
            _require_literals(text)

    @functools.cached_property
    def _constants(self) -> set[Any]:
        import ast

        found: set[Any] = set()
        for check in self._checks:
            try:
                tree = compile(check, "<test>", "exec", ast.PyCF_ONLY_AST)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue  # running the test reports the error
            found |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        return found

    @functools.cached_property
    def _lines(self) -> frozenset[str]:
        """The lines of the tests' texts, doctests among them, and those that `timeit` puts around them."""
        import timeit

        texts = [text for text in self._constants if isinstance(text, str)]
        texts.append(timeit.template.format(init="", setup="pass", stmt=""))  # type: ignore[attr-defined]
        return frozenset(
            line.strip().removeprefix(">>> ").removeprefix("... ") for text in texts for line in text.splitlines()
        )


def _text_of(source: Any) -> str:
    if not isinstance(source, str | bytes):
        raise ValueError(f"tests evaluate text, not {type(source).__name__}")
    text = source.decode(errors="replace") if isinstance(source, bytes) else source
    if _ENCODING.search(text):
        # Python would decode the source to a text other than the checked one.
        raise ValueError("tests evaluate no text that names its encoding")
    return text


def _require_literals(text: str) -> None:
    """Raise ValueError unless the text is a literal, arithmetic, or a comparison of these.

    Arithmetic has only plain numbers and operators, because a test may look for numbers in the text: `True + True` has
    none, `(24, 1)[0]` drops one, `2_4` joins two, and `.3` is three tenths. For the same reason text has no
    comments, and its numbers are plain or as Python writes them.
    """
    import ast

    if _ODD.search(text):
        _require_plain_tokens(text.strip())

    body = compile(text.strip(), "<text>", "eval", ast.PyCF_ONLY_AST).body  # type: ignore[attr-defined]
    sides = [body.left, *body.comparators] if isinstance(body, ast.Compare) else [body]
    while sides:
        side = sides.pop()
        if isinstance(side, ast.List | ast.Tuple | ast.Set):
            sides += side.elts
        elif isinstance(side, ast.Dict):
            sides += [*side.keys, *side.values]
        elif not isinstance(side, ast.Constant) and (
            (_JOINED.search(text) and not _is_negative(side)) or not all(map(_is_arithmetic, ast.walk(side)))
        ):
            raise ValueError(f"the program's text is more than numbers, operators and literals: {type(side).__name__}")


def _require_plain_tokens(text: str) -> None:
    import io
    import tokenize

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            raise ValueError("the program's text has a comment, which evaluating it ignores")
        if token.type == tokenize.NUMBER and not _is_usual(token.string):
            raise ValueError(f"the program's text has a number of an unusual form: {token.string[:50]}")


def _is_usual(number: str) -> bool:
    if "e-" in number or "e+" in number:
        return number == repr(float(number))
    return bool(_PLAIN_NUMBER.fullmatch(number))


def _is_negative(node: Any) -> bool:
    import ast

    return isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)


def _is_arithmetic(node: Any) -> bool:
    import ast

    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float | complex) and not isinstance(node.value, bool)
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.operator | ast.UAdd | ast.USub)
