import json
import re
import time
from pathlib import Path

import pytest

from agent_tunix.environments import CallOutcome, resolve_environment, run_episode
from agent_tunix.environments.builtin.calculator import calculator
from agent_tunix.environments.builtin.search import SearchCorpus
from agent_tunix.errors import EnvironmentFailedError, SandboxUnavailableError
from tests.environments.support import call, script


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 1", "2"),
        ("0.1 + 0.2", "0.3"),
        ("(1.5\r\n+2.5)", "4"),
        ("(1.5\r+2.5)", "4"),
        ("2 * 3 ^ 2", "18"),
        ("-2 ** 2", "-4"),
        ("7 // -2", "-4"),
        ("-7 % 3", "2"),
        ("1 / 3", "1/3 (about 0.333333333333)"),
        ("2 / 3 * 3", "2"),
        ("-1 / 8", "-0.125"),
        ("2 ** -2", "0.25"),
        ("(1 + 2) × 3 ÷ 9 − 1", "0"),
        ("0.1234567890123456789 * 10", "1.234567890123456789"),
        ("1e3 + 1", "1001"),
        ("1_000 + 1", "1001"),
        ("0x10", "16"),
        ("round(2.675, 2)", "2.68"),
        ("max(1, 2.5) + min(3, 2) - abs(-1)", "3.5"),
        ("(-1) ** 1000000000", "1"),
        ("1 ** (10 ** 300)", "1"),
        ("2 ** 1000", str(2**1000)),
        ("1 / 10 ** 400", f"1/1{'0' * 400} (about 1e-400)"),
    ],
)
def test_arithmetic_is_exact(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        " ",
        "1 +",
        "1 / 0",
        "5 % 0",
        "0 ** -1",
        "2 ** 0.5",
        "9 ** 9 ** 9",
        "2 ** 100000",
        "1e999999999",
        "1e-999999999",
        "(10 ** 1000) * (10 ** 1000)",
        "round(1, 10 ** 400)",
        "round(1, 10 ** 9)",
        "1,000 + 1",
        "True + 1",
        "'a' * 3",
        "1j",
        "[1] * 3",
        "x",
        "pi",
        "__import__('os').system('true')",
        "(lambda: 1)()",
        "1 if 1 else 2",
        "1 < 2",
        "abs()",
        "abs(1, 2)",
        "min(*[1])",
        "round(1, digits=1)",
        "a.b",
        "f'{1}'",
        "1 << 9",
        "~1",
        "½",
        "-" * 499 + "1",
        "(" * 240 + "1" + ")" * 240,
        "9" * 501,
        "\x00",
        "1if 1else 2",
        "9**9**9**9",
        "1/3" + "**99" * 3,
    ],
)
def test_what_is_no_arithmetic_or_too_large_is_refused_at_once(expression: str) -> None:
    started = time.perf_counter()
    with pytest.raises((ValueError, ZeroDivisionError)):
        calculator(expression)
    assert time.perf_counter() - started < 5


CORPUS = [
    {"title": "Paris", "text": "Paris is the capital of France."},
    {"title": "Rome", "contents": "Rome is the capital of Italy."},
    {"content": "The Seine runs through Paris."},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in CORPUS))
    return file


def test_the_best_passage_comes_first(corpus: Path) -> None:
    assert SearchCorpus(str(corpus)).search("capital of Italy", limit=1) == "[1] Rome: Rome is the capital of Italy."
    assert "[2]" in SearchCorpus(str(corpus)).search("paris")


@pytest.mark.parametrize(
    "query",
    [
        '"',
        "paris AND",
        "NEAR(paris)",
        "title:paris",
        "pa*",
        "paris -france",
        "((",
        "a OR OR b",
        "' OR 1=1 --",
        "🦆 paris",
    ],
)
def test_no_query_is_read_as_syntax(corpus: Path, query: str) -> None:
    result = resolve_environment("search", args={"path": str(corpus)}).open().call("search", {"query": query})
    assert result.outcome is CallOutcome.OK or "at least one word" in result.text


@pytest.mark.parametrize("arguments", [{"query": ""}, {"query": "paris", "limit": 0}, {"query": "paris", "limit": 21}])
def test_a_search_that_cannot_be_made_is_told(corpus: Path, arguments: dict[str, object]) -> None:
    result = resolve_environment("search", args={"path": str(corpus)}).open().call("search", arguments)
    assert result.outcome is CallOutcome.TOOL_ERROR


def test_a_text_file_is_divided_at_empty_lines_and_long_passages_are_cut(tmp_path: Path) -> None:
    file = tmp_path / "corpus.txt"
    file.write_text("One duck.\n\nTwo geese\nand a swan.\n \n" + "goose " * 1000)
    found = SearchCorpus(str(file), max_characters=20)
    assert found.search("swan") == "[1] Two geese\nand a swan"
    assert found.search("tiger") == "No passage matches."


@pytest.mark.parametrize("line", ["{", "[]", '{"title": "x"}', '{"text": 3}'])
def test_a_corpus_that_cannot_be_read_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"text": "a"}\n\n' + line + "\n")
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 3"):
        SearchCorpus(str(file))


def test_a_changed_corpus_is_read_again(corpus: Path) -> None:
    SearchCorpus(str(corpus))
    corpus.write_text('{"text": "A new passage about swans."}\n')
    assert "swans" in SearchCorpus(str(corpus)).search("swans")


@pytest.mark.parametrize(
    ("guesses", "value"),
    [([7], 1.0), ([10, 5, 7], 0.6), ([1, 2, 3, 4, 5, 6, 7], 0.0), ([10, 5], 0.0), ([7, 7, 8], 1.0)],
)
def test_guess_number_rewards_few_guesses(guesses: list[int], value: float) -> None:
    turns = [call("guess", number=guess) for guess in guesses]
    result = run_episode(resolve_environment("guess_number").open(), script(*turns, "done"), {"target": 7})
    assert result.score is not None
    assert result.score.value == pytest.approx(value)


def test_a_number_drawn_from_a_seed_is_found_by_halving() -> None:
    for seed in range(20):
        episode = resolve_environment("guess_number", args={"low": 5, "high": 100}).open()
        episode.reset({}, seed)
        low, high, answer = 5, 100, ""
        for _ in range(7):
            middle = (low + high) // 2
            answer = episode.call("guess", {"number": middle}).text
            if answer == "right":
                break
            low, high = (middle + 1, high) if answer == "higher" else (low, middle - 1)
        assert answer == "right"


@pytest.mark.parametrize(
    ("code", "pattern"),
    [
        ("print(1)\nprint(2)", "1\n2"),
        ("x = 1", "The program printed nothing; print what you want to see."),
        ("print(1)\n1 / 0", "Error: ZeroDivisionError: division by zero\nIt printed:\n1"),
        ("print(", r"Error: SyntaxError: '\(' was never closed .*line 1.*"),
        ("while True: pass", "Error: it ran out of time"),
        ("x = bytearray(2**30)", "Error: MemoryError"),
        ("print(open('/etc/hostname').read())", "Error: (FileNotFound|Permission)Error: .*"),
        ("open('new', 'w')", "Error: (FileNotFound|Permission)Error: .*"),
        ("import socket; socket.socket()", "Error: PermissionError: .*"),
        ("import os; os.fork()", "Error: PermissionError: .*"),
    ],
)
def test_python_returns_what_a_program_prints_or_its_error(code: str, pattern: str) -> None:
    with resolve_environment("python", args={"timeout_s": 1.0}) as adapter:
        result = adapter.open().call("python", {"code": code})
    assert result.outcome is CallOutcome.OK
    assert re.fullmatch(pattern, result.text)


def test_a_flood_of_python_is_cut() -> None:
    with resolve_environment("python") as adapter:
        result = adapter.open().call("python", {"code": "print('x' * 10_000_000)"}, 100)
    assert (result.outcome, len(result.text) < 300) == (CallOutcome.TOO_LONG, True)


def test_without_a_sandbox_no_episode_of_python_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(what: str) -> None:
        raise SandboxUnavailableError("no sandbox here")

    monkeypatch.setattr("agent_tunix.environments.builtin.python.require_isolation", refuse)
    with pytest.raises(EnvironmentFailedError, match="no sandbox here"):
        resolve_environment("python").open()
