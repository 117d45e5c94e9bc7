"""Attacks by uploaded code that is tried: each outcome as the page has it, `error: PermissionError` for instance."""

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.service.abuse.cases import answers, case
from tests.service.abuse.victim import LIST, Victim
from tests.service.support import new_name, upload

# How the names of cases begin that need isolation to be had.
UPLOADS = "an upload that "


_ERROR = re.compile(r"\w*[Ee]rror\b")


def attempt(victim: Victim, body: str) -> str:
    """Return the outcome of a completion whose reward is this code, with the class of an error of its own."""
    code = f"def reward(completions, **kwargs):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n    return [1.0]\n"
    with victim.client() as client:
        id = upload(client, new_name(), code.encode()).json()["id"]
        response = client.post(f"{LIST}/{id}/try", json={"rows": [{"completions": ["a"]}]})
    assert response.status_code == 200, response.text
    answers(b"HTTP/1.1 200 x\r\n\r\n" + response.content)  # nothing is in it that may not be
    score = response.json()["data"][0]
    named = _ERROR.match(score["detail"]) if score["outcome"] == "error" else None
    return f"{score['outcome']}: {named[0]}" if named else str(score["outcome"])


def uploads_that(what: str, *bodies: str, slow: bool = False) -> Callable[[Victim], Iterator[str]]:
    """A case of some uploads."""

    def act(victim: Victim) -> Iterator[str]:
        for body in bodies:
            yield attempt(victim, body)

    case(f"{UPLOADS}{what}", slow)(act)
    return act


uploads_that(
    "forks, or forks without end",
    "import os; os.fork()",
    "import os\nwhile True: os.fork()",
    "import multiprocessing; multiprocessing.Process(target=print).start()",
)
uploads_that(
    "runs a program",
    "import os, sys; os.execv(sys.executable, ['python', '-V'])",
    "import subprocess; subprocess.run(['/bin/sh', '-c', 'id'])",
    "import os; os.posix_spawn('/bin/true', ['true'], {})",
)
uploads_that(
    "starts threads without end",
    """
    import threading
    while True: threading.Thread(target=threading.Event().wait, daemon=True).start()
    """,
)
uploads_that(
    "opens a socket",
    "import socket; socket.socket()",
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "import socket; socket.socket(socket.AF_UNIX)",
    "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
)
uploads_that("resolves a host name", "import socket; socket.create_connection(('example.org', 80))")
uploads_that(
    "reads /etc/passwd",
    "raise RuntimeError(open('/etc/passwd').read())",
    "import os, time\nos.symlink('/etc/passwd', name := str(time.time_ns()))\nraise RuntimeError(open(name).read())",
    "import os, time\nos.link('/etc/passwd', name := str(time.time_ns()))\nraise RuntimeError(open(name).read())",
)
uploads_that(
    "reads the server's environment as a file",
    "raise RuntimeError(open('/proc/self/environ').read())",
    "import os; raise RuntimeError(open(f'/proc/{os.getppid()}/environ').read())",
    "raise RuntimeError(open('/proc/1/environ').read())",
)
uploads_that(
    "returns its environment",
    """
    import ctypes, os
    entries, place, found = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), 0, dict(os.environ)
    while entries[place]:
        found[place] = entries[place].decode()
        place += 1
    raise RuntimeError(found)
    """,
)
uploads_that(
    "fills the disk",
    """
    with open("large", "wb") as file:
        while True: file.write(bytes(1 << 20))
    """,
    """
    number = 0
    while True:
        number += 1
        with open(f"file_{number}", "wb") as file: file.write(bytes(1 << 20))
    """,
    """
    number = 0
    while True:
        number += 1
        open(f"file_{number}", "wb").close()
    """,
)
uploads_that(
    "takes all memory",
    "bytearray(10 << 30)",
    "found = []\nwhile True: found.append(bytearray(1 << 20))",
    "import mmap; mmap.mmap(-1, 10 << 30)",
)
uploads_that("loops without end", "while True: pass", slow=True)
uploads_that("sleeps", "import time; time.sleep(3600)", slow=True)
uploads_that(
    "kills its parent or all processes",
    "import os; os.kill(os.getppid(), 9)",
    "import os; os.kill(-1, 9)",
    "import os; os.killpg(os.getpgid(os.getppid()), 9)",
    "import os; os.pidfd_open(os.getppid())",
)
_PTRACE = """
import ctypes, os, platform
number = {"x86_64": %d, "aarch64": %d}[platform.machine()]
if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), %s) == -1:
    raise OSError(ctypes.get_errno(), "no")
"""
uploads_that(
    "traces its parent, or reads its memory",
    _PTRACE % (101, 117, "16, os.getppid(), 0, 0"),
    _PTRACE % (310, 270, "os.getppid(), 0, 0, 0, 0, 0"),
    "import os; open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
)
uploads_that(
    "writes through a link",
    "import os, time\nos.symlink(os.path.dirname(os.__file__), name := str(time.time_ns()))\nopen(f'{name}/a.py', 'w')",
    "import os, time\nos.symlink(os.__file__, name := str(time.time_ns()))\nopen(name, 'a')",
    "import os, time\nos.symlink('/var/tmp', name := str(time.time_ns()))\nopen(f'{name}/mine', 'w')",
)
uploads_that(
    "changes its user or its rights",
    "import os; os.setuid(0)",
    "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "import os; os.chmod('.', 0o4777)",
    "import os; os.chroot('.')",
)
uploads_that(
    "exits or crashes",
    "import os; os._exit(7)",
    "import ctypes; ctypes.string_at(0)",
    "import os; os.abort()",
    slow=True,
)
uploads_that(
    "prints without end",
    "for _ in range(3000): print('x' * 10_000)",
    "import os\nfor _ in range(3000): os.write(2, b'x' * 10_000)",
)
uploads_that(
    "returns too much",
    "return [0.0] * 10_000_000",
    "return iter(int, 1)",
    "return 'x' * (1 << 27)",
    slow=True,
)
uploads_that(
    "returns something that is not a number",
    "return [float('nan')]",
    "return [10 ** 10_000]",
    "return [object()]",
    slow=True,
)
uploads_that("recurses without end", "def f(): return f()\nf()")


@case("an upload that reads the store")
def _(victim: Victim) -> Iterator[str]:
    database: Path = victim.home / "store.db"
    victim.home.mkdir(exist_ok=True)
    secret = victim.home / "secret"
    secret.write_text("root:x: is not to be read")
    secret.chmod(0o644)
    yield attempt(victim, f"raise RuntimeError(open({str(secret)!r}).read())")
    yield attempt(victim, f"open({str(database)!r}, 'rb')")
    url = victim.store.engine.url.render_as_string(hide_password=False)
    opened = (
        f"from agent_tunix.store import open_store\nif not open_store({url!r}).keys.list(): raise FileNotFoundError"
    )
    yield attempt(victim, opened)  # in a /tmp of its own, code may make another store of that name


@case("an upload that calls the server")
def _(victim: Victim) -> Iterator[str]:
    host, port = victim.address
    yield attempt(victim, f"import socket; socket.create_connection(({host!r}, {port}))")
    yield attempt(victim, f"import urllib.request; urllib.request.urlopen({victim.url!r})")
