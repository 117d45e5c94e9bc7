"""Systems that cannot isolate code: it is refused, or runs as it is allowed to; and systems that can do less."""

import json
import logging
import os
import sys
from pathlib import Path

import pytest

from agent_tunix.errors import SandboxUnavailableError
from agent_tunix.execution.isolation import kernel, problems, requirements
from agent_tunix.execution.sandbox import run_program
from agent_tunix.rewards import Outcome, Sample, settle_completions
from tests.execution.users import run_as, users
from tests.raising import raises
from tests.rewards.builtin.cases import score
from tests.rewards.isolation.uploads import resolve_uploads, score_upload, upload

CODE = "def reward(completions, **kwargs): return [1.0] * len(completions)"


@pytest.fixture
def without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without Landlock, as this process sees it."""
    monkeypatch.setattr(requirements, "landlock_version", lambda: 0)


@pytest.mark.usefixtures("without_landlock")
def test_uploaded_code_is_refused_with_what_is_missing_and_what_to_do() -> None:
    with raises(SandboxUnavailableError, "sandbox_unavailable") as caught:
        score_upload(CODE)
    for fact in ("no Landlock", "rewards.allow_unsandboxed=true", "--allow-unsandboxed"):
        assert fact in str(caught.value)


@pytest.mark.usefixtures("without_landlock")
def test_programs_of_code_tests_are_refused_and_the_score_is_an_error() -> None:
    with raises(SandboxUnavailableError, "sandbox_unavailable") as caught:
        run_program("print(4)")
    assert "allow_unsandboxed" not in str(caught.value)
    assert score("code_tests", "print(4)", tests=[{"input": "", "output": "4"}]).outcome is Outcome.ERROR


@pytest.mark.usefixtures("without_landlock")
def test_it_is_not_tried_either() -> None:
    mixture = resolve_uploads(upload(CODE))
    reward = mixture.components[0].reward
    reward.settings = type(reward.settings)("trl", "auto", None)  # type: ignore[attr-defined]
    with raises(SandboxUnavailableError, "sandbox_unavailable"):
        settle_completions([reward], Sample("x"))


@pytest.mark.usefixtures("without_landlock")
def test_it_runs_where_that_is_allowed_and_the_log_says_how(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (score,) = score_upload(CODE, allow_unsandboxed=True)
    assert score.value == 1.0
    assert "isolate it (the kernel has no Landlock" in caplog.text


def test_allowing_it_changes_nothing_where_it_can_be_isolated() -> None:
    if problems():
        pytest.skip("; ".join(problems()))
    (score,) = score_upload("def reward(completions, **kwargs): open('/etc/passwd')", allow_unsandboxed=True)
    assert score.outcome is Outcome.ERROR


def test_root_that_cannot_end_other_users_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "effective_capabilities", lambda: 1 << 6 | 1 << 7 | 1 << 21)
    assert any("CAP_KILL" in problem for problem in problems())


def test_another_system_has_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "is_linux", lambda: False)
    assert problems() == [f"isolation needs Linux, and this is {sys.platform}"]


def test_another_architecture_has_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.uname_result(("Linux", "here", "6.1", "#1", "riscv64"))
    monkeypatch.setattr("os.uname", lambda: machine)
    (problem,) = problems()
    assert "riscv64" in problem


@pytest.mark.skipif(not kernel.is_linux(), reason="users are Linux's")
def test_root_that_may_not_change_its_user_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "effective_capabilities", lambda: 1 << 5)
    assert any("CAP_SETUID" in problem for problem in problems())


@pytest.mark.skipif(not kernel.is_linux(), reason="users are Linux's")
def test_a_python_that_only_root_reaches_needs_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "lib").mkdir(parents=True)
    home.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(os, "__file__", str(home / "lib" / "os.py"))
    monkeypatch.setattr(requirements, "effective_capabilities", lambda: 1 << 5 | 1 << 6 | 1 << 7)
    assert any("CAP_SYS_ADMIN" in problem for problem in problems())
    monkeypatch.setattr(requirements, "effective_capabilities", lambda: 1 << 5 | 1 << 6 | 1 << 7 | 1 << 21)
    assert not any("CAP_SYS_ADMIN" in problem for problem in problems())


_PROGRAM = """
import json, os, sys
from tests.rewards.isolation.uploads import score_upload
if sys.argv[1] == "no-namespaces":
    from tests.execution.namespaces import do_without
    do_without()
code = '''
import os
def attempt(action):
    try: action()
    except OSError as error: return type(error).__name__
    return "done"
def reward(completions, log_extra, **kwargs):
    open("mine", "w").write("x")
    log_extra("user", [os.getuid()])
    log_extra("root", [os.getcwd() == "/scratch"])
    log_extra("passwd", [attempt(lambda: open("/etc/passwd"))])
    log_extra("fork", [attempt(os.fork)])
    log_extra("elsewhere", [attempt(lambda: open("/var/tmp/mine", "w"))])
    return [1.0]
'''
flood = '''
def reward(completions, **kwargs):
    number = 0
    while True:
        number += 1
        with open(f"file_{number}", "wb") as file: file.write(bytes(1 << 20))
'''
hidden = '''
import os, time
def reward(completions, **kwargs):
    os.umask(0)
    os.mkdir("hidden", 0o300)
    for number in range(2):
        with open(f"hidden/{number}", "wb") as file: file.write(bytes(1 << 20))
    time.sleep(1.0)
    return [1.0]
'''
unlinked = '''
import os
def reward(completions, **kwargs):
    files = []
    for number in range(3):
        files.append(open(f"file_{number}", "wb"))
        os.unlink(f"file_{number}")
        files[-1].write(bytes(40 << 20))
        files[-1].flush()
    return [1.0]
'''
program = '''
import os
for action in (lambda: open("/etc/passwd"), os.fork, lambda: open("mine", "w"), lambda: os.listdir("/proc")):
    try: action()
    except OSError: print("refused")
print(os.getuid() == PARENT, os.getcwd())
'''
if __name__ == "__main__":
    from agent_tunix.execution.sandbox import run_program
    (score,) = score_upload(code)
    (flooded,) = score_upload(flood, timeout_s=60.0)
    lists = os.getuid() == 0 or sys.argv[1] == "namespaces"  # who can list every directory needs no help
    (hid,) = score_upload(hidden, timeout_s=60.0)
    (removed,) = score_upload(unlinked, timeout_s=60.0)
    run = run_program(program.replace("PARENT", str(__import__("os").getuid())), timeout_s=60.0)
    tested = run_program("def f(x): return 2 * x", checks=["assert f(2) == 4", "assert f(2) == 5"], timeout_s=60.0)
    print(json.dumps([score.value, score.detail, score.extras, flooded.outcome.value, flooded.detail,
                      run.output.split(), tested.passed, (hid.outcome.value == "scored") == lists, removed.detail]))
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))
@pytest.mark.parametrize("namespaces", ["namespaces", "no-namespaces"])
@pytest.mark.parametrize("user", users())
def test_isolation_as_whom_and_with_what(user: str, namespaces: str) -> None:
    if user == "this" and namespaces == "no-namespaces" and not _is_for_all(os.path.dirname(os.__file__)):
        pytest.skip("this Python lies where only root reads, which needs a root of its own")
    printed = run_as(user, "-c", _PROGRAM, namespaces)
    value, detail, extras, outcome, why, output, tested, is_found, removed = json.loads(printed.splitlines()[-1])
    assert detail == ""
    assert value == 1.0
    assert extras["user"] not in (0, os.getuid() if os.getuid() == 0 else None)
    assert extras["root"] is (namespaces == "namespaces")
    assert extras["passwd"] != "done"
    assert extras["fork"] == "PermissionError"
    assert extras["elsewhere"] != "done"
    assert outcome == "error"
    assert "No space left" in why or "wrote more than 64 MB" in why
    assert is_found
    assert "No space left" in removed or "Permission denied" in removed or "not permitted" in removed
    is_same = str(user == "nobody" or os.getuid() != 0)
    assert output == ["refused"] * 4 + [is_same, "/scratch" if namespaces == "namespaces" else "/"]
    assert tested == [True, False]


def _is_for_all(path: str) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (Path(path), *Path(path).parents))
