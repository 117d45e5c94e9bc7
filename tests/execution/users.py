"""Programs of tests, run as this user or as an ordinary one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
CHECKOUT = Path(__file__).parents[2]
# Gives an ordinary user the way to this Python, its packages and this checkout, wherever they lie: in mounts that
# nobody else sees. Arguments: the library, a directory, the checkout, the environment, and what to run.
_AS_NOBODY = """
set -e
library=$1 place=$2 checkout=$3 environment=$4
shift 4
mount --make-rprivate /
if ! setpriv --reuid=65534 --regid=65534 --clear-groups test -r "$library"; then
  home=/root
  mkdir "$place/home"
  mount --rbind $home "$place/home"
  mount -t tmpfs -o mode=0755 none $home
  cd "$place/home"
  for name in .[!.]* *; do
    if test -d "$name" && ! test -L "$name"; then mkdir "$home/$name"; mount --rbind "$name" "$home/$name"; fi
  done
fi
mkdir -p "$place/checkout/src" "$place/checkout/tests" "$place/environment"
for name in src tests; do mount --bind "$checkout/$name" "$place/checkout/$name"; done
mount --bind "$environment" "$place/environment"
cd "$place/checkout"
export PYTHONPATH="$place/checkout/src:$place/checkout"
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$place/environment/bin/python" "$@"
"""


def users() -> list[str]:
    """Return the users as whom tests can run: this one, and an ordinary one where this is root."""
    others = os.geteuid() == 0 and all(map(shutil.which, ("unshare", "setpriv", "mount")))
    return ["this", "nobody"] if others else ["this"]


@contextmanager
def command_as(user: str, arguments: Sequence[str]) -> Iterator[tuple[list[str], dict[str, str], Path]]:
    """Yield a command that runs Python as `user`, its environment, and an empty directory of the user's.

    Args:
        user: `this` or `nobody`.
        arguments: Of Python; `{directory}` in them stands for the directory.
    """
    if user not in users():
        pytest.skip("only root can become another user")
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    directory = place / "own"
    try:
        place.chmod(0o755)
        directory.mkdir()
        arguments = [argument.replace("{directory}", str(directory)) for argument in arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{CHECKOUT}/src:{CHECKOUT}",
            "HOME": "/nonexistent",
            "TMPDIR": str(directory),
        }
        command = [sys.executable, *arguments]
        if user == "nobody":
            os.chown(directory, NOBODY, NOBODY)
            given = [os.path.dirname(os.__file__), str(place), str(CHECKOUT), sys.prefix]
            command = ["unshare", "--mount", "sh", "-c", _AS_NOBODY, "sh", *given, *arguments]
        yield command, environment, directory
    finally:
        shutil.rmtree(place)


def run_as(user: str, *arguments: str) -> str:
    """Run Python as `user`; what it printed."""
    with command_as(user, arguments) as (command, environment, _):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
