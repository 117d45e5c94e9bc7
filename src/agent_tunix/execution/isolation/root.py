"""A root directory for one process: libraries to read, and a small directory in memory to work in.

It uses Linux namespaces. Root can always create these, other users only if the system allows it. Without them, the
process keeps the system's root, and only Landlock decides which files it opens.
"""

import ctypes
import os
import struct

from agent_tunix.execution.isolation import kernel

_NEW_MOUNTS, _NEW_NAMES, _NEW_IPC, _NEW_USERS, _NEW_NETWORK = 0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 1, 1 << 2, 1 << 12, 1 << 14, 1 << 18
_UMOUNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITIES_VERSION = 0x20080522
_MOUNT_SETATTR, _BENEATH, _READ_ONLY = 442, 0x8000, 1

# The working directory in such a root.
WORKING = "/scratch"


def enter_own_namespaces() -> None:
    """Leave the system's mounts, network, host name and shared memory; new mounts are visible only here.

    Raises:
        OSError: The system does not allow this to the user.
    """
    user, group = os.geteuid(), os.getegid()
    namespaces = _NEW_MOUNTS | _NEW_NETWORK | _NEW_IPC | _NEW_NAMES
    if user:
        namespaces |= _NEW_USERS
    kernel.check(kernel.LIBC.unshare(ctypes.c_int(namespaces)), "namespaces")
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def enter_own_root(place: str, readable: tuple[str, ...], size_bytes: int, most_files: int, owner: int) -> None:
    """Create and enter a root with the given paths and the directory `WORKING`. Everything else in it is read-only.

    Args:
        place: Mount point that contains none of the paths; it is hidden here, and nothing is left in it.
        readable: Absolute paths that are visible in the new root, under the same names.
        size_bytes: Total size of files in `WORKING`, in memory.
        most_files: Maximum number of files there.
        owner: Id of the user who owns `WORKING`.

    Raises:
        OSError: The kernel refused.
    """
    paths = [path for path in readable if not any(path.startswith(f"{other}/") for other in readable)]
    _mount("none", place, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755")
    for path in paths:
        _show(path, place + path)
    working = place + WORKING
    os.mkdir(working)
    if not os.path.lexists(f"{place}/tmp"):  # for code with a hard-coded /tmp
        os.symlink(WORKING, f"{place}/tmp")
    # One page and one inode are for the directory itself.
    _mount(
        "none",
        working,
        "tmpfs",
        _MS_NOSUID | _MS_NODEV,
        f"size={size_bytes + 4096},nr_inodes={most_files + 1},mode=0700",
    )
    if os.geteuid() == 0:
        os.chown(working, owner, owner)
    _make_read_only(place)
    os.chdir(place)
    number = ctypes.c_long(_PIVOT_ROOT[os.uname().machine])
    kernel.check(kernel.LIBC.syscall(number, b".", b"."), "pivot_root")
    kernel.check(kernel.LIBC.umount2(b".", ctypes.c_int(_UMOUNT_DETACH)), "umount")
    os.chdir(WORKING)


def drop_capabilities() -> None:
    """Drop all capabilities, including those gained by creating namespaces.

    Raises:
        OSError: The kernel refused.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    kernel.check(kernel.syscall(_CAPSET[os.uname().machine], header, none), "capset")


def _show(path: str, at: str) -> None:
    if os.path.isdir(path):
        os.makedirs(at, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(at), 0o755, exist_ok=True)
        os.close(os.open(at, os.O_WRONLY | os.O_CREAT, 0o444))
    _mount(path, at, None, _MS_BIND | _MS_REC)


def _make_read_only(place: str) -> None:
    """Make the root read-only, except for the working directory."""
    for path, flags, attributes in ((place, _BENEATH, (_READ_ONLY, 0)), (place + WORKING, 0, (0, _READ_ONLY))):
        asked = ctypes.create_string_buffer(struct.pack("=4Q", *attributes, 0, 0), 32)
        done = kernel.syscall(
            _MOUNT_SETATTR,
            ctypes.c_int(-100),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.c_uint(flags),
            asked,
            ctypes.c_size_t(32),
        )
        kernel.check(done, "mounting read-only")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    mounted = kernel.LIBC.mount(*arguments[:3], ctypes.c_ulong(flags), arguments[3])
    kernel.check(mounted, f"mounting {target}")
