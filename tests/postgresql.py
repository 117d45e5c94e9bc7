"""A real PostgreSQL server of its own for tests, where one can be started."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_INSTALLED = "/usr/lib/postgresql/*/bin"  # where Debian has what is not on the path


class Unavailable(Exception):
    """No server can be started; the message says why."""


@contextlib.contextmanager
def running_postgresql() -> Iterator[str]:
    """Start a server that only a socket in a directory of its own leads to, and stop it at the end.

    Returns:
        The URL of its database `postgres`; other names in its place are other databases, once they are created.

    Raises:
        Unavailable: There is no PostgreSQL, or nobody to run it as.
    """
    programs = {name: _find(name) for name in ("initdb", "pg_ctl")}
    root = Path(tempfile.mkdtemp(prefix="postgresql_", dir="/tmp"))  # a socket's path must be short
    data, log = root / "data", root / "log"
    try:
        prefix = _as_another(root)
        _run([*prefix, programs["initdb"], "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"])
        control = [*prefix, programs["pg_ctl"], "-D", str(data), "-w", "-t", "60"]
        options = f"-c listen_addresses='' -c unix_socket_directories={root} -c fsync=off"
        _run([*control, "-l", str(log), "-o", options, "start"])
        try:
            yield f"postgresql://postgres@/postgres?host={root}"
        finally:
            _run([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _find(program: str) -> str:
    directories = [*os.environ["PATH"].split(os.pathsep), *sorted(glob.glob(_INSTALLED), reverse=True)]
    found = shutil.which(program, path=os.pathsep.join(directories))
    if found is None:
        raise Unavailable(f"there is no {program}; install postgresql")
    return found


def _as_another(root: Path) -> list[str]:
    """PostgreSQL refuses to run as root; as whom it runs then, with the directory made theirs."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        raise Unavailable("PostgreSQL does not run as root, and there is no setpriv to run it as another")
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(root, user.pw_uid, user.pw_gid)
            return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    raise Unavailable("PostgreSQL does not run as root, and there is no user postgres or nobody")


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
    )
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)} failed: {done.stdout.strip()}")
