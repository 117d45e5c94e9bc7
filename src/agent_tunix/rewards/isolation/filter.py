"""What an isolated worker may ask of the kernel: a seccomp filter, which holds for the process until it ends.

What is left is computing, files (which Landlock and the worker's own root bound), threads, pairs of sockets between
the worker's own threads (an event loop has one) and messages over the connection that it was given. Not: any other
socket, another process, another program, a signal to anyone, another user, namespaces and mounts, other limits or
priorities, owners, modes and times of files, other processes' memory, io_uring, keys, tracing, BPF.

A refused call fails with EPERM; those unknown when this was written fail with ENOSYS, as on an older kernel.
"""

import ctypes
import os
import platform
import struct

from agent_tunix.rewards.isolation import kernel

# Classic BPF, as seccomp takes it: operation, jump if true, jump if false, operand.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _EPERM, _ENOSYS, _KILL = 0x7FFF0000, 0x00050001, 0x00050000 | 38, 0x80000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_MODE_FILTER = 2
_X32 = 0x40000000
_FIRST_UNKNOWN = 451

_Instruction = tuple[int, int, int, int]

# The architectures, as `platform.machine` and as the kernel's audit numbers them; the place of each in the table below.
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

# Number of each call on x86-64 and on 64-bit ARM; None where it does not exist.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # network
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200),
    "listen": (50, 201), "sendmsg": (46, 211), "sendmmsg": (307, 269), "setsockopt": (54, 208),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # other processes and programs
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "setpgid": (109, 154),
    "setsid": (112, 157), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448), "get_robust_list": (274, 100),
    # limits and priorities
    "setrlimit": (160, 164), "setpriority": (141, 140), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274), "sched_setaffinity": (203, 122), "ioprio_set": (251, 30), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "set_mempolicy_home_node": (450, 450), "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # what Landlock does not bound about files
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "mknod": (133, None), "mknodat": (259, 33), "link": (86, None),
    "linkat": (265, 37), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "openat2": (437, 437), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27), "fanotify_init": (300, 262), "fanotify_mark": (301, 263), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "lookup_dcookie": (212, 18),
    # memory and queues that no limit of this process counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "io_setup": (206, 0), "io_submit": (209, 2),
    # the system
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "syslog": (103, 116), "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "vhangup": (153, 58), "personality": (135, 92), "modify_ldt": (154, None), "iopl": (172, None),
    "ioperm": (173, None), "uselib": (134, None), "ustat": (136, None), "nfsservctl": (180, 42),
    # users
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setgroups": (116, 159), "setresuid": (117, 147), "setresgid": (119, 149), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "capset": (126, 91),
}  # fmt: skip

# Calls of which the arguments decide.
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SENDTO, _SOCKETPAIR, _PRLIMIT = (44, 206), (53, 199), (302, 261)
_FCNTL, _IOCTL, _PRCTL = (72, 25), (16, 29), (157, 167)
_OPEN, _OPENAT = (2, None), (257, 56)

_CLONE_THREAD = 0x00010000
_AF_UNIX = 1
# Whom a file's events signal, and by which signal; leases and notices of directories.
_REFUSED_FCNTL = (8, 10, 15, 1024, 1026)
# What is asked of files and terminals: their attributes, size, how much can be read, whether to block or be inherited.
_ALLOWED_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_ALLOWED_PRCTL = (kernel.PR_SET_NAME, kernel.PR_GET_NAME, kernel.PR_SET_VMA)


def can_filter() -> bool:
    """Whether there is a filter for this architecture."""
    return kernel.is_linux() and platform.machine() in _ARCHITECTURES


def restrict_calls() -> None:
    """Set the filter for this process; there is no way back. It needs `PR_SET_NO_NEW_PRIVS`.

    Raises:
        OSError: The kernel refused, or the architecture has no filter.
    """
    program = _program()
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))


def _program() -> list[_Instruction]:
    if not can_filter():
        raise OSError(f"there is a seccomp filter for Linux on {' and '.join(_ARCHITECTURES)} alone")
    audit, place = _ARCHITECTURES[platform.machine()]
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        (_AT_LEAST, 0, 1, _FIRST_UNKNOWN),
        (_RETURN, 0, 0, _ENOSYS),
        *_decide(_CLONE3[place], [(_RETURN, 0, 0, _ENOSYS)]),  # so that threads are made with `clone`
        *_decide(_CLONE[place], [_load(0), (_ANY_BIT, 0, 1, _CLONE_THREAD), (_RETURN, 0, 0, _ALLOW), _refuse()]),
        *_decide(_SENDTO[place], _allow_if_null(4)),  # an address would lead out of a pair
        *_decide(_PRLIMIT[place], _allow_if_null(2)),
        *_decide(_SOCKETPAIR[place], _allow_only(0, (_AF_UNIX,))),
        *_decide(_IOCTL[place], _allow_only(1, _ALLOWED_IOCTL)),
        *_decide(_PRCTL[place], _allow_only(0, _ALLOWED_PRCTL)),
        *_decide(_FCNTL[place], _allow_but(1, _REFUSED_FCNTL)),
        *_decide(_OPEN[place], _refuse_emptying(1)),
        *_decide(_OPENAT[place], _refuse_emptying(2)),
    ]
    for numbers in _REFUSED.values():
        program += _decide(numbers[place], [_refuse()])
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _decide(call: int | None, verdict: list[_Instruction]) -> list[_Instruction]:
    """What becomes of one call; any other goes on to what follows."""
    return [] if call is None else [(_EQUAL, 0, len(verdict), call), *verdict]


def _load(argument: int, half: int = 0) -> _Instruction:
    """The lower or upper half of an argument: both architectures are little-endian."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + 4 * half)


def _refuse() -> _Instruction:
    return (_RETURN, 0, 0, _EPERM)


def _allow_if_null(argument: int) -> list[_Instruction]:
    halves = [_load(argument), (_EQUAL, 0, 3, 0), _load(argument, 1), (_EQUAL, 0, 1, 0)]
    return [*halves, (_RETURN, 0, 0, _ALLOW), _refuse()]


def _allow_only(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    tests = [one for value in values for one in ((_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [_load(argument), *tests, _refuse()]


def _allow_but(argument: int, values: tuple[int, ...]) -> list[_Instruction]:
    tests = [one for value in values for one in ((_EQUAL, 0, 1, value), _refuse())]
    return [_load(argument), *tests, (_RETURN, 0, 0, _ALLOW)]


def _refuse_emptying(argument: int) -> list[_Instruction]:
    """Opening a file for reading empties it too where that is asked, which the first versions of Landlock let pass."""
    how = (_AND, 0, 0, os.O_TRUNC | os.O_ACCMODE)
    return [_load(argument), how, (_EQUAL, 0, 1, os.O_TRUNC), _refuse(), (_RETURN, 0, 0, _ALLOW)]
