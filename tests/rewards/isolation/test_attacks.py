"""Ways of Python by which an upload may try what it must not: all in one worker. `tests/execution` has the kernel's."""

import os
import socket
from functools import cache
from pathlib import Path

import pytest

from agent_tunix.execution.isolation import problems
from agent_tunix.rewards import Sample
from agent_tunix.rewards.execution import make_runner
from tests.rewards.isolation.uploads import attack, resolve_uploads, upload

pytestmark = pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))

# The code of an attack, and how it must end.
REFUSED: dict[str, tuple[str, str]] = {
    "a fork bomb": ("import os\ndef attack():\n    while True: os.fork()", "PermissionError 1"),
    "a program": ("import subprocess\ndef attack(): return subprocess.run(['/bin/true'])", "Error"),
    "posix_spawn": ("import os\ndef attack(): return os.posix_spawn('/bin/true', ['true'], {})", "Error"),
    "exec": ("import os, sys\ndef attack(): os.execv(sys.executable, [sys.executable, '-V'])", "PermissionError 1"),
    "multiprocessing": (
        "import multiprocessing\ndef attack():\n    p = multiprocessing.Process(target=print)\n    p.start()",
        "Error",
    ),
    "hundreds of threads": (
        "import threading\ndef attack():\n    e = threading.Event()\n"
        "    for _ in range(5000): threading.Thread(target=e.wait, daemon=True).start()",
        "RuntimeError None can't start new thread",
    ),
    "a name to look up": ("import socket\ndef attack(): return socket.create_connection(('example.org', 80))", "Error"),
    "a symbolic link to /etc/passwd": (
        "import os\ndef attack():\n    os.symlink('/etc/passwd', 'mine')\n    return open('mine').read()",
        "Error",
    ),
    "a link out of its directory to write to": (
        "import os\ndef attack():\n    os.symlink(os.path.dirname(os.__file__), 'lib')\n"
        "    open('lib/evil.py', 'w').write('x')",
        "Error",
    ),
    "the directory above its own": ("import os\ndef attack(): return os.listdir('..')", "PermissionError 13"),
    "ten gigabytes": ("def attack(): return len(bytearray(10 << 30))", "MemoryError"),
    "ten shared gigabytes": ("import mmap\ndef attack(): return len(mmap.mmap(-1, 10 << 30))", "OSError 12"),
    "shared memory": (
        "from multiprocessing.shared_memory import SharedMemory\n"
        "def attack(): return SharedMemory('mine', True, 1 << 20).size",
        "Error",
    ),
    "one large file": (
        "def attack():\n    with open('large', 'wb') as file:\n"
        "        for _ in range(1000): file.write(bytes(1 << 20))",
        "OSError",
    ),
}  # fmt: skip


@cache
def said() -> dict[str, str]:
    """Make every attack; what each said."""
    code = (
        f"CODE = {{name: code for name, (code, _) in {REFUSED!r}.items()}}\n"
        + """
def reward(completions, **kwargs):
    space = {"__name__": "attack"}
    try:
        exec(CODE[completions[0]], space)
        found = space["attack"]()
    except BaseException as error:
        raise RuntimeError(f"refused: {type(error).__name__} {getattr(error, 'errno', None)} {error}")
    raise RuntimeError(f"succeeded: {found!r}")
"""
    )
    samples = [Sample(name, group_id=number) for number, name in enumerate(REFUSED)]
    (component,) = resolve_uploads(upload(code)).components
    with make_runner(component.reward, num_workers=1, memory_mb=256, timeout_s=60.0) as runner:
        scores = runner.reward.score(samples)
    return {name: score.detail.removeprefix("RuntimeError: ") for name, score in zip(REFUSED, scores, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    assert said()[name].startswith("refused: "), said()[name]
    assert REFUSED[name][1] in said()[name]


@pytest.mark.slow
def test_files_of_this_user_are_out_of_reach(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    secret.chmod(0o644)
    said = attack(f"def attack(): return open({str(secret)!r}).read()")
    assert said.startswith("refused: ")
    said = attack(f"def attack(): open({str(secret)!r}, 'w').write('gone')")
    assert said.startswith("refused: ")
    assert secret.read_text() == "do not read"


@pytest.mark.slow
def test_a_server_on_this_machine_hears_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        said = attack(f"import socket\ndef attack(): socket.create_connection(('127.0.0.1', {port}))")
        assert said.startswith("refused: ")
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.slow
def test_secrets_of_the_environment_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AGENT_TUNIX_DATABASE_URL", "AGENT_TUNIX_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, "s3cret")
    said = attack(
        """
        import ctypes, os
        def attack():
            entries, place = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), 0
            found = list(os.environ.values())
            while entries[place]:
                found.append(entries[place].decode())
                place += 1
            return [entry for entry in found if "s3cret" in entry], sorted(os.environ)
        """
    )
    assert said.startswith("succeeded: ([], ")
    assert "HOME" in said
    assert os.environ["HOME"] not in said


@pytest.mark.slow
def test_the_store_can_be_imported_and_has_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TUNIX_HOME", str(tmp_path))
    said = attack("from agent_tunix.store.home import home\ndef attack(): return list(home().iterdir())")
    assert said.startswith("refused: ")
    assert str(tmp_path) not in said


def test_it_has_a_directory_of_its_own() -> None:
    said = attack(
        """
        import os, tempfile
        def attack():
            with tempfile.NamedTemporaryFile("w+") as file:
                file.write("mine")
                file.flush()
                os.mkdir("inner")
                os.rename(file.name, "inner/moved")
                open(file.name, "w").close()
                return open("inner/moved").read(), os.listdir(".")
        """
    )
    assert "succeeded: ('mine'" in said
