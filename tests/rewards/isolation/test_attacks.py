"""What uploaded code tries, and what comes of it: a table of attacks, each a real upload in a real worker."""

import os
import socket
import threading
from pathlib import Path

import pytest

from agent_tunix.execution.isolation import problems
from tests.rewards.isolation.uploads import attack

pytestmark = pytest.mark.skipif(bool(problems()), reason="; ".join(problems()))

# The code of an attack, and how it must end.
REFUSED: dict[str, tuple[str, str]] = {
    # processes and programs
    "fork": ("import os\ndef attack(): return os.fork()", "PermissionError 1"),
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
    # the network
    "an internet socket": ("import socket\ndef attack(): return socket.socket()", "PermissionError 1"),
    "a datagram": (
        "import socket\ndef attack(): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
        "PermissionError 1",
    ),
    "a UNIX socket": ("import socket\ndef attack(): socket.socket(socket.AF_UNIX)", "PermissionError 1"),
    "a raw packet": ("import socket\ndef attack(): socket.socket(socket.AF_PACKET, 3)", "PermissionError 1"),
    "netlink": ("import socket\ndef attack(): socket.socket(16, socket.SOCK_RAW)", "PermissionError 1"),
    "a name to look up": ("import socket\ndef attack(): return socket.create_connection(('example.org', 80))", "Error"),
    "a way out of a pair of sockets": (
        "import socket\ndef attack():\n    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "    a.sendto(b'x', '/run/systemd/journal/socket')",
        "PermissionError 1",
    ),
    "connecting a pair of sockets to another": (
        "import socket\ndef attack():\n    a, b = socket.socketpair()\n    a.connect('/var/run/docker.sock')",
        "PermissionError 1",
    ),
    # files
    "/etc/passwd": ("def attack(): return open('/etc/passwd').read()", "Error"),
    "its own environment as a file": ("def attack(): return open('/proc/self/environ').read()", "Error"),
    "the first process's environment": ("def attack(): return open('/proc/1/environ').read()", "Error"),
    "its parent's memory as a file": (
        "import os\ndef attack(): return open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
        "Error",
    ),
    "a symbolic link to /etc/passwd": (
        "import os\ndef attack():\n    os.symlink('/etc/passwd', 'mine')\n    return open('mine').read()",
        "Error",
    ),
    "a hard link": (
        "import os\ndef attack():\n    os.link(os.__file__, 'mine')",
        "PermissionError 1",
    ),
    "a link out of its directory to write to": (
        "import os\ndef attack():\n    os.symlink(os.path.dirname(os.__file__), 'lib')\n"
        "    open('lib/evil.py', 'w').write('x')",
        "Error",
    ),
    "changing a library": ("import os\ndef attack(): open(os.__file__, 'a').write('x')", "Error"),
    "emptying a library": (
        "import os\ndef attack(): os.open(os.__file__, os.O_RDONLY | os.O_TRUNC)",
        "PermissionError",
    ),
    "truncating a library": ("import os\ndef attack(): os.truncate(os.__file__, 0)", "PermissionError 1"),
    "removing a library": ("import os\ndef attack(): os.remove(os.__file__)", "Error"),
    "the directory above its own": ("import os\ndef attack(): return os.listdir('..')", "PermissionError 13"),
    "modes of files": (
        "import os\ndef attack():\n    open('a', 'w').close()\n    os.chmod('a', 0o4777)",
        "PermissionError 1",
    ),
    "a device": (
        "import os, stat\ndef attack(): os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))",
        "PermissionError 1",
    ),
    # others
    "its parent's life": ("import os\ndef attack(): os.kill(os.getppid(), 9)", "PermissionError 1"),
    "everybody's life": ("import os\ndef attack(): os.kill(-1, 9)", "PermissionError 1"),
    "a process as a descriptor": ("import os\ndef attack(): return os.pidfd_open(os.getppid())", "PermissionError 1"),
    "signals by way of a file": (
        "import fcntl, os\ndef attack(): fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "PermissionError 1",
    ),
    "another priority": ("import os\ndef attack(): os.nice(-5)", "PermissionError 1"),
    "another user": ("import os\ndef attack(): os.setuid(0)", "PermissionError 1"),
    "higher limits": (
        "import resource\ndef attack(): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "Error",
    ),
    # memory and disk
    "ten gigabytes": ("def attack(): return len(bytearray(10 << 30))", "MemoryError"),
    "ten shared gigabytes": ("import mmap\ndef attack(): return len(mmap.mmap(-1, 10 << 30))", "OSError 12"),
    "memory that is a file": ("import os\ndef attack(): return os.memfd_create('x')", "PermissionError 1"),
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

# Calls that Python has no function for: their number on x86-64 and on 64-bit ARM, and the arguments.
_CALLS = {
    "ptrace": (101, 117, "16, os.getppid(), 0, 0"),
    "process_vm_readv": (310, 270, "os.getppid(), 0, 0, 0, 0, 0"),
    "io_uring_setup": (425, 425, "8, 0"),
    "unshare": (272, 97, "0x10000000"),
    "mount": (165, 40, "0, 0, 0, 0, 0"),
    "bpf": (321, 280, "0, 0, 0"),
    "userfaultfd": (323, 282, "0"),
    "perf_event_open": (298, 241, "0, 0, -1, -1, 0"),
    "keyctl": (250, 219, "0, 0, 0"),
    "open_by_handle_at": (304, 265, "0, 0, 0"),
    "pidfd_getfd": (438, 438, "0, 0, 0"),
    "prctl PR_SET_PDEATHSIG": (157, 167, "1, 0, 0, 0, 0"),
    "prctl PR_SET_DUMPABLE": (157, 167, "4, 1, 0, 0, 0"),
    "a process by clone": (56, 220, "17, 0, 0, 0, 0"),
    "ioctl TIOCSTI": (16, 29, "0, 0x5412, 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    code, how = REFUSED[name]
    said = attack(code, memory_mb=256)
    assert said.startswith("refused: "), said
    assert how in said


@pytest.mark.parametrize("name", _CALLS)
def test_the_kernel_is_not_asked(name: str) -> None:
    x86, arm, arguments = _CALLS[name]
    said = attack(
        f"""
        import ctypes, os, platform
        libc = ctypes.CDLL(None, use_errno=True)
        def attack():
            number = {{"x86_64": {x86}, "aarch64": {arm}}}[platform.machine()]
            if libc.syscall(ctypes.c_long(number), {arguments}) == -1:
                raise OSError(ctypes.get_errno(), "no")
            return "done"
        """
    )
    assert said.startswith("refused: PermissionError 1 "), said


def test_clone3_is_unknown_so_that_threads_are_made_otherwise() -> None:
    said = attack(
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        def attack():
            libc.syscall(435, 0, 0)
            raise OSError(ctypes.get_errno(), "no")
        """
    )
    assert "OSError 38" in said


@pytest.mark.parametrize("place", ["home", "database"])
def test_files_of_this_user_are_out_of_reach(place: str, tmp_path: Path) -> None:
    secret = tmp_path / place
    secret.write_text("do not read")
    secret.chmod(0o644)
    said = attack(f"def attack(): return open({str(secret)!r}).read()")
    assert said.startswith("refused: ")
    said = attack(f"def attack(): open({str(secret)!r}, 'w').write('gone')")
    assert said.startswith("refused: ")
    assert secret.read_text() == "do not read"


def test_a_server_on_this_machine_hears_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = threading.Event()

        def listen() -> None:
            server.settimeout(0.5)
            try:
                server.accept()
            except TimeoutError:
                return
            heard.set()

        listener = threading.Thread(target=listen)
        listener.start()
        port = server.getsockname()[1]
        said = attack(f"import socket\ndef attack(): socket.create_connection(('127.0.0.1', {port}))")
        listener.join()
    assert said.startswith("refused: ")
    assert not heard.is_set()


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
