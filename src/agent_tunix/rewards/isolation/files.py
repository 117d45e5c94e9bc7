"""Which files an isolated worker can open: Landlock rules, and the libraries that they leave readable."""

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from agent_tunix.rewards.isolation import kernel

# The calls have one number everywhere.
_CREATE_RULES, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICE_OR_SOCKET = 1 << 6 | 1 << 9 | 1 << 11
_TRUNCATE = 1 << 14
# Rights that each version can deny: all of the first, then moving to another directory, truncating, `ioctl` of devices.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_SINCE, _NETWORK = 4, 0b11  # bind and connect over TCP
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract UNIX sockets of others, signals to others

_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
_SYSTEM_FILES = ("/etc/localtime", "/etc/ld.so.cache", "/dev/urandom", "/dev/null")
WRITABLE_DEVICE = "/dev/null"


def landlock_version() -> int:
    """Of the kernel; 0 where it has no Landlock, or was started without it."""
    if not kernel.is_linux():
        return 0
    return max(0, kernel.syscall(_CREATE_RULES, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def library_paths() -> tuple[str, ...]:
    """Directories and files with Python's libraries, those of the system that these load, and this package."""
    package = Path(__file__).resolve().parents[2]
    found = [
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        f"{sys.base_prefix}/lib",
        *module_directories(sys.path),
        str(package),
        *_SYSTEM_LIBRARIES,
        *_SYSTEM_FILES,
    ]
    # By either name: what is loaded through a link is looked for where the link leads.
    known = {path for name in found for path in (os.path.abspath(name), os.path.realpath(name))}
    return tuple(sorted(path for path in known if os.path.exists(path)))


def module_directories(path: Iterable[str]) -> list[str]:
    """The entries of `sys.path` that hold installed modules; the user's own directories are none of them."""
    library = os.path.realpath(sysconfig.get_path("stdlib"))
    return [entry for entry in path if entry and _holds_modules(os.path.realpath(entry), library)]


def _holds_modules(path: str, library: str) -> bool:
    name = os.path.basename(path)
    return (
        name in ("site-packages", "dist-packages")
        or path == library
        or path.startswith(f"{library}{os.sep}")
        or (name.startswith("python") and name.endswith(".zip") and os.path.dirname(path) == os.path.dirname(library))
    )


def restrict_files(readable: Iterable[str], writable: str) -> None:
    """Leave these files and what is beneath these directories to this process. It needs `PR_SET_NO_NEW_PRIVS`.

    Args:
        readable: To be read; those that do not exist are none.
        writable: The one directory in which files can be made, changed and removed.

    Raises:
        OSError: The kernel refused.
    """
    version = landlock_version()
    if not version:
        raise OSError("the kernel has no Landlock")
    handled = max(rights for since, rights in _RIGHTS.items() if since <= version)
    attributes = [handled]
    if version >= _NETWORK_SINCE:
        attributes.append(_NETWORK)
    if version >= _SCOPES_SINCE:
        attributes.append(_SCOPES)
    asked = ctypes.create_string_buffer(struct.pack(f"={len(attributes)}Q", *attributes), 8 * len(attributes))
    rules = kernel.check(
        kernel.syscall(_CREATE_RULES, asked, ctypes.c_size_t(len(asked)), ctypes.c_uint32(0)), "Landlock rules"
    )
    try:
        for path in readable:
            _allow(rules, path, _READ_FILE | _READ_DIRECTORY if os.path.isdir(path) else _READ_FILE)
        _allow(rules, WRITABLE_DEVICE, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
        _allow(rules, writable, handled & ~(_EXECUTE | _MAKE_DEVICE_OR_SOCKET))
        kernel.check(kernel.syscall(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(0)), "Landlock")
    finally:
        os.close(rules)


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, place))
        added = kernel.syscall(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_BENEATH), rule, ctypes.c_uint32(0))
        kernel.check(added, f"a Landlock rule for {path}")
    finally:
        os.close(place)
