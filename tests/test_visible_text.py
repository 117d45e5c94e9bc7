"""Text of others is shown, and has no effect."""

import io
import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent_tunix.cli import main
from agent_tunix.rewards import Score
from agent_tunix.rewards.measuring import logged_metrics
from agent_tunix.tracking.logs import RunLog
from agent_tunix.visible_text import SafeLogRecord, escape_hidden, escape_hidden_in_json, one_line

HIDDEN = (
    "\x00\x07\x08\r\x0b\x0c\x1b\x7f\x85\x9b\u2028\u2029\u200e\u200f"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\ud800"
    "\xad\u200b\u2060\u2064\u3164\ufeff\ufff9\U000e0001\U000e0041\U000e0100"
)


@pytest.mark.parametrize("character", HIDDEN)
def test_hidden_characters_are_escaped(character: str) -> None:
    shown = escape_hidden(f"a{character}b\tc\nd")
    assert character not in shown
    assert shown.startswith("a\\")
    assert shown.endswith("b\tc\nd")
    assert len(one_line(f"a\n{character}").splitlines()) == 1


@pytest.mark.parametrize("character", HIDDEN)
def test_json_means_the_same_after_it(character: str) -> None:
    text = json.dumps({character: [character, "é😀"]}, ensure_ascii=False)
    shown = escape_hidden_in_json(text)
    assert character not in shown
    assert json.loads(shown) == json.loads(text)


@pytest.mark.parametrize(
    "text", ["plain", "é 漢字 😀", "עברית العربية", "tab\tline\n", "می\u200cخواهم 👨\u200d👩\u200d👧 ❤\ufe0f"]
)
def test_all_else_stays(text: str) -> None:
    assert escape_hidden(text) == text


def test_a_message_can_pass_for_no_other_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.log"
    with RunLog(path, "info"):
        logging.getLogger("agent_tunix.x").info("said\n2026-01-01 00:00:00 ERROR forged\u2028forged\u202e\x1b[2J\r")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line.startswith("    2026") for line in lines] == [False, True]
    for text in (lines[1], capsys.readouterr().err):
        assert not set(text) & set("\u2028\u202e\x1b\r")


def test_names_of_metrics_have_one_line() -> None:
    part = Score(1.0, metrics={"a\nb\u2028" + "c" * 1000: 2.0}, components={"d\x1b": 1.0})
    names = list(logged_metrics([Score(1.0, parts={"mine": part})]))
    assert all(name.isprintable() and len(name) < 250 for name in names)
    assert len(names) == 2


def test_a_response_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def reward(response):\n    raise ValueError('\\x1b]0;mine\\x07\\u202e')\n")
    for form in ([], ["--json"]):
        ran = CliRunner().invoke(main, ["rewards", "try", f"{mine}:reward", "--response", "\u202e\x1b[2J\u2028", *form])
        assert ran.exit_code == 1, ran.output
        assert not set(ran.output) & set("\u202e\x1b\u2028\x07")


def test_handlers_of_libraries_print_nothing_hidden() -> None:
    """JAX and absl put handlers with their own formatters on the root logger."""
    before, printed = logging.getLogRecordFactory(), io.StringIO()
    handler = logging.StreamHandler(printed)
    try:
        CliRunner().invoke(main, ["rewards", "list"])
        logging.getLogger().addHandler(handler)
        logging.getLogger("agent_tunix.data").warning("row %s", "\x1b[2J\u202e")
        assert logging.getLogRecordFactory() is SafeLogRecord
    finally:
        logging.setLogRecordFactory(before)
        logging.getLogger().removeHandler(handler)
    assert printed.getvalue() == "row \\x1b[2J\\u202e\n"
