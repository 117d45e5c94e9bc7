"""Attacks on the process that runs code of others, and on what lies around it.

Run as a program, it makes every attack through one door, in the place of a trainer, and prints for each what the code
said and what it damaged. Its arguments are the door (`programs` or `uploads`), a directory, and `namespaces` or
`no-namespaces`. Every attack is a function `attack`; what it returns means that it was not refused.
"""

import ctypes
import json
import os
import platform
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

# Tools of the attacks: system calls by number, on x86-64 and on 64-bit ARM.
PRELUDE = """
import ctypes, errno, fcntl, mmap, os, platform, resource, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
PARENT = os.getppid()
def call(x86, arm, *arguments):
    number = x86 if platform.machine() == "x86_64" else arm
    if number is None:
        raise OSError(1, "there is no such call here")
    wide = [a if isinstance(a, (bytes, ctypes.Array)) else ctypes.c_long(a) for a in arguments]
    wide += [ctypes.c_long(0)] * (6 - len(wide))
    done = libc.syscall(ctypes.c_long(number), *wide)
    if done == -1:
        raise OSError(ctypes.get_errno(), "refused")
    return done
def each(*actions):
    '''Do all of them; return the places of those that were not refused.'''
    done = []
    for place, action in enumerate(actions):
        try: action()
        except OSError: continue
        done.append(place)
    if not done: raise OSError(1, "all were refused")
    return done
"""

# What the program does, and the attack.
ATTACKS: dict[str, str] = {
    "a signal to the parent by way of a pipe": """
        def attack():
            r, w = os.pipe()
            try:
                return each(lambda: fcntl.fcntl(r, 8, PARENT), lambda: fcntl.fcntl(r, 10, 9),
                            lambda: fcntl.fcntl(r, 15, struct.pack("ii", 1, PARENT)),
                            lambda: fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC))
            finally:
                os.write(w, b"x")
        """,
    "O_ASYNC by ioctl, and a signal number": """
        def attack():
            r, w = os.pipe()
            return each(lambda: fcntl.ioctl(r, 0x5452, struct.pack("i", 1)), lambda: fcntl.ioctl(r, 0x8901, PARENT),
                        lambda: fcntl.ioctl(r, 0x8902, struct.pack("i", PARENT)))
        """,
    "fanotify": """
        def attack():
            return each(lambda: call(300, 262, 0, os.O_RDWR), lambda: call(300, 262, 0x200, os.O_RDWR),
                        lambda: call(301, 263, 0, 1, 1, -100, b"/"))
        """,
    "attributes of files by new calls": """
        def attack():
            acl = struct.pack("=IHHIHHI", 2, 1, 7, 0xffffffff, 4, 7, 0xffffffff)
            value = ctypes.create_string_buffer(acl)
            given = ctypes.create_string_buffer(struct.pack("=QII", ctypes.addressof(value), len(acl), 0))
            attributes = ctypes.create_string_buffer(struct.pack("=QIIII", 0x10, 0, 0, 0, 0))
            return each(*(lambda path=path, number=number: call(number, number, *rest)
                          for path in (SECRET, OUTSIDE, b".")
                          for number, rest in ((463, (-100, path, 0, b"system.posix_acl_access", given, 16)),
                                               (469, (-100, path, attributes, 24, 0)), (466, (-100, path, 0, 0)),
                                               (452, (-100, path, 0o777, 0)))))
        """,
    "attributes of files by old calls": """
        def attack():
            return each(lambda: os.chmod(SECRET, 0o777), lambda: os.chmod(OUTSIDE, 0), lambda: os.utime(OUTSIDE),
                        lambda: os.chown(OUTSIDE, 1, 1), lambda: os.setxattr(OUTSIDE, "user.mine", b"1"),
                        lambda: os.chmod(os.__file__, 0o777), lambda: os.utime(os.__file__, (0, 0)),
                        lambda: fcntl.ioctl(os.open(os.__file__, 0), 0x40086602, struct.pack("l", 0x10)))
        """,
    "mounts": """
        def attack():
            attributes = ctypes.create_string_buffer(struct.pack("=QQQQ", 1, 0, 0, 0))
            return each(lambda: call(467, 467, -100, b"/", 0x8001, attributes, 32),
                        lambda: call(442, 442, -100, b"/", 0x8000, attributes, 32),
                        lambda: call(428, 428, -100, b"/", 0x8001), lambda: call(165, 40, 0, b"/", 0, 0x21, 0),
                        lambda: call(166, 39, b"/", 2), lambda: call(430, 430, b"tmpfs", 0),
                        lambda: call(155, 41, b".", b"."), lambda: os.chroot("."))
        """,
    "another's priority": """
        def attack():
            idle = ctypes.create_string_buffer(struct.pack("=IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0))
            nothing = ctypes.create_string_buffer(8)
            return each(*(action for who in (PARENT, 0) for action in (
                lambda who=who: call(314, 274, who, idle, 0), lambda who=who: call(144, 119, who, 5, nothing),
                lambda who=who: call(251, 30, 1, who, 3 << 13), lambda who=who: call(141, 140, 0, who, 19),
                lambda who=who: os.sched_setaffinity(who, {0}), lambda who=who: call(142, 118, who, nothing))))
        """,
    "shared memory, semaphores and queues of others": """
        def attack():
            return each(lambda: call(31, 195, SHARED, 0, 0), lambda: call(30, 196, SHARED, 0, 0),
                        lambda: call(66, 191, 0, 0, 0, 0), lambda: call(71, 187, 0, 0, 0),
                        lambda: call(241, 181, b"mine"), lambda: call(240, 180, b"mine", os.O_CREAT, 0o600, 0),
                        lambda: call(29, 194, 1, 4096, 0o1666), lambda: call(64, 190, 1, 1, 0o1666))
        """,
    "life beyond the parent's": """
        def attack():
            return each(lambda: call(157, 167, 1, 0, 0, 0, 0), lambda: call(157, 167, 36, 1, 0, 0, 0), os.setsid,
                        lambda: os.setpgid(0, 0), os.fork, lambda: call(58, None))
        """,
    "clocks, swap, quota, accounting": """
        def attack():
            zero = ctypes.create_string_buffer(208)
            return each(lambda: call(227, 112, 0, zero), lambda: call(164, 170, zero, 0),
                        lambda: call(305, 266, 0, zero), lambda: call(159, 171, zero),
                        lambda: call(167, 224, b".", 0),
                        lambda: call(168, 225, b"."), lambda: call(179, 60, 0, 0, 0, 0),
                        lambda: call(443, 443, 0, 0, 0, 0),
                        lambda: call(163, 89, b"."), lambda: call(163, 89, 0), lambda: call(103, 116, 10, 0, 0))
        """,
    "fcntl, ioctl and prctl that set what matters": """
        def attack():
            r, w = os.pipe()
            null = os.open("/dev/null", os.O_RDWR)
            return each(*(lambda n=n: fcntl.fcntl(r, n, 1) for n in (8, 10, 15, 1024, 1026, 1031, 1033, 1036, 1038)),
                        *(lambda n=n: call(16, 29, null, n, 0) for n in (0x5412, 0x540E, 0x5456, 0x8901, 0x5452,
                        0xC0045877)),
                        *(lambda n=n: call(157, 167, n, 1, 0, 0, 0) for n in
                          (1, 4, 8, 14, 21, 22, 24, 28, 29, 31, 33, 35, 36, 38, 39, 40, 47, 53, 59, 62, 65, 71,
                        0x59616D61)))
        """,
    "a user or capabilities that were kept": """
        def attack():
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)
            held = (ctypes.c_uint32 * 6)()
            if os.getuid() == 0 or os.geteuid() == 0 or os.getgroups():
                return os.getuid(), os.geteuid(), os.getgroups()
            return each(lambda: call(125, 90, header, held), lambda: call(126, 91, header, held),
                        lambda: os.setuid(0),
                        lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0), lambda: call(122, 151, 0))
        """,
    "files written outside": """
        def attack():
            lib = os.path.dirname(os.__file__)
            return each(*(lambda path=path, flags=flags: os.open(path, flags, 0o600) for path in
                          (SECRET, OUTSIDE, "/tmp/../evil", "/evil", lib + "/evil.py", lib + "/os.py", "/dev/sda",
                        "/proc/self/mem")
                          for flags in (os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_RDONLY | os.O_TRUNC)),
                        lambda: os.truncate(OUTSIDE, 0), lambda: os.remove(OUTSIDE),
                        lambda: os.rename(OUTSIDE, b"mine"),
                        lambda: os.mkdir(lib + "/evil"), lambda: os.symlink("x", lib + "/evil"),
                        lambda: os.rmdir(lib))
        """,
    # --- further ------------------------------------------------------------------------------------------------------
    "signals to others": """
        def attack():
            return each(*(action for who in (PARENT, -1, 1, -PARENT) for action in (
                lambda who=who: os.kill(who, 9), lambda who=who: call(200, 130, who, 9),
                lambda who=who: call(234, 131, who, who, 9), lambda who=who: call(129, 138, who, 9, b"x" * 128))),
                lambda: call(434, 434, PARENT, 0), lambda: call(424, 424, 0, 9, 0, 0))
        """,
    "timers that signal": """
        def attack():
            event = ctypes.create_string_buffer(struct.pack("=QiiI", 0, 9, 4, PARENT), 64)
            timer = ctypes.create_string_buffer(8)
            return each(lambda: call(222, 107, 1, event, timer), lambda: call(283, 85, 1, 0),
                        lambda: call(289, 74, -1, b"x" * 8, 8, 0))
        """,
    "memory of others": """
        def attack():
            vector = ctypes.create_string_buffer(16)
            return each(lambda: call(101, 117, 16, PARENT, 0, 0), lambda: call(101, 117, 0x4206, PARENT, 0, 0),
                        lambda: call(310, 271, PARENT, vector, 1, vector, 1, 0),
                        lambda: call(311, 271, PARENT, vector, 1, vector, 1, 0),
                        lambda: call(312, 272, PARENT, PARENT, 0, 0, 0), lambda: call(440, 440, 0, vector, 1, 4, 0),
                        lambda: call(274, 100, PARENT, vector, vector), lambda: call(438, 438, 3, 0, 0),
                        lambda: open(f"/proc/{PARENT}/mem", "rb"), lambda: open(f"/proc/{PARENT}/environ"),
                        lambda: open("/proc/self/environ"), lambda: open("/proc/self/mem", "r+b"),
                        lambda: os.listdir("/proc"))
        """,
    "limits of others": """
        def attack():
            limits = ctypes.create_string_buffer(struct.pack("=QQ", 0, 0))
            return each(lambda: call(302, 261, PARENT, 6, limits, 0), lambda: call(302, 261, PARENT, 6, 0, limits),
                        lambda: call(302, 261, 0, 9, limits, 0), lambda: call(160, 164, 9, limits))
        """,
    "processes by every kind of clone": """
        def attack():
            given = ctypes.create_string_buffer(88)
            return each(*(lambda flags=flags: call(56, 220, flags, 0, 0, 0, 0) for flags in (
                17, 0x8000 | 17, 0x10000000 | 17, 0x4000 | 0x100 | 17, 0x20000 | 17, 0x003D0F00 | 0x20000000,
                0x003D0F00 | 0x00020000, 0x003D0F00 | 0x00800000, 0x00010000, 0x003D0F00 | 17)),
                lambda: call(435, 435, given, 88), lambda: call(435, 435, given, 64))
        """,
    "other programs": """
        def attack():
            names = (ctypes.c_char_p * 2)(b"true", None)
            return each(lambda: call(59, 221, b"/bin/true", names, names),
                        lambda: call(322, 281, -100, b"/bin/true", names, names, 0),
                        lambda: call(319, 279, b"x", 0), lambda: os.execv(sys.executable, ["x"]),
                        lambda: os.posix_spawn("/bin/true", ["true"], {}))
        """,
    "namespaces": """
        def attack():
            return each(*(lambda flag=flag: call(272, 97, flag) for flag in
                          (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x400, 0x200, 0x80)),
                        lambda: call(308, 268, 3, 0), lambda: call(170, 161, b"mine", 4),
                        lambda: call(171, 162, b"mine", 4))
        """,
    "sockets of every family": """
        def attack():
            return each(*(lambda f=f, t=t: socket.socket(f, t) for f in (*range(1, 12), 16, 17, 29, 31, 38, 40,
                        44) for t in (1, 2, 3)),
                        *(lambda f=f: call(53, 199, f, 1, 0, b"x" * 8) for f in (2, 10, 16, 30, 38)))
        """,
    "a pair of sockets that leads out": """
        def attack():
            a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            c, d = socket.socketpair()
            return each(lambda: a.sendto(b"x", "/run/systemd/journal/socket"), lambda: a.sendto(b"x", "\\0abstract"),
                        lambda: a.connect("/run/docker.sock"), lambda: a.bind("mine"), lambda: a.bind(""),
                        lambda: c.listen(), lambda: c.accept(), lambda: a.sendmsg([b"x"]),
                        lambda: c.send(b"x", socket.MSG_OOB),
                        lambda: d.recv(1, socket.MSG_OOB | socket.MSG_DONTWAIT), lambda: c.setsockopt(1, 16, 1),
                        lambda: c.getsockopt(1, 17, 12), lambda: c.getsockopt(1, 77, 4))
        """,
    "who is at the other end of what was inherited": """
        def attack():
            found = []
            for fd in range(300):
                for option in (17, 31, 59, 77):
                    out, size = ctypes.create_string_buffer(64), ctypes.create_string_buffer(struct.pack("i", 64))
                    try: call(55, 209, fd, 1, option, out, size)
                    except OSError: continue
                    found.append((fd, option))
            if not found: raise OSError(1, "nobody says")
            return found
        """,
    "io_uring and asynchronous I/O": """
        def attack():
            given = ctypes.create_string_buffer(120)
            return each(lambda: call(425, 425, 8, given), lambda: call(426, 426, 0, 1, 0, 0, 0),
                        lambda: call(427, 427, 0, 0, 0, 0),
                        lambda: call(206, 0, 8, given), lambda: call(209, 2, 0, 0, 0))
        """,
    "BPF, counters, keys, page faults, tracing": """
        def attack():
            given = ctypes.create_string_buffer(128)
            return each(lambda: call(321, 280, 0, given, 128), lambda: call(298, 241, given, 0, -1, -1, 0),
                        lambda: call(323, 282, 0),
                        lambda: call(248, 217, b"user", b"x", b"y", 1, -3),
                        lambda: call(249, 218, b"user", b"x", 0, -3),
                        lambda: call(250, 219, 0, -3, 1), lambda: call(248, 217, b"keyring", b"x", 0, 0, -5))
        """,
    "another filter, other rules": """
        def attack():
            header = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", 1, 0))
            return each(lambda: call(317, 277, 1, 8, header), lambda: call(317, 277, 0, 0, 0),
                        lambda: call(444, 444, 0, 0, 1),
                        lambda: call(446, 446, 3, 0), lambda: call(157, 167, 22, 2, header))
        """,
    "modules, kernels, the machine": """
        def attack():
            return each(lambda: call(175, 105, 0, 0, b""), lambda: call(313, 273, 0, b"", 0),
                        lambda: call(176, 106, b"x", 0),
                        lambda: call(246, 104, 0, 0, 0, 0), lambda: call(320, 294, 0, 0, 0, b"", 0),
                        lambda: call(169, 142, 0xfee1dead, 672274793, 0, 0),
                        lambda: call(153, 58), lambda: call(172, None, 3), lambda: call(173, None, 0, 1, 1),
                        lambda: call(135, 92, 0x40000))
        """,
    "files by handle, by path alone, and unnamed": """
        def attack():
            handle = ctypes.create_string_buffer(struct.pack("=II", 128, 0), 256)
            mount = ctypes.create_string_buffer(8)
            how = ctypes.create_string_buffer(24)
            return each(lambda: call(303, 264, -100, b"/", handle, mount, 0), lambda: call(304, 265, -100, handle, 0),
                        lambda: os.open("/", os.O_PATH), lambda: os.open(SECRET, os.O_PATH),
                        lambda: call(437, 437, -100, SECRET, how, 24),
                        lambda: os.link(os.__file__, "mine"), lambda: os.mknod("mine"), lambda: os.mkfifo("mine"))
        """,
    "what others watch or lock": """
        def attack():
            fd = os.open(os.__file__, os.O_RDONLY)
            return each(lambda: fcntl.flock(fd, fcntl.LOCK_EX), lambda: fcntl.fcntl(fd, 1024, 0),
                        lambda: fcntl.fcntl(fd, 1026, 0x3F),
                        lambda: call(294, 26, 0), lambda: call(253, None), lambda: call(254, 27, 3, b"/", 0xFFF))
        """,
    "memory that is shared with all, or counted by none": """
        def attack():
            page = mmap.mmap(-1, 4096)
            address = ctypes.addressof(ctypes.c_char.from_buffer(page))
            return each(lambda: call(9, 222, 0, 1 << 21, 3, 0x40022, -1, 0),
                        lambda: call(9, 222, 0, 1 << 21, 3, 0x2022, -1, 0),
                        *(lambda a=a: call(28, 233, address, 4096, a) for a in (9, 12, 13, 20, 21, 100, 101)),
                        lambda: call(149, 228, address, 4096), lambda: call(151, 230, 3), lambda: call(447, 447, 0),
                        lambda: call(27, 232, address, 4096, b"x"), lambda: call(237, 235, address, 4096, 1, 0, 0, 0),
                        lambda: call(256, 238, PARENT, 0, 0, 0), lambda: call(279, 239, PARENT, 0, 0, 0, 0, 0))
        """,
    "priority inheritance and watch queues": """
        def attack():
            word = ctypes.create_string_buffer(8)
            ends = ctypes.create_string_buffer(8)
            return each(*(lambda op=op: call(202, 98, word, op, 0, 0, word, 0) for op in (2, 6, 7, 8, 11, 12, 13,
                        2 | 128, 6 | 256)),
                        lambda: call(293, 59, ends, 0o200), lambda: call(293, 59, ends, 0o40000),
                        lambda: call(436, 436, 400, 500, 2),
                        lambda: call(316, 276, -100, b"a", -100, b"b", 4))
        """,
    "every number from 451 on": """
        def attack():
            found = []
            for number in (*range(451, 1100), 5000, 1 << 20, (1 << 30) - 1):
                try: call(number, number)
                except OSError as error:
                    if error.errno == errno.ENOSYS: continue
                found.append(number)
            if not found: raise OSError(38, "all are unknown")
            return found
        """,
    "secrets by any name": """
        def attack():
            found = []
            for path in (SECRET, "/etc/passwd", "/etc/shadow", "/root/.bashrc", "/proc/1/environ",
                        "/proc/self/maps", "/sys/kernel/notes",
                         "/dev/mem", "/dev/kmsg", "/dev/shm", "/run", "/var/log", "/home", "..", "/tmp/.."):
                try: found.append((os.listdir if os.path.isdir(path) else open)(path) and path)
                except OSError: continue
            if not found: raise OSError(13, "nothing is read")
            return found
        """,
    "a secret in its environment": """
        def attack():
            entries, place = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ"), 0
            found = [*os.environ.values(), *sys.argv]
            while entries[place]:
                found.append(entries[place].decode(errors="replace"))
                place += 1
            found = [entry for entry in found if "s3cret" in entry]
            if not found: raise OSError(2, "nothing is there")
            return found
        """,
    "what was inherited": """
        def attack():
            found = []
            for fd in range(3, 1024):
                try: there = os.fstat(fd)
                except OSError: continue
                if (there.st_mode & 0o170000) in (0o040000, 0o060000) : found.append(fd)
                for read in (lambda: os.pread(fd, 1 << 16, 0), lambda: os.pread(fd, 1 << 16, 1 << 12)):
                    try:
                        if b"s3cret" in read(): found.append(fd)
                    except OSError: pass
            if not found: raise OSError(2, "nothing is there")
            return found
        """,
}  # fmt: skip

# Attacks that end the process that makes them, or keep it busy: nothing is said, and nothing may be damaged.
DEADLY: dict[str, str] = {
    "calls of the old x32 kind": "def attack(): return call(0x40000000 + 39, 0x40000000 + 39)",
    "calls of 32-bit programs": """
        def attack():
            if platform.machine() != "x86_64":
                os.abort()
            code = b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3"  # mov eax, getpid; int 0x80; ret
            page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
            page.write(code)
            return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        """,
    "all descriptors written to and closed": r"""
        def attack():
            for fd in range(3, 300):
                for text in (b"locked\npassed 0\nended\n", b"ATRW\xff\xff\xff\xff", b'{"names": {}}\n'):
                    try: os.write(fd, text)
                    except OSError: pass
            os.closerange(0, 300)
            os._exit(3)
        """,
    "a crash": "def attack(): ctypes.string_at(8)",
    "all the memory": "def attack(): return len([bytearray(1 << 26) for _ in range(10_000)])",
    "the first thread ends, another goes on": """
        def attack():
            import threading
            threading.Thread(target=lambda: [time.sleep(1) for _ in iter(int, 1)]).start()
            call(60, 93, 0)
        """,
    "sleep without end": "def attack():\n    while True: time.sleep(1000)",
    "work without end, deaf to signals": """
        def attack():
            for number in range(1, 32):
                try: signal.signal(number, signal.SIG_IGN)
                except OSError: pass
            while True: pass
        """,
}  # fmt: skip

NAMES = [*ATTACKS, *DEADLY]
DEADLY_S = 1.0

_SCORED = """
def reward(completions, **kwargs):
    space = {"__name__": "attack"}
    try:
        exec(CODE[completions[0]], space)
        found = space["attack"]()
    except BaseException as error:
        raise RuntimeError(f"refused: {type(error).__name__} {getattr(error, 'errno', None)} {error}")
    raise RuntimeError(f"succeeded: {found!r}")
"""
_RUN = """
try:
    print("succeeded:", repr(attack()))
except BaseException as error:
    print("refused:", type(error).__name__, getattr(error, "errno", None), error)
"""


class Surroundings:
    """Surroundings of an attacked process: files, shared memory, and the process that started it.

    Args:
        directory: An empty one.
    """

    def __init__(self, directory: Path) -> None:
        self._secret = directory / "private" / "secret"
        self._outside = directory / "outside"
        self._secret.parent.mkdir(mode=0o700)
        self._secret.write_text("s3cret")
        self._secret.chmod(0o600)
        self._outside.write_text("outside")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.shared = self._libc.shmget(0, 4096, 0o1666)
        self._before = self._look()

    def names(self) -> str:
        """Return code by which an attack knows them."""
        known = [os.fsencode(self._secret), os.fsencode(self._outside), self.shared]
        return f"SECRET, OUTSIDE, SHARED = {known!r}\n"

    def damage(self) -> list[str]:
        """Return what is no longer as it was."""
        return [name for name, value in self._look().items() if value != self._before[name]]

    def close(self) -> None:
        """Give up the shared memory."""
        self._libc.shmctl(self.shared, 0, None)

    def _look(self) -> dict[str, object]:
        ioprio_get = {"x86_64": 252, "aarch64": 31}[platform.machine()]
        return {
            "the secret": (self._secret.read_text(), *self._secret.stat()[:6], os.listxattr(self._secret)),
            "its directory": (*self._secret.parent.stat()[:6], os.listdir(self._secret.parent)),
            "the file outside": (self._outside.read_text(), *self._outside.stat()[:6], *self._outside.stat()[8:]),
            "the shared memory": self._libc.shmctl(self.shared, 2, ctypes.create_string_buffer(256)),
            "the scheduler": (os.sched_getscheduler(0), os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)),
            "input and output": self._libc.syscall(ctypes.c_long(ioprio_get), 1, 0),
            "mounts": Path("/proc/self/mountinfo").read_text(),
            "the host's name": os.uname().nodename,
            "the library": os.stat(os.__file__)[:6],
            "the user": (os.getresuid(), os.getpgrp(), os.getsid(0), os.getppid()),
        }


def attack_programs(surroundings: Surroundings, timeout_s: float) -> Iterator[tuple[str, str]]:
    """Make every attack as a program of `code_tests`; what each said."""
    from agent_tunix.execution.sandbox import run_program

    for name, code in (ATTACKS | DEADLY).items():
        whole = PRELUDE + surroundings.names() + textwrap.dedent(code) + _RUN
        limit_s = timeout_s if name in ATTACKS else DEADLY_S
        run = run_program(whole, timeout_s=limit_s)
        again = run_program(whole + "\ndef f(): return 1", checks=["assert f() == 2"], timeout_s=limit_s)
        yield name, f"{run.output}{run.problem}" + (" AND PASSED" if any(again.passed) else "")


def attack_uploads(surroundings: Surroundings, timeout_s: float) -> Iterator[tuple[str, str]]:
    """Make every attack as an upload; what each said."""
    from agent_tunix.rewards import Sample
    from agent_tunix.rewards.execution import make_runner
    from tests.rewards.isolation.uploads import resolve_uploads, upload

    codes = {name: PRELUDE + surroundings.names() + textwrap.dedent(code) for name, code in (ATTACKS | DEADLY).items()}
    reward = resolve_uploads(upload(f"CODE = {codes!r}\n{_SCORED}")).components[0].reward
    for names, limit_s in ((ATTACKS, timeout_s), (DEADLY, DEADLY_S)):
        with make_runner(reward, num_workers=1, timeout_s=limit_s, memory_mb=256) as runner:
            for name in names:
                (score,) = runner.reward.score([Sample(name)])
                yield name, score.detail.removeprefix("RuntimeError: ") + (" AND SCORED" if score.value else "")


DOORS: dict[str, Callable[[Surroundings, float], Iterable[tuple[str, str]]]] = {
    "programs": attack_programs,
    "uploads": attack_uploads,
}

if __name__ == "__main__":
    door, directory, namespaces = sys.argv[1:]
    if namespaces == "no-namespaces":
        from tests.execution.namespaces import do_without

        do_without()
    os.environ["SECRET_OF_TRAINER"] = "s3cret"
    around = Surroundings(Path(directory))
    try:
        print(json.dumps({name: [said, around.damage()] for name, said in DOORS[door](around, 60.0)}))
    finally:
        around.close()
