"""`agent-tunix store …` and `agent-tunix keys …` on the store of this machine."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from agent_tunix.cli import main
from agent_tunix.execution.isolation import requirements

pytestmark = pytest.mark.slow

SOURCE = "def reward(completions, **kwargs):\r\n    return [len(c) / 9 for c in completions]  # é\r\n".encode()
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the program in a directory and with a store of its own."""
    for name in ("AGENT_TUNIX_URL", "AGENT_TUNIX_KEY", "AGENT_TUNIX_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("brevity.py").write_bytes(SOURCE)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def upload(run: Run, *options: str) -> str:
    result = run("store", "upload", "brevity.py", *options)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_upload_prints_the_id_alone_on_standard_output(run: Run) -> None:
    result = run("store", "upload", "brevity.py")
    assert (result.exit_code, bool(re.fullmatch(r"rf_[a-z2-7]{24}\n", result.stdout))) == (0, True)
    assert "brevity, version 1" in result.stderr


def test_an_upload_is_listed_and_read_by_id_and_by_name(run: Run) -> None:
    id = upload(run, "--name", "short")
    assert [one["id"] for one in json.loads(run("store", "list", "--json").stdout)["data"]] == [id]
    shown = [json.loads(run("store", "get", which, "--json").stdout) for which in (id, "short")]
    assert shown[0] == shown[1]
    assert (shown[0]["object"], shown[0]["name"], shown[0]["format"]) == ("reward_function", "short", "trl")
    assert f"id       {id}" in run("store", "get", "short").stdout


def test_the_format_is_read_from_the_file_and_the_source_is_returned_byte_for_byte(run: Run) -> None:
    assert run("store", "get", upload(run), "--source").stdout_bytes == SOURCE
    Path("brevity.py").write_text("async def reward(args, sample, **kwargs):\n    return len(sample.response) / 9\n")
    assert json.loads(run("store", "get", upload(run), "--json").stdout)["format"] == "miles"


def test_advice_is_given_on_standard_error(run: Run) -> None:
    Path("brevity.py").write_text("def reward(completions):\n    return [len(c) / 9 for c in completions]\n")
    assert "advice: line 1: `reward` takes no **kwargs" in run("store", "upload", "brevity.py").stderr


def test_an_upload_warns_of_files_that_the_sandbox_hides(run: Run) -> None:
    Path("helper.py").write_text("LIMIT = 9\n")
    Path("brevity.py").write_text(
        "from helper import LIMIT\nWORDS = open('words.txt').read()\n\n\n"
        "def reward(completions, **kwargs):\n    return [len(c) / LIMIT for c in completions]\n"
    )
    told = run("store", "upload", "brevity.py").stderr
    assert re.search(r"advice: it uses \S*helper\.py, but an uploaded reward sees no files", told)
    assert "advice: line 2: `open('words.txt')` reads a file" in told


SUPPORT = """
from agent_tunix.rewards import register_reward_function


@register_reward_function("keywords_found")
def keywords(response, words):
    "Return the share of the words. Range [0, 1]."
    if "boom" in response:
        raise ValueError("boom")
    return sum(word in response for word in words) / len(words)


def brevity(response, limit=8):
    return max(0.0, 1 - len(response) / limit)


def batch(completions, answer=None, scale=1.0, **kwargs):
    return [scale / (1 + len(completion)) for completion in completions]


async def hosted(args, sample, **kwargs):
    return 1.0


class Judged:
    pass


def unfit(text):
    return 1.0


def scored(data_source, solution_str, ground_truth, extra_info=None):
    return 1 / len(solution_str)
"""


def sandboxed(run: Run, *arguments: str) -> dict[str, Any]:
    """Try an uploaded reward in a worker, where the machine can lock it in or not."""
    tried = run("rewards", "try", *arguments, "--json", "--allow-unsandboxed")
    found: dict[str, Any] = json.loads(tried.stdout)
    return found


def test_a_file_with_one_registered_function_is_uploaded_under_its_name(run: Run) -> None:
    Path("support.py").write_text(SUPPORT)
    result = run("store", "upload", "support.py")
    assert result.exit_code == 0, result.output
    assert "keywords_found, version 1" in result.stderr
    id, words = result.stdout.strip(), ("--column", "words=[a, b]")
    assert sandboxed(run, id, "--response", "an apple", *words)["value"] == 0.5
    failed = sandboxed(run, id, "--response", "boom", *words)
    assert failed["outcome"] == "error"
    assert "boom" in failed["detail"]
    # The row must have the column, as for the function itself.
    assert run("rewards", "try", id, "--response", "a", "--allow-unsandboxed").exit_code == 2


@pytest.mark.parametrize(
    ("function", "format"), [("brevity", "plain"), ("batch", "trl"), ("hosted", "miles"), ("scored", "verl")]
)
def test_a_function_of_a_file_is_uploaded_by_its_name(function: str, format: str, run: Run) -> None:
    Path("support.py").write_text(SUPPORT)
    result = run("store", "upload", f"support.py:{function}", "--json")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert (made["name"], made["format"]) == (function, format)
    assert (
        sandboxed(run, made["id"], "--response", "four")["value"]
        == {"brevity": 0.5, "batch": 0.2, "hosted": 1, "scored": 0.25}[function]
    )


@pytest.mark.parametrize(
    ("function", "words"),
    [("absent", "keywords, brevity"), ("Judged", "no function"), ("unfit", "unfit(text)")],
)
def test_what_no_upload_can_call_is_refused_with_what_to_write(function: str, words: str, run: Run) -> None:
    Path("support.py").write_text(SUPPORT)
    result = run("store", "upload", f"support.py:{function}")
    assert result.exit_code == 1, result.output
    assert words in result.stderr
    Path("two.py").write_text("def one(response):\n    return 1.0\n\n\ndef two(response):\n    return 2.0\n")
    several = run("store", "upload", "two.py")
    assert (several.exit_code, "one, two; upload one of them as FILE:one" in several.stderr) == (1, True)


MIXTURE = """
components:
  found: {function: support.py:keywords, kind: quality}
  brevity: {function: support.py:brevity, weight: 0.5, args: {limit: 4}}
  tags: {function: format, weight: 0.1}
"""


def test_a_mixture_is_uploaded_with_the_files_that_it_names(run: Run) -> None:
    Path("support.py").write_text(SUPPORT)
    Path("conf/reward").mkdir(parents=True)
    Path("conf/reward/desk.yaml").write_text(MIXTURE)
    result = run("store", "upload", "conf/reward/desk.yaml", "--if-changed")
    assert result.exit_code == 0, result.output
    assert run("store", "upload", "conf/reward/desk.yaml", "--if-changed").stdout == result.stdout
    kept = yaml.safe_load(result.stdout)["components"]
    assert [kept["tags"], kept["found"]["kind"], kept["brevity"]["weight"]] == [
        {"function": "format", "weight": 0.1},
        "quality",
        0.5,
    ]
    assert run("store", "get", "desk.found").exit_code == 0
    Path("conf/reward/stored.yaml").write_text(result.stdout)
    asked = ("--response", "a b", "--column", "words=[a, b]")
    assert sandboxed(run, "stored", *asked)["value"] == sandboxed(run, "desk", *asked)["value"]


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ("{function: keywords_found}", "x: {function: FILE.py:keywords_found}"),
        ("{function: absent.py:f}", "absent.py is no file"),
    ],
)
def test_a_mixture_that_cannot_be_uploaded_says_what_to_write(component: str, words: str, run: Run) -> None:
    Path("support.py").write_text(SUPPORT)
    Path("desk.yaml").write_text(f"components:\n  tags: format\n  x: {component}\n")
    result = run("store", "upload", "desk.yaml")
    assert (result.exit_code, words in result.stderr) == (1, True), result.output
    assert run("store", "list").stdout == ""


def test_a_list_has_pages(run: Run) -> None:
    ids = [upload(run) for _ in range(3)]
    first = run("store", "list", "--limit", "2")
    assert [line.split()[0] for line in first.stdout.splitlines()] == ids[:0:-1]
    assert f"more: --after {ids[1]}" in first.stderr
    assert run("store", "list", "--after", ids[1], "--name", "brevity").stdout.split()[0] == ids[0]


@pytest.mark.parametrize(
    ("status", "arguments"),
    [
        (1, ["store", "get", "rf_aaaaaaaaaaaaaaaaaaaaaaaa"]),
        (1, ["store", "get", "unknown"]),
        (1, ["store", "upload", "brevity.py", "--name", "a b"]),
        (1, ["store", "upload", "broken.py"]),
        (2, ["store", "upload", "absent.py"]),
        (2, ["store", "upload", "brevity.py", "--format", "castform"]),
        (2, ["store", "list", "--key", "vk_wrong"]),
        (2, ["store", "list", "--url", "http://127.0.0.1:9"]),
        (1, ["keys", "revoke", "nobody"]),
        (2, ["keys", "create", "alice", "--scope", "admin"]),
    ],
)
def test_the_status_is_1_for_a_refusal_and_2_for_a_wrong_use(status: int, arguments: list[str], run: Run) -> None:
    Path("broken.py").write_text("def reward(")
    result = run(*arguments)
    assert result.exit_code == status, result.output
    assert result.stderr
    assert "Traceback" not in result.stderr


def test_an_unusable_database_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_DATABASE_URL", "mysql://a@b/c")
    assert run("store", "list").exit_code == 2


def test_a_key_is_shown_once_and_opens_what_its_scopes_allow_until_it_is_revoked(run: Run) -> None:
    secret = run("keys", "create", "alice", "--scope", "read").stdout.strip()
    assert re.fullmatch(r"vk_[A-Za-z0-9]{40}", secret)
    assert secret not in run("keys", "list").output
    assert run("store", "list", "--key", secret).exit_code == 0
    refused = run("store", "upload", "brevity.py", "--key", secret)
    assert (refused.exit_code, "lacks the scope 'write'" in refused.stderr) == (2, True)
    assert run("keys", "revoke", "alice").exit_code == 0
    assert run("store", "list", "--key", secret).exit_code == 2
    assert "revoked" in run("keys", "list").stdout


def test_a_name_is_its_owners(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = run("keys", "create", "alice").stdout.strip()
    id = upload(run, "--key", secret)
    assert run("store", "upload", "brevity.py").exit_code == 1
    monkeypatch.setenv("AGENT_TUNIX_KEY", run("keys", "create", "bob").stdout.strip())
    assert run("store", "delete", id).exit_code == 1
    assert run("store", "delete", id, "--key", secret).exit_code == 0
    monkeypatch.delenv("AGENT_TUNIX_KEY")
    assert run("store", "delete", upload(run, "--key", secret)).exit_code == 0  # with the database, without a key


def test_a_stored_reward_can_be_tried_and_shown(run: Run) -> None:
    id = upload(run)
    assert run("rewards", "try", id, "--response", "abc").stdout.startswith(f"{id}: 0.333")
    assert "brevity.reward" in run("rewards", "show", "brevity").stdout


UNSANDBOXED = {
    "try": ["brevity", "--response", "abc"],
    "test": ["brevity", "cases.yaml"],
}


@pytest.mark.parametrize("command", UNSANDBOXED)
def test_a_stored_reward_that_cannot_be_isolated_runs_only_where_that_is_allowed(
    command: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "landlock_version", lambda: 0)
    upload(run)
    Path("cases.yaml").write_text("- {response: abc, expected: 0.333333}\n")
    refused = run("rewards", command, *UNSANDBOXED[command])
    assert (refused.exit_code, "--allow-unsandboxed" in refused.stderr) == (2, True)
    allowed = run("rewards", command, *UNSANDBOXED[command], "--allow-unsandboxed")
    assert allowed.exit_code in (0, 1), allowed.output
    assert "cannot be isolated" not in allowed.stdout
