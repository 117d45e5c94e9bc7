"""Restriction of the files that a process can open, by Landlock rules."""

import ctypes
import os
import struct

from agent_tunix.execution.isolation import kernel

# These calls have the same numbers on all architectures.
_CREATE_RULES, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_FILE = 1 << 5
_MAKE_DEVICE_OR_SOCKET = 1 << 6 | 1 << 9 | 1 << 11
_TRUNCATE = 1 << 14
# Rights that each version can deny: 1 most, 2 moving to another directory, 3 truncating, 5 `ioctl` of devices.
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_SINCE, _NETWORK = 4, 0b11  # bind and connect over TCP
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract UNIX sockets of other processes, signals to other processes
# Denied access of this process, and of those that it restricts further, is not written to the system's audit log.
_UNLOGGED_SINCE, _UNLOGGED = 7, 1 << 0 | 1 << 2

WRITABLE_DEVICE = "/dev/null"


def landlock_version() -> int:
    """Return the kernel's Landlock version; 0 if it is missing or disabled."""
    if not kernel.is_linux():
        return 0
    return max(0, kernel.syscall(_CREATE_RULES, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


def restrict_files(readable: tuple[str, ...], writable: str | None, *, may_remove: bool) -> None:
    """Restrict this process to the given files and to the content of the given directories.

    It needs `PR_SET_NO_NEW_PRIVS`. If the kernel can, it also denies TCP, abstract UNIX sockets of other processes, and
    signals to other processes.

    Args:
        readable: Paths that it may read; missing ones are skipped.
        writable: Directory in which it may create and change files; None for no such directory.
        may_remove: True if it may also remove and rename files there.

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
        if writable is not None:
            denied = _EXECUTE | _MAKE_DEVICE_OR_SOCKET | (0 if may_remove else _REMOVE_FILE)
            _allow(rules, writable, handled & ~denied)
        flags = _UNLOGGED if version >= _UNLOGGED_SINCE else 0
        kernel.check(kernel.syscall(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(flags)), "Landlock")
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
