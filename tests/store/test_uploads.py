import textwrap
from pathlib import Path

import pytest

from agent_tunix.errors import UploadError
from agent_tunix.store import Format, check_upload, detect_format
from agent_tunix.store.local_files import hidden_files
from agent_tunix.store.uploads import MAX_BYTES
from tests.raising import raises

TRL = "def reward(completions, answer=None, **kwargs):\n    return [len(c) / 9 for c in completions]\n"
MILES = "async def reward(args, sample, **kwargs):\n    return len(sample.response) / 9\n"

GOOD = {
    "a plain file": ("trl", TRL),
    "of miles": ("miles", MILES),
    "annotated over several lines": (
        "trl",
        "def reward(\n    completions: list[str],\n    **kwargs: object,\n) -> list[float]:\n    return [0.5]\n",
    ),
    "with helpers, classes and imports": (
        "trl",
        f"import re\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef h(): yield 1\n{TRL}",
    ),
    "a decorated one": ("trl", f"import functools\n@functools.wraps(print)\n{TRL}"),
    "the last of two": ("trl", f"{MILES}{TRL}"),
    "a byte order mark": ("trl", f"\ufeff{TRL}"),
    "lines that end as on Windows": ("trl", TRL.replace("\n", "\r\n")),
    "lines that end as on an old Mac": ("trl", TRL.replace("\n", "\r")),
    "letters beyond ASCII before it": ("trl", f"π = '𝒳'; é = 'ü'\n{TRL}"),
    "a comment that has a form feed": ("trl", f"# \f\n{TRL}"),
    "a declared encoding that is UTF-8": ("trl", f"# -*- coding: utf-8 -*-\n{TRL}"),
    "a file that fails when it is run": ("trl", f"raise SystemExit\n{TRL}"),
    "prompts and completions": ("trl", "def reward(prompts, completions, **kwargs):\n    return [0.5]\n"),
    "everything by name": ("trl", "def reward(**kwargs):\n    return [0.5]\n"),
    "the samples of a group": ("miles", "async def reward(args, samples, **kwargs):\n    return [0.5]\n"),
    "a yield in an inner function": (
        "trl",
        "def reward(completions, **kwargs):\n    def inner():\n        yield 0.5\n    return list(inner())\n",
    ),
    "just as large as may be": ("trl", TRL + "#" * (MAX_BYTES - len(TRL))),
    "a long chain that still compiles": ("trl", f"{TRL}X = {'+'.join(['1'] * 500)}\n"),
}

BAD: dict[str, tuple[str, str | bytes, str]] = {
    "nothing": ("trl", "", "empty_file"),
    "blanks": ("trl", " \n\t\n", "empty_file"),
    "one byte too many": ("trl", TRL + "#" * (MAX_BYTES + 1 - len(TRL)), "file_too_large"),
    "no Python": ("trl", "def reward(completions: return", "syntax_error"),
    "a return at the top": ("trl", f"{TRL}return 1\n", "syntax_error"),
    "an await in a function that is not async": (
        "trl",
        "def reward(completions, **kwargs):\n    await x\n",
        "syntax_error",
    ),
    "a Python of tomorrow": ("trl", f'{TRL}x = t"text"\n', "syntax_error"),  # 3.14
    "a NUL": ("trl", f"{TRL}# \0\n", "invalid_encoding"),
    "Latin-1": ("trl", f"# é\n{TRL}".encode("latin-1"), "invalid_encoding"),
    "UTF-16": ("trl", TRL.encode("utf-16"), "invalid_encoding"),
    "half of a surrogate pair": ("trl", TRL.encode() + b"# \xed\xa0\x80\n", "invalid_encoding"),
    "a declared encoding that is not UTF-8": ("trl", f"# -*- coding: latin-1 -*-\n{TRL}", "invalid_encoding"),
    "a declared encoding that does not exist": ("trl", f"# -*- coding: nonsense -*-\n{TRL}", "invalid_encoding"),
    "a zip": ("trl", b"PK\x03\x04" + bytes(100), "invalid_encoding"),
    "no function": ("trl", "x = 1\n", "no_reward_function"),
    "another name": ("trl", TRL.replace("reward", "rewards"), "no_reward_function"),
    "one in a comment": ("trl", "# def reward(completions, **kwargs):\nx = 1\n", "no_reward_function"),
    "one in a string": ("trl", f'"""\n{TRL}"""\n', "no_reward_function"),
    "one in a class": ("trl", f"class A:\n{textwrap.indent(TRL, '    ')}", "no_reward_function"),
    "one in a function": ("trl", f"def outer():\n{textwrap.indent(TRL, '    ')}", "no_reward_function"),
    "one in an if": ("trl", f"if True:\n{textwrap.indent(TRL, '    ')}", "no_reward_function"),
    "a class of the name": ("trl", "class reward:\n    pass\n", "no_reward_function"),
    "a lambda": ("trl", "reward = lambda completions: [0.5]\n", "no_reward_function"),
    "two blanks after def": ("trl", TRL.replace("def ", "def  "), "no_reward_function"),
    "a blank before the bracket": ("trl", TRL.replace("reward(", "reward ("), "no_reward_function"),
    "an async one as trl": ("trl", MILES, "wrong_kind"),
    "one that is not async as miles": ("miles", TRL, "wrong_kind"),
    "the last of two is async": ("trl", f"{TRL}{MILES}", "wrong_kind"),
    "a generator": ("trl", "def reward(completions, **kwargs):\n    yield 0.5\n", "wrong_kind"),
    "an async generator": ("miles", "async def reward(args, sample):\n    yield 0.5\n", "wrong_kind"),
    "one of a single response": ("trl", "def reward(response):\n    return 0.5\n", "invalid_signature"),
    "no parameters": ("trl", "def reward():\n    return [0.5]\n", "invalid_signature"),
    "arguments by position alone": ("trl", "def reward(*args):\n    return [0.5]\n", "invalid_signature"),
    "miles without a sample": (
        "miles",
        "async def reward(completions, **kwargs):\n    return 0.5\n",
        "invalid_signature",
    ),
    "a format that there is not": ("castform", TRL, "invalid_format"),
}

# What has brought compilers down: depth, length, and literals that are costly to fold or to read.
HOSTILE = {
    "brackets": "(" * 100_000 + ")" * 100_000,
    "a chain of additions": "x = " + "+".join(["1"] * 100_000),
    "a chain of calls": "x = a" + "()" * 100_000,
    "nested functions": "\n".join(f"{' ' * depth}def f():" for depth in range(500)) + "\n" + " " * 500 + "pass",
    "nested blocks": "\n".join(f"{' ' * n}try:\n{' ' * n} pass\n{' ' * n}finally:" for n in range(19))
    + f"\n{' ' * 19}x = 1",
    "nested lambdas": "x = " + "lambda:" * 30_000 + "1",
    "a number of many digits": "x = " + "9" * 200_000,
    "a power to fold": "x = 9 ** 9 ** 9 ** 9",
    "a string to fold": "x = 'a' * 10 ** 10",
    "a shift to fold": "x = 1 << 10 ** 10",
    "format strings": "x = " + "f'{" * 1_000 + "}'" * 1_000,
    "many parameters": "def f(" + ",".join(f"a{number}" for number in range(30_000)) + "): pass",
    "many names": "\n".join(f"a{number} = {number}" for number in range(12_000)),
    "deep patterns": "match x:\n  case " + "[" * 5_000 + "]" * 5_000 + ": pass",
    "a backslash before the end": "x = 1\\",
}


@pytest.mark.parametrize("what", GOOD)
def test_a_reward_function_is_taken(what: str) -> None:
    format, text = GOOD[what]
    source = text.encode()
    checked = check_upload(source, format)  # type: ignore[arg-type]
    assert (checked.source, checked.format) == (source, format)
    assert detect_format(source) == format


@pytest.mark.parametrize("what", BAD)
def test_another_file_is_refused_with_the_reason(what: str) -> None:
    format, text, code = BAD[what]
    source = text if isinstance(text, bytes) else text.encode()
    with raises(UploadError, code) as caught:
        check_upload(source, format)  # type: ignore[arg-type]
    assert caught.value.param in ("file", "format")


@pytest.mark.slow
@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_overwhelms_compilers_is_taken_or_refused(what: str) -> None:
    source = f"{TRL}{HOSTILE[what]}\n".encode()
    try:
        check_upload(source, "trl")
    except UploadError as refused:
        assert refused.code in ("syntax_error", "file_too_large")  # noqa: PT017  # either is right


def test_checking_runs_nothing_of_the_file(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    run = f"open({str(mark)!r}, 'w').close()"
    source = f"{run}\n@({run})\ndef reward(completions, x={run}, **kwargs) -> {run}:\n    return [0.5]\n".encode()
    check_upload(source, "trl")
    assert not mark.exists()


ADVICE = {
    "all or nothing": (
        "trl",
        "def reward(completions, **kwargs):\n    return [1.0 if c else 0.0 for c in completions]\n",
        "partial",
    ),
    "a comparison": (
        "trl",
        "def reward(completions, **kwargs):\n    return [float(c == 'a') for c in completions]\n",
        "partial",
    ),
    "beyond the bounds": (
        "miles",
        "async def reward(args, sample, **kwargs):\n    return -10 if sample else 0.5\n",
        "-10 is outside",
    ),
    "a penalty": (
        "trl",
        "def reward(completions, **kwargs):\n    return [-0.5 if 'sorry' in c else 0 for c in completions]\n",
        "negative weight",
    ),
    "a length": ("miles", "async def reward(args, sample, **kwargs):\n    return len(sample.response)\n", "no bound"),
    "no kwargs": ("trl", "def reward(completions):\n    return [len(c) / 9 for c in completions]\n", "kwargs"),
    "a file": (
        "trl",
        "import sqlite3\ndef reward(completions, db, **kwargs):\n"
        "    return [len(sqlite3.connect(p).execute(c).fetchall()) / 9 for c, p in zip(completions, db)]\n",
        "line 3: `sqlite3.connect(p)` reads a file",
    ),
    "a file beside it": (
        "miles",
        f"from pathlib import Path\nRUBRIC = (Path(__file__).parent / 'rubric.txt').read_text()\n{MILES}",
        "line 2: `",
    ),
    "a network": ("miles", f"import requests\n{MILES}", "network"),
}


@pytest.mark.parametrize("what", ADVICE)
def test_a_warning_says_what_would_improve_the_function(what: str) -> None:
    format, text, word = ADVICE[what]
    (warning,) = check_upload(text.encode(), format).warnings  # type: ignore[arg-type]
    assert word in warning


@pytest.mark.parametrize(
    "code",
    [
        "sqlite3.connect(':memory:')",
        "open('notes', 'w')",
        "open('notes', mode='ab')",
        "json.loads('{}')",
        "re.match('a', 'b')",
    ],
)
def test_memory_and_files_of_its_own_are_no_hidden_files(code: str) -> None:
    source = f"import sqlite3, json, re\nGIVEN = {code}\n{TRL}"
    assert check_upload(source.encode(), "trl").warnings == ()


def test_files_of_this_machine_that_a_source_names_are_found(tmp_path: Path) -> None:
    for name in ("helper.py", "kit/__init__.py", "data/rubric.txt", "unused.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    source = "import json\nfrom helper import f\nimport kit.parts\nPLACE = 'data/rubric.txt'\nOTHER = 'data/none.txt'\n"
    found = hidden_files(source.encode(), [tmp_path])
    assert [Path(path).relative_to(tmp_path).as_posix() for path in found] == [
        "data/rubric.txt",
        "helper.py",
        "kit/__init__.py",
    ]
    assert hidden_files(b"1 +", [tmp_path]) == []


@pytest.mark.parametrize(("format", "text"), [("trl", TRL), ("miles", MILES)])
def test_a_good_function_has_no_warning(format: Format, text: str) -> None:
    assert check_upload(text.encode(), format).warnings == ()


def test_a_file_that_does_not_compile_has_no_format() -> None:
    with raises(UploadError, "syntax_error"):
        detect_format(b"1 +")
