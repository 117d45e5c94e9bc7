"""Where isolation cannot be had, uploaded code is refused, or runs as it is allowed to; and how it is had elsewhere."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from agent_tunix.errors import SandboxUnavailableError
from agent_tunix.execution.isolation import kernel, problems, requirements
from agent_tunix.rewards import Outcome, Sample, settle_completions
from tests.rewards.isolation.uploads import resolve_uploads, score_upload, upload

CODE = "def reward(completions, **kwargs): return [1.0] * len(completions)"


@pytest.fixture
def without_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without Landlock, as this process sees it."""
    monkeypatch.setattr(requirements, "landlock_version", lambda: 0)
    monkeypatch.setattr(requirements, "_problems", requirements._problems.__wrapped__)


@pytest.mark.usefixtures("without_landlock")
def test_uploaded_code_is_refused_with_what_is_missing_and_what_to_do() -> None:
    with pytest.raises(SandboxUnavailableError, match=r"no Landlock.*rewards.allow_unsandboxed=true.*--allow-unsandb"):
        score_upload(CODE)


@pytest.mark.usefixtures("without_landlock")
def test_it_is_not_tried_either() -> None:
    mixture = resolve_uploads(upload(CODE))
    reward = mixture.components[0].reward
    reward.settings = type(reward.settings)("trl", "auto", None)  # type: ignore[attr-defined]
    with pytest.raises(SandboxUnavailableError):
        settle_completions([reward], Sample("x"))


@pytest.mark.usefixtures("without_landlock")
def test_it_runs_where_that_is_allowed_and_the_log_says_how(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (score,) = score_upload(CODE, allow_unsandboxed=True)
    assert score.value == 1.0
    assert "isolated here (the kernel has no Landlock" in caplog.text


def test_allowing_it_changes_nothing_where_it_can_be_isolated() -> None:
    if problems():
        pytest.skip("; ".join(problems()))
    (score,) = score_upload("def reward(completions, **kwargs): open('/etc/passwd')", allow_unsandboxed=True)
    assert score.outcome is Outcome.ERROR


def test_another_system_has_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "is_linux", lambda: False)
    assert requirements._problems.__wrapped__() == (f"isolation needs Linux, and this is {sys.platform}",)


def test_another_architecture_has_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    (problem,) = requirements._problems.__wrapped__()
    assert "riscv64" in problem


@pytest.mark.skipif(not kernel.is_linux(), reason="users are Linux's")
def test_root_that_may_not_change_its_user_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "_capabilities", lambda: 0)
    assert any("CAP_SETUID" in problem for problem in requirements._problems.__wrapped__())


@pytest.mark.skipif(not kernel.is_linux(), reason="users are Linux's")
def test_a_python_that_only_root_reaches_needs_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "lib").mkdir(parents=True)
    home.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(os, "__file__", str(home / "lib" / "os.py"))
    monkeypatch.setattr(requirements, "_capabilities", lambda: 1 << 6 | 1 << 7)
    assert any("CAP_SYS_ADMIN" in problem for problem in requirements._problems.__wrapped__())
    monkeypatch.setattr(requirements, "_capabilities", lambda: 1 << 6 | 1 << 7 | 1 << 21)
    assert not any("CAP_SYS_ADMIN" in problem for problem in requirements._problems.__wrapped__())


_PROGRAM = """
import json, sys
from agent_tunix.execution.isolation import root
from tests.rewards.isolation.uploads import score_upload
if sys.argv[1] == "no-namespaces":
    from agent_tunix.rewards.execution import nursery_client
    nursery_client._BOOT = (
        "import sys; sys.path.insert(0, sys.argv[2]); from agent_tunix.execution.isolation import locking as module\\n"
        "def refuse(): raise OSError('no namespaces')\\n"
        "module.enter_own_namespaces = refuse\\n"
        "from agent_tunix.rewards.execution import nursery; nursery.main(int(sys.argv[1]))"
    )
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
if __name__ == "__main__":
    (score,) = score_upload(code)
    (flooded,) = score_upload(flood, timeout_s=20.0)
    print(json.dumps([score.value, score.detail, score.extras, flooded.outcome.value, flooded.detail]))
"""
# Gives an ordinary user the way to this Python, its packages and this checkout, wherever they lie: in mounts that
# nobody else sees.
_AS_NOBODY = """
set -e
mount --make-rprivate /
if ! setpriv --reuid=65534 --regid=65534 --clear-groups test -r "$1"; then
  home=/root
  mkdir "$2/home"
  mount --rbind $home "$2/home"
  mount -t tmpfs -o mode=0755 none $home
  cd "$2/home"
  for name in .[!.]* *; do
    if test -d "$name" && ! test -L "$name"; then mkdir "$home/$name"; mount --rbind "$name" "$home/$name"; fi
  done
fi
mkdir -p "$2/checkout/src" "$2/checkout/tests" "$2/environment"
for name in src tests; do mount --bind "$3/$name" "$2/checkout/$name"; done
mount --bind "$4" "$2/environment"
cd "$2/checkout"
export PYTHONPATH="$2/checkout/src:$2/checkout"
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$2/environment/bin/python" "$2/program.py" "$5"
"""


@pytest.mark.parametrize("namespaces", ["namespaces", "no-namespaces"])
@pytest.mark.parametrize("user", ["this", "nobody"])
def test_isolation_as_whom_and_with_what(user: str, namespaces: str) -> None:
    if problems():
        pytest.skip("; ".join(problems()))
    if user == "nobody" and (os.geteuid() or not all(map(shutil.which, ("unshare", "setpriv", "mount")))):
        pytest.skip("only root can become another user")
    library = os.path.dirname(os.__file__)
    if user == "this" and namespaces == "no-namespaces" and not _is_for_all(library):
        pytest.skip("this Python lies where only root reads, which needs a root of its own")
    checkout = Path(__file__).parents[3]
    place = tempfile.mkdtemp(dir="/tmp")
    try:
        os.chmod(place, 0o755)
        Path(place, "program.py").write_text(_PROGRAM)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{checkout}/src:{checkout}", "HOME": "/nonexistent"}
        command = [sys.executable, f"{place}/program.py", namespaces]
        if user == "nobody":
            arguments = [library, place, str(checkout), sys.prefix, namespaces]
            command = ["unshare", "--mount", "sh", "-c", _AS_NOBODY, "sh", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    finally:
        shutil.rmtree(place)
    assert done.returncode == 0, done.stderr
    value, detail, extras, outcome, why = json.loads(done.stdout.splitlines()[-1])
    assert detail == ""
    assert value == 1.0
    assert extras["user"] not in (0, os.getuid() if os.getuid() == 0 else None)
    assert extras["root"] is (namespaces == "namespaces")
    assert extras["passwd"] != "done"
    assert extras["fork"] == "PermissionError"
    assert extras["elsewhere"] != "done"
    assert outcome == "error"
    assert "No space left" in why or "wrote more than 64 MB" in why


def _is_for_all(path: str) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (Path(path), *Path(path).parents))
