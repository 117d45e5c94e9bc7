"""Libraries that isolated processes may read: Python's, the system libraries they load, and installed packages."""

import os
import sys
import sysconfig
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
_SYSTEM_FILES = ("/etc/localtime", "/etc/ld.so.cache", "/dev/urandom", "/dev/null")


@cache
def standard_paths() -> tuple[str, ...]:
    """Return the directories and files of the standard library and the libraries that it loads."""
    return _existing(
        [*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")), f"{sys.base_prefix}/lib", *_SYSTEM_LIBRARIES]
    )


def library_paths() -> tuple[str, ...]:
    """Return the standard paths, installed packages and this package."""
    package = Path(__file__).resolve().parents[2]
    packages = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return _existing([*standard_paths(), *packages, *module_directories(sys.path), str(package)])


def module_directories(path: Iterable[str]) -> list[str]:
    """Return the entries of a module path that hold installed modules, without the user's own directories."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    return [entry for entry in path if entry and _holds_modules(os.path.realpath(entry), library)]


def _existing(paths: list[str]) -> tuple[str, ...]:
    # Both names of each path, because a path that is loaded through a link is looked up at the link's target.
    known = {path for name in (*paths, *_SYSTEM_FILES) for path in (os.path.abspath(name), os.path.realpath(name))}
    return tuple(sorted(path for path in known if os.path.exists(path)))


def _holds_modules(path: str, library: str) -> bool:
    name = os.path.basename(path)
    return (
        name in ("site-packages", "dist-packages")
        or path == library
        or path.startswith(f"{library}{os.sep}")
        or (name.startswith("python") and name.endswith(".zip") and os.path.dirname(path) == os.path.dirname(library))
    )
