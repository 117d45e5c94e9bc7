"""`agent-tunix environments …`: output and exit status."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent_tunix.cli import main
from agent_tunix.environments import registry

MINE = '''
import os

from agent_tunix.environments import register_environment


@register_environment("door")
class Door:
    """A door that opens with a word."""

    def __init__(self, word="open"):
        self.word = word

    def reset(self, prefix, **row):
        self.opened = False
        return f"{prefix}: say the word. {os.getpid()}"

    def say(self, word: str) -> str:
        """Say a word.

        Args:
            word: The word.
        """
        self.opened = word == self.word
        return "It opens." if self.opened else "Nothing happens."

    def wait(self) -> str:
        """Wait for ever."""
        while True:
            pass

    def get_reward(self):
        return float(self.opened)


class Talk:
    def reset(self):
        return "hello", {}

    def step(self, action):
        return f"you said {action}", 0.5, action == "bye", {}
'''


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["environments", *arguments])


def test_list_has_built_in_and_registered_ones(directory: Path) -> None:
    result = run("list", "--module", "mine.py", "--json")
    assert result.exit_code == 0
    kinds = {one["name"]: one["kind"] for one in json.loads(result.output)}
    assert kinds == {
        "calculator": "tool",
        "door": "environment",
        "guess_number": "environment",
        "python": "tool",
        "search": "tool",
    }
    assert "A door that opens with a word." in run("list", "--module", "mine.py").output


def test_show_prints_the_schema_that_a_model_gets(directory: Path) -> None:
    described = json.loads(run("show", "mine.py:Door", "--json").output)
    assert described["convention"] == "class"
    assert described["columns"] == {"prefix": True}
    assert [tool["name"] for tool in described["tools"]] == ["say", "wait"]
    page = run("show", "mine.py:Door").output
    assert "prefix (required)" in page
    assert '"description": "The word."' in page


@pytest.mark.parametrize("name", ["calculator", "search", "guess_number"])
def test_every_built_in_can_be_shown(name: str) -> None:
    assert run("show", name).exit_code == 0


def test_try_makes_calls_in_a_worker_and_prints_conversation_and_score(directory: Path) -> None:
    result = run("try", "mine.py:Door", "say", '{"word": "please"}', "say", '{"word": "open"}', "--answer", "Done.",
                 "--row", '{"prefix": "Now"}', "--json")  # fmt: skip
    assert result.exit_code == 0
    episode = json.loads(result.output)
    assert [one["role"] for one in episode["messages"]] == ["user", *["assistant", "tool"] * 2, "assistant"]
    assert episode["score"]["value"] == 1.0
    assert [one["outcome"] for one in episode["calls"]] == ["ok", "ok"]


def test_execution_decides_the_process(directory: Path) -> None:
    import os

    row = ["--row", '{"prefix": "Now"}']
    assert str(os.getpid()) not in run("try", "mine.py:Door", *row).output
    assert str(os.getpid()) in run("try", "mine.py:Door", *row, "--execution", "inline").output


def test_an_argument_reaches_the_constructor_in_the_worker(directory: Path) -> None:
    result = run("try", "door", "say", '{"word": "sesame"}', "--module", "mine.py", "--arg", "word=sesame",
                 "--row", '{"prefix": "Now"}')  # fmt: skip
    assert "It opens." in result.output
    assert result.output.rstrip().endswith("1")


def test_a_call_that_hangs_ends_the_episode(directory: Path) -> None:
    result = run("try", "mine.py:Door", "wait", "--row", '{"prefix": "Now"}', "--timeout", "0.3")
    assert result.exit_code == 1
    assert "wait took longer than 0.3 s" in result.output


def test_the_calls_of_a_text_environment_are_turns(directory: Path) -> None:
    result = run("try", "mine.py:Talk", "hi", "bye")
    assert "you said hi" in result.output
    assert result.exit_code == 0


def test_an_episode_without_turns_shows_the_first_observation(directory: Path) -> None:
    result = run("try", "mine.py:Talk")
    assert result.exit_code == 0
    assert "hello" in result.output


def test_check_asks_for_the_row_that_reset_requires(directory: Path) -> None:
    result = run("check", "mine.py:Door")
    assert result.exit_code == 1
    assert "--row" in result.output


@pytest.mark.slow
def test_check_fails_for_what_hangs_and_passes_for_a_built_in(directory: Path) -> None:
    failed = run("check", "mine.py:Door", "--row", '{"prefix": "Now"}', "--timeout", "0.3", "--json")
    assert failed.exit_code == 1
    report = json.loads(failed.output)
    assert any("wait took longer" in one["detail"] for one in report["findings"])
    assert run("check", "guess_number").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "nothing"],
        ["show", "mine.py"],
        ["try", "mine.py:Door", "--row", "[]"],
        ["try", "mine.py:Door", "--row", "{"],
        ["try", "mine.py:Door", '{"word": "open"}'],
        ["try", "mine.py:Door", "say", "{oops"],
        ["try", "mine.py:Door", "--arg", "word"],
        ["try", "mine.py:Door", "--arg", "colour=red"],
        ["check", "search"],
        ["list", "--module", "nowhere.py"],
    ],
)
def test_what_cannot_be_used_has_status_2(directory: Path, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_an_mcp_server_is_shown_and_tried(directory: Path) -> None:
    server = f"{sys.executable} {Path(__file__).parents[1] / 'environments' / 'workshop.py'}"
    shown = run("show", "--mcp", server, "--json")
    assert json.loads(shown.output)["tools"][0]["name"] == "add"
    tried = run("try", "--mcp", server, "add", '{"a": 2}')
    assert tried.exit_code == 0
    assert "tool       3" in tried.output


def test_check_tries_an_agent_with_a_scripted_policy(directory: Path) -> None:
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "3 * 4"}}\n</tool_call>'
    row = json.dumps({"question": "What is 3 * 4?", "answer": "12"})
    replies = ("--reply", call, "--reply", "<answer>12</answer>")
    result = run("check", "agent_calculator", "--agent", "--row", row, *replies, "--json")
    assert result.exit_code == 0, result.output
    findings = {one["check"]: (one["status"], one["detail"]) for one in json.loads(result.stdout)["findings"]}
    assert [status for status, _ in findings.values()] == ["passed"] * 5
    assert findings["calls"][1].startswith("2 calls")
    assert findings["result"][1] == "1"


def test_check_says_where_an_agent_rewrites_its_history(directory: Path) -> None:
    (directory / "rewriting.py").write_text(
        "def solve(row, client):\n"
        "    for number in range(2):\n"
        "        text = f'Attempt {number} at 3 * 4: ' + 'think well ' * 1000\n"
        "        messages = [{'role': 'user', 'content': text}]\n"
        "        client.chat.completions.create(model='policy', messages=messages)\n"
    )
    result = run("check", "rewriting.py:solve", "--agent", "--json")
    findings = {one["check"]: one for one in json.loads(result.stdout)["findings"]}
    assert (findings["history"]["status"], findings["result"]["status"]) == ("note", "note")
    assert "call 2 forks" in findings["history"]["detail"]
